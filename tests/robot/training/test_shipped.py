"""The policies that ship, in closed loop: floors well below what the reports say, so that chance does not decide."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from antiphon.engines.action.card import load_card
from antiphon.robot.training.cli import SHIPPED
from antiphon.robot.training.driving import Policy
from antiphon.robot.training.evaluation import Outcome, Trial, evaluate, trials
from antiphon.robot.training.recipes import RECIPES, Recipe

LARGEST = 10_000_000
EPISODES = 6


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def opened(name: str) -> tuple[Recipe, Policy]:
    recipe = RECIPES[name]()
    return recipe, Policy.load(recipe, SHIPPED / name, load_card(SHIPPED / name))


def outcome(recipe: Recipe, policy: Policy, **wanted: object) -> Outcome:
    """Of the one trial that has these values."""
    [found] = [one for one in trials(recipe, (2, 4)) if all(getattr(one, name) == value for name, value in wanted.items())]
    assert isinstance(found, Trial)
    return evaluate(recipe, policy, found, EPISODES)


@pytest.mark.parametrize("folder", sorted(SHIPPED.glob("*/card.json")), ids=lambda file: file.parent.name)
def test_weights_are_small_and_belong_to_a_recipe(folder) -> None:  # type: ignore[no-untyped-def]
    card = load_card(folder.parent)
    assert card.policy == folder.parent.name
    assert card.policy in RECIPES
    assert card.network == RECIPES[card.policy]().network
    assert (folder.parent / card.weights).stat().st_size < LARGEST


def test_the_table_top_policy_does_what_it_is_told() -> None:
    recipe, policy = opened("tabletop")
    assert outcome(recipe, policy, name="its own instruction").rate >= 0.87
    assert outcome(recipe, policy, name="a paraphrase kept out of training").rate >= 0.75
    assert outcome(recipe, policy, name="another task's instruction").rate <= 0.04


def test_the_table_top_policy_continues_what_is_running() -> None:
    recipe, policy = opened("tabletop")
    continued = outcome(recipe, policy, handover="rtc", delay=4)
    waited = outcome(recipe, policy, handover="wait", delay=4)
    assert continued.rate >= 0.7
    assert continued.stalled < waited.stalled / 3


def test_the_policy_that_sees_lifts_the_cube_it_is_told() -> None:
    recipe, policy = opened("tabletop-eyes")
    assert outcome(recipe, policy, name="its own instruction").rate >= 0.7
    assert outcome(recipe, policy, name="another task's instruction").rate <= 0.06
