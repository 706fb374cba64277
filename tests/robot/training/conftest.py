"""A world of one line, and a recipe that trains in seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from antiphon.engines.action.card import NetworkShape
from antiphon.robot.sim.simulation import Action, Picture, State
from antiphon.robot.training.collecting import Collecting
from antiphon.robot.training.recipes import Recipe, Round, tabletop


class Line:
    """A point on a line; its task is to stand at +1 or at -1. Keeps what was done."""

    rate = 10.0
    action_dim = 2
    tasks: tuple[str, ...] = ("right", "left")
    cameras: tuple[str, ...] = ()
    shared_world = True
    robot: tuple[int, ...] = (0,)

    def __init__(self) -> None:
        self.place = 0.0
        self.task = "right"
        self.done: list[float] = []

    def reset(self, task: str, seed: int) -> None:
        self.task = task
        self.place = float(np.random.default_rng(seed).uniform(-0.2, 0.2))
        self.done = []

    def retask(self, task: str) -> None:
        self.task = task

    def observe(self) -> State:
        return np.array([self.place, 1.0], np.float32)

    def step(self, action: Action) -> None:
        self.done.append(float(action[0]))
        self.place += 0.1 * float(np.clip(action[0], -1, 1))

    def succeeded(self) -> bool:
        return abs(self.place - self._goal()) < 0.05

    def expert(self) -> Action:
        return np.array([np.clip(4 * (self._goal() - self.place), -1, 1), 1], np.float32)

    def hold(self) -> Action:
        return np.array([0, 1], np.float32)

    def render(self, camera: str, size: int) -> Picture:
        picture: npt.NDArray[np.uint8] = np.full((size, size, 3), 128, np.uint8)
        return picture

    def close(self) -> None:
        pass

    def _goal(self) -> float:
        return 1.0 if self.task == "right" else -1.0


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def small() -> Recipe:
    """The table-top recipe, cut down to seconds: two rounds, a small network, eight steps."""
    return replace(
        tabletop(),
        network=NetworkShape(
            width=32, depth=1, condition=16, observation_width=16, prompt_width=8, prompt_buckets=64, prompt_encoding="words"
        ),
        rounds=(Round(0, 2), Round(5, 1)),
        steps=8,
        batch=16,
        collecting=Collecting(together=6),
        limit=12,
    )
