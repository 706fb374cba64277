"""The world that belongs to a policy, its tasks, and what is said to have them done."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal

from ...robot.sim.simulation import DRAWING_HELP, Simulation
from ...robot.sim.worlds import META_WORLD, WORLDS, World

Words = Literal["plain", "kept_out", "wrong"]
"""A task's plain instruction; a paraphrase kept out of training; the plain instruction of another task."""


class CannotSimulate(Exception):
    """There is no such world or task, or it cannot be simulated here; the message says what there is, or what to install."""


def world_of(policy: str) -> World:
    """The world of the policy with this name, as a server's metadata gives it. Raises `CannotSimulate`."""
    try:
        return WORLDS[policy]
    except KeyError:
        raise CannotSimulate(f"There is no world for the policy {policy!r}; there are worlds for {', '.join(WORLDS)}.") from None


def open_world(world: World) -> Simulation:
    """A simulation of it. Raises `CannotSimulate` when a package is missing."""
    needed = ("mujoco", "metaworld") if world is META_WORLD else ("mujoco",)
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise CannotSimulate(f"Simulated robots need {' and '.join(missing)}: pip install 'antiphon[sim]'")
    try:
        import mujoco  # noqa: F401 - it loads OpenGL when it is imported
    except Exception as error:  # each back end has errors of its own
        help_ = f"{DRAWING_HELP}, or set MUJOCO_GL=disable if nothing is to be drawn"
        raise CannotSimulate(f"MuJoCo cannot be loaded: {help_} ({type(error).__name__}: {error})") from error
    return world.simulate()


def tasks_of(world: World, wanted: str) -> tuple[str, ...]:
    """The task of that name, or all of them ("all"). Raises `CannotSimulate`."""
    if wanted == "all":
        return world.tasks
    if wanted not in world.tasks:
        raise CannotSimulate(f"The world {world.name!r} has no task {wanted!r}; its tasks are {', '.join(world.tasks)}.")
    return (wanted,)


def said(world: World, task: str, index: int = 0, words: Words = "plain") -> str:
    """What is said in a task's episode number `index`."""
    language = world.language()
    if words == "plain":
        return language.plain[task]
    if words == "kept_out":
        return _turn(language.kept_out[task], index)
    others = [other for other in world.tasks if other != task]
    return language.plain[_turn(others, index)]


def _turn(of: Sequence[str], index: int) -> str:
    return of[index % len(of)]
