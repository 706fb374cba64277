"""From one chunk to the next, with a policy that knows where each action belongs: of a chunk asked for at count n, action i says n + i."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from antiphon.clients.robot import Controller, ControlSettings, Mode, PolicyInfo
from antiphon.clients.robot.handover import delay_steps, prefix_of
from antiphon.clients.robot.plan import Plan, Ticket, check_chunk
from hypothesis import given, strategies

RATE, HORIZON = 20.0, 16


class Drive:
    """A controller, and a policy that takes `delay` steps; `seen` has (count an action belongs to, its chunk), or None for holding."""

    def __init__(self, handover: Any, delays: list[int], *, max_prefix: int = 8, execute: int = 8) -> None:
        told = PolicyInfo(rate=RATE, horizon=HORIZON, action_dim=2, max_prefix=max_prefix, marks=True)
        self.controller = Controller(ControlSettings(handover=handover, execute=execute, hold_limit_s=9.0), told)
        self.controller.begin(0.0)
        self.controller.online(0.0)
        self.delays = delays
        self.seen: list[tuple[int, int] | None] = []
        self.prefixes: list[int] = []
        self._coming: tuple[int, int, Any] | None = None
        self._asked = 0

    def run(self, steps: int) -> Drive:
        for step in range(steps):
            now = step / RATE
            if self._coming is not None and step >= self._coming[0]:
                assert self.controller.take(self._coming[1], self._coming[2], now).reason == ""
                self._coming = None
            ask = self.controller.ask(now)
            if ask is not None:
                self.prefixes.append(ask.ticket.prefix)
                if ask.prefix is not None:
                    counts = ask.prefix[:, 0]
                    assert (counts == ask.ticket.base + np.arange(len(counts))).all(), "what it promises is what comes next"
                actions = np.stack([ask.ticket.base + np.arange(HORIZON), np.full(HORIZON, ask.ticket.sequence)], axis=1)
                self._coming = (step + self.delays[self._asked % len(self.delays)], ask.ticket.sequence, actions.astype(np.float32))
                self._asked += 1
            choice = self.controller.step(now)
            self.seen.append(None if choice.action is None else (int(choice.action[0]), int(choice.action[1])))
        return self

    def counts(self) -> list[int]:
        return [one[0] for one in self.seen if one is not None]


@pytest.mark.parametrize("handover", ["wait", "switch", "rtc", "ensemble"])
@given(delays=strategies.lists(strategies.integers(1, 12), min_size=1, max_size=6))
def test_each_action_is_executed_where_it_belongs_whatever_the_delays(handover: str, delays: list[int]) -> None:
    drive = Drive(handover, delays).run(120)
    assert drive.counts() == list(range(len(drive.counts())))


@pytest.mark.parametrize("handover", ["switch", "rtc", "ensemble"])
@pytest.mark.parametrize("delay", [1, 2, 4, 6])
def test_a_steady_delay_stalls_nobody_but_who_waits(handover: str, delay: int) -> None:
    drive = Drive(handover, [delay]).run(200)
    assert drive.seen[:delay] == [None] * delay, "at the start there is nothing"
    assert None not in drive.seen[delay:]
    waiting = Drive("wait", [delay]).run(200)
    assert waiting.seen.count(None) >= 200 * delay // (8 + delay) - delay


def test_chunks_take_over_after_as_many_actions_as_wanted() -> None:
    chunks = [one[1] for one in Drive("switch", [3], execute=8).run(200).seen[60:] if one is not None]
    borders = [at for at, (one, two) in enumerate(pairwise(chunks)) if one != two]
    assert set(np.diff(borders)) == {8}


def test_a_chunk_that_is_late_is_bridged_with_the_rest_of_the_one_before() -> None:
    drive = Drive("switch", [2, 2, 2, 2, 7]).run(200)
    assert None not in drive.seen[2:]


def test_the_prefix_is_as_long_as_the_measured_delay() -> None:
    assert set(Drive("rtc", [4]).run(100).prefixes[2:]) == {4}
    assert max(Drive("rtc", [4], max_prefix=3).run(100).prefixes) == 3
    for without in (Drive("rtc", [4], max_prefix=0), Drive("switch", [4])):
        assert set(without.run(100).prefixes) == {0}
        assert None not in without.seen[4:]


def test_the_ensemble_is_a_weighted_mean_of_what_overlaps() -> None:
    def made(decay: float) -> float:
        controller = Controller(ControlSettings(handover="ensemble", ensemble_decay=decay), PolicyInfo(rate=RATE, action_dim=1))
        controller.begin(0.0)
        controller.online(0.0)
        for value in (0.0, 1.0):
            ask = controller.ask(0.0)
            assert ask is not None
            controller.take(ask.ticket.sequence, np.full((4, 1), value), 0.0)
        action = controller.step(0.0).action
        assert action is not None
        return float(action[0])

    assert made(0.0) == pytest.approx(0.5)
    assert made(0.01) == pytest.approx(np.exp(-0.01) / (1 + np.exp(-0.01)))
    assert made(-50.0) == pytest.approx(1.0)


def test_one_slow_reply_does_not_count_as_the_delay() -> None:
    assert delay_steps([]) == 1
    assert delay_steps([0]) == 1, "a chunk is never there in the step that asks for it"
    assert delay_steps([2]) == 2
    assert delay_steps([2, 2, 1000, 2]) == 2
    assert delay_steps([2, 6, 1000, 2]) == 6


def test_a_loop_that_is_late_counts_the_steps_that_it_took_and_not_the_time() -> None:
    """A chunk that takes 3 steps' time, in a loop that leaves out two steps of three: one action is executed meanwhile."""
    controller = Controller(ControlSettings(handover="rtc", execute=8), PolicyInfo(rate=RATE, horizon=HORIZON, max_prefix=8, marks=True))
    controller.begin(0.0)
    controller.online(0.0)
    prefixes = []
    coming: int | None = None
    for step in range(0, 120, 3):
        if coming is not None:
            assert controller.take(coming, np.zeros((HORIZON, 2)), step / RATE - 0.001).reason == ""
            coming = None
        ask = controller.ask(step / RATE)
        if ask is not None:
            coming = ask.ticket.sequence
            prefixes.append(ask.ticket.prefix)
        controller.step(step / RATE)
    assert len(prefixes) >= 4
    assert set(prefixes[1:]) == {1}


