"""The control loop's decisions beside those of the in-process evaluation: the same scenes, policy, noise and delays, step by step,
without a wall clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from antiphon.clients.robot import Controller, ControlSettings, PolicyInfo
from antiphon.clients.robot.controller import Ask
from antiphon.clients.robot.settings import Handover
from antiphon.engines.action.card import load_card
from antiphon.robot.sim.simulation import Action, Simulation
from antiphon.robot.training.cli import SHIPPED
from antiphon.robot.training.control import Rollout
from antiphon.robot.training.driving import Policy
from antiphon.robot.training.evaluation import FIRST_SEED
from antiphon.robot.training.recipes import RECIPES, Recipe

Delays = Callable[[random.Random], int]
"""Control steps that the next chunk takes."""


class Run(Protocol):
    """An episode."""

    simulation: Any
    task: str
    prompt: str
    step: int
    succeeded: bool
    stalled: int
    jumps: list[float]

    @property
    def over(self) -> bool: ...
    def asks(self) -> list[Action] | None: ...
    def take(self, chunk: Any) -> None: ...
    def tick(self) -> None: ...


@dataclass(slots=True, eq=False)
class Controlled:
    """An episode under the client's controller, as `Rollout` is one under the evaluation's."""

    simulation: Simulation
    task: str
    prompt: str
    handover: Handover
    delays: Delays
    random_: random.Random
    execute: int
    limit: int
    max_prefix: int
    step: int = 0
    succeeded: bool = False
    stalled: int = 0
    jumps: list[float] = field(default_factory=list)
    _controller: Controller = field(init=False)
    _asked: Ask | None = None
    _coming: tuple[int, int, Any] | None = None
    _last: Action | None = None
    _begun: bool = False

    def __post_init__(self) -> None:
        bounds = (-1.0,) * self.simulation.action_dim
        policy = PolicyInfo(
            rate=self.simulation.rate,
            horizon=16,
            action_dim=self.simulation.action_dim,
            low=bounds,
            high=tuple(-one for one in bounds),
            max_prefix=self.max_prefix,
            marks=True,
        )
        self._controller = Controller(ControlSettings(handover=self.handover, execute=self.execute, hold_limit_s=60.0), policy)
        self._controller.begin(0.0)
        self._controller.online(0.0)

    @property
    def now(self) -> float:
        return self.step / self.simulation.rate

    @property
    def over(self) -> bool:
        return self.succeeded or self.step >= self.limit

    def asks(self) -> list[Action] | None:
        if self._coming is not None and self.step >= self._coming[0]:
            _, sequence, chunk = self._coming
            self._coming = None
            assert self._controller.take(sequence, chunk, self.now - 1e-4).reason == ""
        self._asked = self._controller.ask(self.now)
        if self._asked is None:
            return None
        return [] if self._asked.prefix is None else list(self._asked.prefix)

    def take(self, chunk: Any) -> None:
        assert self._asked is not None
        self._coming = (self.step + self.delays(self.random_), self._asked.ticket.sequence, chunk)

    def tick(self) -> None:
        choice = self._controller.step(self.now)
        action = self.simulation.hold() if choice.action is None else choice.action
        self.stalled += choice.action is None
        if choice.border:
            if self._begun and self._last is not None:
                self.jumps.append(float(np.abs(action[:-1] - self._last[:-1]).max()))
            self._begun = True
        self._last = action
        self.simulation.step(action)
        self.step += 1
        self.succeeded = self.simulation.succeeded()


@dataclass(frozen=True, slots=True)
class Kept:
    """A simulation that keeps what was executed."""

    simulation: Simulation
    executed: list[Action] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.simulation, name)

    def step(self, action: Action) -> None:
        self.executed.append(np.array(action))
        self.simulation.step(action)


class Bench:
    """Plays a policy's episodes under either."""

    def __init__(self, name: str) -> None:
        self.recipe: Recipe = RECIPES[name]()
        self.policy = Policy.load(self.recipe, SHIPPED / name, load_card(SHIPPED / name))

    def controlled(self, handover: Handover, delays: Delays, episodes: int) -> list[Run]:
        """Under the client's controller."""
        recipe, chance = self.recipe, random.Random(1)
        return self._play(
            episodes,
            lambda world, task, say: Controlled(
                world, task, say, handover, delays, chance, recipe.execute, recipe.limit, recipe.max_prefix
            ),
        )

    def evaluated(self, handover: Any, delay: int, episodes: int) -> list[Run]:
        """As the evaluation does it."""
        recipe = self.recipe
        return self._play(episodes, lambda world, task, say: Rollout(world, task, say, handover, delay, recipe.execute, recipe.limit))

    def _play(self, episodes: int, run: Callable[[Any, str, str], Run]) -> list[Run]:
        language = self.recipe.language()
        runs: list[Run] = []
        for task in self.recipe.tasks:
            for index in range(episodes):
                world = self.recipe.simulate()
                world.reset(task, FIRST_SEED + index + 1000 * self.recipe.tasks.index(task))
                runs.append(run(Kept(world), task, language.plain[task]))
        while going := [(number, one) for number, one in enumerate(runs) if not one.over]:
            asking = [(number, one, prefix) for number, one in going if (prefix := one.asks()) is not None]
            asked = [(one.simulation, one.prompt, 1000 * one.step + number, prefix) for number, one, prefix in asking]
            for (_, one, _), chunk in zip(asking, self.policy.chunks(asked), strict=True):
                one.take(chunk)
            for _, one in going:
                one.tick()
        return runs


def succeeded(runs: Sequence[Run]) -> int:
    return sum(run.succeeded for run in runs)


def stalled(runs: Sequence[Run]) -> float:
    return sum(run.stalled for run in runs) / sum(run.step for run in runs)


def jump(runs: Sequence[Run]) -> float:
    return float(np.median([jump for run in runs for jump in run.jumps]))
