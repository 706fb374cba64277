"""Which robot plays what: from what the user asked for to a list of episodes for each robot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ...clients.robot.settings import HANDOVERS, Handover
from ...robot.sim.worlds import TABLETOP, WORLDS, World
from .driving import ANY_TASK, Episode
from .worlds import CannotSimulate, Words, said, tasks_of, world_of

FIRST_SEED = 8_000_000_000
"""Beyond all of training's and evaluation's: scenes that no policy has seen."""
MOST_ROBOTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be played. Without a world it follows from the task, or from the server's policy."""

    world: str | None = None
    task: str | None = None
    """A task's name, or "all"; None: all, or with a prompt, any."""
    prompt: str | None = None
    """What the policy is told; None: the task's own words."""
    words: Words = "plain"
    robots: int = 1
    episodes: int | None = None
    """Of each robot; None: as many as it takes for each task once."""
    seed: int = 0
    handover: Handover = "rtc"
    delay_s: float = 0.0
    """By which each round trip is made longer."""
    video: Path | None = None
    timeline: Path | None = None
    logs: Path | None = None
    """A folder for the robots' episode logs."""

    def __post_init__(self) -> None:
        if self.handover not in HANDOVERS:
            raise CannotSimulate(f"There is no hand-over {self.handover!r}; there are {', '.join(HANDOVERS)}.")
        if self.prompt is not None and not self.prompt.strip():
            raise CannotSimulate("The prompt is empty: leave it out to have the task's own words said.")
        if not 1 <= self.robots <= MOST_ROBOTS:
            raise CannotSimulate(f"{self.robots} robots cannot be simulated at once; from 1 to {MOST_ROBOTS} can.")


def choose_world(plan: Plan, served: str | None = None) -> World:
    """The world of a plan: the one it names; that of the policy that a server serves, if the task is one of its; any with the task.
    Raises `CannotSimulate`."""
    if plan.world is not None:
        world = world_of(plan.world)
        _check_task(world, plan.task)
        return world
    task = plan.task if plan.task != "all" else None
    if served == "":
        raise CannotSimulate("The server does not say which policy it has: name its world with --world.")
    if served is not None:
        world = world_of(served)
        if task is None or task in world.tasks:
            return world
    for world in WORLDS.values():
        if task in world.tasks:
            return world
    if task is None:
        return TABLETOP
    known = "; ".join(f"{world.name}: {', '.join(world.tasks)}" for world in WORLDS.values())
    raise CannotSimulate(f"There is no task {task!r}. The tasks are, by world: {known}.")


def episodes_of(plan: Plan, world: World) -> list[list[Episode]]:
    """The episodes of each robot. Robots take the tasks in turn, each from another one on. Raises `CannotSimulate`."""
    tasks = _tasks(plan, world)
    each = plan.episodes or math.ceil(len(tasks) / plan.robots)
    found = []
    for robot in range(plan.robots):
        mine = []
        for index in range(each):
            task = tasks[(robot * each + index) % len(tasks)]
            prompt = plan.prompt if plan.prompt is not None else said(world, task, robot * each + index, plan.words)
            mine.append(Episode(task=task, prompt=prompt, seed=FIRST_SEED + plan.seed * 1_000_000 + robot * 1000 + index))
        found.append(mine)
    return found


def _tasks(plan: Plan, world: World) -> tuple[str, ...]:
    if plan.task is None and plan.prompt is not None:
        if not world.shared_world:
            raise CannotSimulate(f"In the world {world.name!r} each task has a scene of its own: say which one with --task.")
        return (ANY_TASK,)
    return tasks_of(world, plan.task or "all")


def _check_task(world: World, task: str | None) -> None:
    if task is not None:
        tasks_of(world, task)