def borders(delays: list[int], handover: str = "rtc") -> list[int | None]:
    """At each step: the index, within its chunk, of an action that is a border."""
    drive = Drive(handover, delays)
    found: list[int | None] = []
    step = drive.controller.step

    def watched(now: float) -> Any:
        choice = step(now)
        plan = drive.controller._plans[-1] if drive.controller._plans else None
        found.append(int(choice.action[0]) - plan.ticket.base if choice.border and choice.action is not None and plan else None)
        return choice

    drive.controller.step = watched  # type: ignore[method-assign]
    drive.run(100)
    return found


def test_the_border_of_a_chunk_is_where_it_begins_to_decide_by_itself() -> None:
    assert {at for at in borders([4], "switch")[12:] if at is not None} == {4}, "what was executed meanwhile is the former chunk's"
    assert {at for at in borders([4])[12:] if at is not None} == {4}
    early = [at for at in borders([4, 4, 4, 2]) if at is not None]
    assert set(early[3:]) == {4}, "it came early, and begins with what it was told"
    late = [at for at in borders([2] * 9 + [5] + [2] * 9) if at is not None]
    assert late[9] == 5, "it came late: the former chunk went on beyond what it was told"


def test_a_chunk_of_an_observation_that_is_too_old_is_refused() -> None:
    for after, reason in ((0.7, ""), (5.0, "late")):
        controller = Controller(ControlSettings(reply_timeout_s=1.0), PolicyInfo(rate=RATE, horizon=HORIZON))
        controller.begin(0.0)
        controller.online(0.0)
        ask = controller.ask(0.0)
        assert ask is not None
        assert controller.take(ask.ticket.sequence, np.zeros((HORIZON, 2)), after).reason == reason
        assert (controller.step(after).mode is Mode.RUN) == (not reason)


def test_no_plan_no_prefix() -> None:
    plan = Plan(Ticket(sequence=1, epoch=1, base=0, asked_at=0.0), np.zeros((4, 2), np.float32), 0, 9.0)
    assert prefix_of(None, 0, 3, 8) is None
    assert prefix_of(plan, 4, 3, 8) is None
    rest = prefix_of(plan, 2, 3, 8)
    assert rest is not None
    assert len(rest) == 2


def test_bounds_clip_and_count() -> None:
    settings = ControlSettings(low=(-1.0, -1.0), high=(1.0, 0.5))
    controller = Controller(settings, PolicyInfo(rate=RATE, low=(-9.0,), high=(9.0,)))
    controller.begin(0.0)
    controller.online(0.0)
    ask = controller.ask(0.0)
    assert ask is not None
    assert controller.take(ask.ticket.sequence, np.array([[2.0, 0.75], [0.0, 0.25]]), 0.1).clipped == 2
    choice = controller.step(0.1)
    assert choice.mode is Mode.RUN
    assert choice.action is not None
    assert choice.action.tolist() == [1.0, 0.5]
    again = controller.ask(0.2)
    assert again is not None
    assert controller.take(again.ticket.sequence, np.zeros((2, 3)), 0.3).reason == "wrong_shape", "the action's dimension is known by now"


@given(strategies.sampled_from([np.float16, np.float32, np.float64, np.int32]))
def test_a_chunk_is_copied_and_made_float32(dtype: Any) -> None:
    said = np.ones((4, 2), dtype)
    chunk = check_chunk(said, 2)
    assert not isinstance(chunk, str)
    said[:] = 7
    assert chunk.dtype == np.float32
    assert (chunk == 1).all()


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in (
        {"handover": "hope"},
        {"rate": 0.0},
        {"rate": "fast"},
        {"hold_limit_s": float("nan")},
        {"reply_timeout_s": None},
        {"execute": 0},
        {"execute": 1.5},
        {"low": (float("nan"),)},
        {"low": 3},
        {"low": (1.0, 0.0), "high": (0.0, 0.0)},
        {"ensemble_decay": None},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ControlSettings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rate"):
        Controller(ControlSettings(), PolicyInfo())
