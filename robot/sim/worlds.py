"""The worlds of the policies that ship, by the policy's name: how to open one, what can be asked for there, what a robot is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import meta_world_words
from .instructions import Language, meta_world_language, tabletop_language
from .simulation import Simulation, View
from .tabletop_goals import GOALS

if TYPE_CHECKING:
    from .rendering import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """`simulate` opens a simulation that can do every task of `tasks` or, where worlds are not shared, the task it is reset to."""

    name: str
    tasks: tuple[str, ...]
    simulate: Callable[[], Simulation]
    language: Callable[[], Language]
    shared_world: bool = True
    cameras: dict[str, str] = field(default_factory=dict)
    """Key of the observation -> camera; empty: the robot is told the state."""
    picture_size: int = 64
    limit: int = 160
    """Steps that an episode may take."""
    actions: tuple[str, ...] = ("dx", "dy", "dz", "suction")
    """What the numbers of an action are."""
    view: View
    """What shows people most."""
    stage: Callable[[str], Stage]
    """What draws the scenes of a task."""


def _tabletop() -> Simulation:
    from .tabletop import TableTop

    return TableTop()


def _tabletop_stage(task: str) -> Stage:
    from .tabletop import stage

    return stage(task)


def _meta_world_stage(task: str) -> Stage:
    from .meta_world import stage

    return stage(task)


def _meta_world() -> Simulation:
    from .meta_world import MetaWorld

    return MetaWorld()


FRONT = View((0.0, 0.02, 0.03), 0.76, 90.0, -57.0)
TABLETOP = World(name="tabletop", tasks=tuple(GOALS), simulate=_tabletop, language=tabletop_language, view=FRONT, stage=_tabletop_stage)
TABLETOP_EYES = World(
    name="tabletop-eyes",
    tasks=tuple(name for name, goal in GOALS.items() if goal.kind == "lift"),
    simulate=_tabletop,
    language=tabletop_language,
    cameras={"observation/image": "top", "observation/front_image": "front"},
    view=FRONT,
    stage=_tabletop_stage,
)
META_WORLD = World(
    name="metaworld",
    tasks=tuple(meta_world_words.TASKS),
    simulate=_meta_world,
    language=meta_world_language,
    shared_world=False,
    limit=300,
    actions=("dx", "dy", "dz", "gripper"),
    view=View((0.0, 0.65, 0.12), 1.15, 140.0, -30.0),
    stage=_meta_world_stage,
)
WORLDS: dict[str, World] = {world.name: world for world in (TABLETOP, TABLETOP_EYES, META_WORLD)}
"""By the policy's name."""
