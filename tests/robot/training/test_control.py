"""Hand-overs: no action twice, none left out, whatever the delay."""

from __future__ import annotations

import numpy as np
import pytest
from antiphon.robot.training.control import Handover, Rollout
from antiphon.robot.training.dataset import Floats

from .conftest import Line

HORIZON = 16


def planned(step: int, prefix: int) -> Floats:
    """A chunk whose actions say for which control step they were meant, and whether they continue a prefix (0.5)."""
    numbers = np.arange(step, step + HORIZON, dtype=np.float32)
    return np.stack([numbers, np.full(HORIZON, 0.5 if prefix else 0.0, np.float32)], 1)


def play(line: Line, handover: Handover, delay: int, steps: int = 60) -> Rollout:
    line.reset("right", 0)
    line.succeeded = lambda: False  # type: ignore[method-assign]
    rollout = Rollout(line, "right", "", handover, delay, limit=steps)
    while not rollout.over:
        prefix = rollout.asks()
        if prefix is not None:
            assert len(prefix) == (delay if handover == "rtc" else 0)
            rollout.take(planned(rollout.step, len(prefix)))
        rollout.tick()
    return rollout


@pytest.mark.parametrize("handover", ["wait", "switch", "rtc"])
def test_without_delay_nothing_stalls(line: Line, handover: Handover) -> None:
    rollout = play(line, handover, 0)
    assert rollout.stalled == 0
    assert line.done == list(range(60))


@pytest.mark.parametrize("delay", [1, 2, 4, 7])
def test_rtc_executes_each_action_at_the_step_it_was_meant_for(line: Line, delay: int) -> None:
    rollout = play(line, "rtc", delay)
    assert rollout.stalled == delay, "only before the first chunk"
    assert line.done[:delay] == [0.0] * delay
    assert line.done[delay:] == list(range(delay, 60))


@pytest.mark.parametrize("delay", [1, 2, 4, 7])
def test_switching_skips_what_was_really_executed(line: Line, delay: int) -> None:
    """The first chunk, before which the robot stood still, is played from its start: it is `delay` steps behind for as long as it lasts."""
    play(line, "switch", delay)
    assert line.done[delay : delay + 8] == list(range(8))
    after = line.done[delay + 8 :]
    assert after == list(range(delay + 8, 60))


@pytest.mark.parametrize("delay", [1, 4])
def test_waiting_stands_still_for_each_delay(line: Line, delay: int) -> None:
    rollout = play(line, "wait", delay, steps=3 * (8 + delay))
    assert rollout.stalled == 3 * delay
    moved = [value for index, value in enumerate(line.done) if index % (8 + delay) >= delay]
    assert moved == [start + at for start in (0, 8 + delay, 2 * (8 + delay)) for at in range(8)]


def test_jumps_are_measured_at_borders_only(line: Line) -> None:
    rollout = play(line, "switch", 0, steps=24)
    assert rollout.jumps == [1.0, 1.0], "from one planned number to the next; the grip does not count"


def test_an_episode_ends_with_success(line: Line) -> None:
    line.reset("right", 0)
    rollout = Rollout(line, "right", "")
    while not rollout.over:
        if rollout.asks() is not None:
            rollout.take(np.ones((HORIZON, 2), np.float32))
        rollout.tick()
    assert rollout.succeeded
    assert rollout.step < 14
