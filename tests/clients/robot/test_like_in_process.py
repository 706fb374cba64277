"""The client's control loop is as good as the evaluation's: the figures of a policy in process are those that a robot has of it.

With the table-top policy that ships, in lock-step: delays are exactly so many steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from .lockstep import Bench, jump, stalled, succeeded

EPISODES = 5
OF = 9 * EPISODES
CHANCE = 4
"""Episodes of 45 by which two ways that are equally good may differ."""


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Bench("tabletop")
    torch.set_num_threads(before)


@pytest.mark.parametrize("delay", [2, 4, 6])
@pytest.mark.parametrize("handover", ["wait", "switch"])
def test_waiting_and_switching_execute_the_same_to_the_last_bit(bench: Bench, handover: str, delay: int) -> None:
    controlled = bench.controlled(handover, lambda _: delay, 2)  # type: ignore[arg-type]
    evaluated = bench.evaluated(handover, delay, 2)
    for ours, theirs in zip(controlled, evaluated, strict=True):
        assert np.array_equal(ours.simulation.executed, theirs.simulation.executed)


@pytest.mark.parametrize("delay", [1, 2, 4, 6])
def test_continuing_what_is_running_succeeds_as_often_and_stalls_only_at_the_start(bench: Bench, delay: int) -> None:
    """The evaluation continues holding still at an episode's start; the client asks for a chunk from there without a prefix."""
    controlled = bench.controlled("rtc", lambda _: delay, EPISODES)
    evaluated = bench.evaluated("rtc", delay, EPISODES)
    assert succeeded(controlled) >= succeeded(evaluated) - CHANCE
    assert succeeded(controlled) >= OF - CHANCE
    assert max(run.stalled for run in controlled) == delay, "until the first chunk, and never again"
    assert jump(controlled) <= jump(evaluated) + 0.1


def test_without_delay_it_is_one_step_that_a_chunk_takes(bench: Bench) -> None:
    runs = bench.controlled("rtc", lambda _: 1, EPISODES)
    still = bench.evaluated("rtc", 0, EPISODES)
    assert succeeded(runs) >= succeeded(still) - CHANCE
    assert {run.stalled for run in runs} == {1}


def test_delays_that_jump_about_cost_little(bench: Bench) -> None:
    for delays in ([1, 5], [1, 2, 3, 4, 5], [3] * 9 + [8], [1] * 5 + [6]):
        runs = bench.controlled("rtc", lambda chance, delays=delays: chance.choice(delays), EPISODES)  # type: ignore[misc]
        assert succeeded(runs) >= OF - CHANCE
        assert stalled(runs) < 0.12


def test_even_delays_beyond_what_a_chunk_can_continue_are_survived(bench: Bench) -> None:
    runs = bench.controlled("rtc", lambda _: 11, EPISODES)
    assert succeeded(runs) >= 0.7 * OF
