"""How each shipped policy is made: its world, its data, its network and its training, in one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...engines.action.card import NetworkShape
from ..sim import worlds
from ..sim.instructions import Language
from ..sim.simulation import ROBOT_KEY, STATE_KEY, Simulation
from ..sim.tabletop_goals import GOALS
from ..sim.worlds import World
from .collecting import Collecting, Disturbance

FROM_WORLD = ("name", "tasks", "simulate", "language", "shared_world", "cameras", "picture_size", "limit")


@dataclass(frozen=True, slots=True)
class Round:
    """More data, before step `at`: so many episodes a task. The first round is the expert's with disturbances of chance, in later ones the
    policy drives, as it stands then."""

    at: int
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """`simulate` opens a world that can do every task of `tasks` or, where worlds are not shared, the task it is given."""

    name: str
    tasks: tuple[str, ...]
    simulate: Callable[[], Simulation]
    language: Callable[[], Language]
    shared_world: bool = True
    network: NetworkShape
    rounds: tuple[Round, ...]
    steps: int
    collecting: Collecting = field(default_factory=Collecting)
    often: tuple[float, ...] = ()
    """How often windows of each task are drawn, relative to each other; empty: all alike."""
    batch: int = 256
    repeat: int = 1
    """Noises that each observation's chunk is trained with at once; more than one where observations are costly to encode."""
    rate: float = 1e-3
    state_noise: float = 0.01
    """Of the normalised state."""
    hidden: tuple[int, ...] = ()
    """Numbers of the state that the network must not see."""
    sees: bool = False
    """Is told only the robot's own part of the state, and must see the rest in the pictures of `cameras`."""
    cameras: dict[str, str] = field(default_factory=dict)
    """Key of the observation -> camera."""
    picture_size: int = 64
    horizon: int = 16
    max_prefix: int = 8
    execute: int = 8
    """Actions of a chunk that are executed before the next one."""
    limit: int = 160
    """Steps that an episode of the evaluation may take."""

    @property
    def state_key(self) -> str:
        """The array of the observation that the network takes as state."""
        return ROBOT_KEY if self.sees else STATE_KEY


def _of(world: World) -> dict[str, Any]:
    """What a recipe takes over from its world."""
    return {name: getattr(world, name) for name in FROM_WORLD}


TIP_MOVEMENT = (3, 4, 5)
"""Of the table-top's state: with it a network copies what it is doing instead of looking at what it should do."""


def tabletop() -> Recipe:
    """The table-top scene from its state; the instruction decides."""
    return Recipe(
        **_of(worlds.TABLETOP),
        network=NetworkShape(prompt_buckets=512, prompt_encoding="words"),
        rounds=(Round(0, 250), Round(2500, 90), Round(4500, 90), Round(6500, 90), Round(10_000, 120), Round(12_500, 120)),
        steps=16_000,
        often=tuple(1.0 if goal.kind == "place" else 0.5 for goal in GOALS.values()),
        collecting=Collecting(prelude=0.35),
        hidden=TIP_MOVEMENT,
    )


def meta_world() -> Recipe:
    """Ten tasks of Meta-World from their state, continuing prefixes."""
    return Recipe(
        **_of(worlds.META_WORLD),
        network=NetworkShape(prompt_buckets=256, prompt_encoding="words"),
        rounds=(Round(0, 90), Round(3000, 30), Round(6000, 30)),
        steps=12_000,
        collecting=Collecting(steps=260, after=16, together=16, disturbance=Disturbance(before=70, tremor=(0.0, 0.1, 0.3))),
    )


def tabletop_eyes() -> Recipe:
    """Lifting the cube that is named, from two small cameras and the robot's own joints."""
    return Recipe(
        **_of(worlds.TABLETOP_EYES),
        network=NetworkShape(prompt_buckets=512, prompt_encoding="words", eyes=2),
        rounds=(Round(0, 300), Round(2500, 100), Round(5000, 100)),
        steps=8_000,
        collecting=Collecting(prelude=0.2),
        sees=True,
        batch=64,
        repeat=4,
        state_noise=0.02,
    )


RECIPES: dict[str, Callable[[], Recipe]] = {"tabletop": tabletop, "metaworld": meta_world, "tabletop-eyes": tabletop_eyes}
