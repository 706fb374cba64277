"""Closed-loop evaluation, on the line: a policy that does what it is told is told apart from one that does not listen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from antiphon.robot.sim.instructions import Language
from antiphon.robot.sim.simulation import Action, Simulation
from antiphon.robot.training.dataset import Floats
from antiphon.robot.training.evaluation import Outcome, evaluate, trials
from antiphon.robot.training.recipes import Recipe

from .conftest import Line

LANGUAGE = Language(
    plain={"right": "go right", "left": "go left"},
    training={"right": ("go right",), "left": ("go left",)},
    kept_out={"right": ("to the right", "starboard"), "left": ("to the left", "larboard")},
)


class Obedient:
    """Goes where the last word says, however far; deaf to what it never heard. Keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def chunks(self, asked: Sequence[tuple[Simulation, str, int, Sequence[Action]]]) -> list[Floats]:
        self.asked.append(len(asked))
        towards = {"right": 0.5, "left": -0.5}
        return [np.tile(np.array([towards.get(said.split()[-1], 0.0), 1], np.float32), (16, 1)) for _, said, _, _ in asked]


@pytest.fixture
def recipe(small: Recipe) -> Recipe:
    return replace(small, tasks=Line.tasks, simulate=Line, language=lambda: LANGUAGE, limit=40)


def outcomes(recipe: Recipe, policy: Any, episodes: int = 4) -> dict[str, Outcome]:
    return {trial.name: evaluate(recipe, policy, trial, episodes) for trial in trials(recipe, (2,))}


@pytest.mark.parametrize("shared", [True, False])
def test_who_listens_succeeds_with_the_right_words_only(recipe: Recipe, shared: bool) -> None:
    found = outcomes(replace(recipe, shared_world=shared), Obedient())
    assert found["its own instruction"].tasks == {"right": (4, 4), "left": (4, 4)}
    assert found["a paraphrase kept out of training"].tasks == {"right": (2, 4), "left": (2, 4)}, "half of them it never heard"
    assert found["another task's instruction"].succeeded == 0


def test_delays_stall_who_waits_and_nobody_else(recipe: Recipe) -> None:
    found = outcomes(recipe, Obedient())
    waits, switches, continues = (found[f"delay of 2 steps: {how}"] for how in ("wait", "switch", "rtc"))
    assert waits.rate == switches.rate == continues.rate == 1
    assert waits.stalled > 2 * switches.stalled
    assert switches.stalled == pytest.approx(continues.stalled)
    assert np.mean(waits.steps) > np.mean(continues.steps)


def test_robots_side_by_side_are_served_together(recipe: Recipe) -> None:
    policy = Obedient()
    outcomes(recipe, policy)
    assert policy.asked[0] == 8


def test_no_continuing_for_a_policy_that_cannot(recipe: Recipe) -> None:
    assert "delay of 2 steps: rtc" not in {trial.name for trial in trials(replace(recipe, max_prefix=0), (2,))}


def test_evaluation_has_worlds_of_its_own(recipe: Recipe) -> None:
    """The same seeds give the same outcome, whatever ran before."""
    once, again = (evaluate(recipe, Obedient(), trials(recipe, (2,))[0], 4) for _ in range(2))
    assert once.steps == again.steps
    other = evaluate(recipe, Obedient(), trials(recipe, (2,))[0], 4, first_seed=5)
    assert other.steps != once.steps
