"""A row's chunk is the same whoever shares its steps, in which order, and however often it has to wait."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from antiphon.engines.action.card import load_card
from antiphon.engines.action.flow_model import FlowModel, FlowRow
from antiphon.engines.messages import ActBody, Array

POLICY = Path(__file__).parents[2] / "data" / "tabletop-policy"


@pytest.fixture(scope="module")
def model() -> FlowModel:
    return FlowModel.load(POLICY, load_card(POLICY))


def bodies(count: int) -> list[ActBody]:
    """Different states, instructions, prefixes and numbers of steps."""
    draw = np.random.default_rng(3)
    return [
        ActBody(
            observation={"observation/state": Array.of(draw.uniform(-0.2, 0.2, 20).astype(np.float32))},
            prompt=("put the red cube on the white pad", "lift the blue cube", "")[index % 3],
            prefix=Array.of(draw.uniform(-1, 1, (index % 4, 4)).astype(np.float32)) if index % 4 else None,
            steps=(None, 3, 11)[index % 3],
        )
        for index in range(count)
    ]


def alone(model: FlowModel, body: ActBody, seed: int) -> np.ndarray:
    row = model.prepare(body, seed)
    model.begin([row])
    while row.step < row.steps:
        model.advance([row])
    return model.finish(row)


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_come_wait_and_go_as_they_like(model: FlowModel, seed: int) -> None:
    draw = random.Random(seed)
    waiting = list(enumerate(bodies(14)))
    working: dict[int, FlowRow] = {}
    done: dict[int, np.ndarray] = {}
    while waiting or working:
        fresh = {number: model.prepare(body, number) for number, body in waiting[: draw.randrange(4)]}
        waiting = waiting[len(fresh) :]
        if fresh:
            model.begin(list(fresh.values()))
            working |= fresh
        taking = draw.sample(sorted(working), draw.randrange(len(working) + 1))
        if taking:
            model.advance([working[number] for number in taking])
        for number in [number for number, row in working.items() if row.step == row.steps]:
            done[number] = model.finish(working.pop(number))
        if working and draw.random() < 0.1:
            del working[victim := draw.choice(sorted(working))]  # aborted
            waiting.append((victim, bodies(14)[victim]))
    for number, body in enumerate(bodies(14)):
        assert np.abs(done[number] - alone(model, body, number)).max() < 1e-4


def test_a_prefix_of_another_row_is_not_seen(model: FlowModel) -> None:
    plain, given = bodies(4)[0], bodies(4)[3]
    rows = [model.prepare(plain, 1), model.prepare(given, 2)]
    assert rows[1].prefix_length == 3
    again = model.prepare(plain, 1)
    assert not again.mask.any()
    assert not again.given.any()


def test_an_instruction_is_encoded_once_and_old_ones_are_forgotten(model: FlowModel) -> None:
    first = model.prepare(ActBody(observation=bodies(1)[0].observation, prompt="lift it"), 0)
    assert model.prepare(ActBody(observation=bodies(1)[0].observation, prompt="lift it"), 1).told is first.told
    for number in range(300):
        model.prepare(ActBody(observation=bodies(1)[0].observation, prompt=f"lift number {number}"), 0)
    assert model.prepare(ActBody(observation=bodies(1)[0].observation, prompt="lift it"), 1).told is not first.told
