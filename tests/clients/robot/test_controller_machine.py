"""Whatever happens in whatever order: nothing stale, late or non-finite is executed, no step is left out, and without actions the robot
holds and is then stopped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from antiphon.clients.robot import Controller, ControlSettings, Mode, PolicyInfo
from antiphon.clients.robot.controller import Ask
from antiphon.clients.robot.settings import HANDOVERS
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

HORIZON, RATE = 6, 10.0
HOLD_LIMIT, STARTUP, REPLY = 0.5, 3.0, 0.8


def chunk(sequence: int, length: int = HORIZON) -> Any:
    """Each action says which chunk it is of, and where in it."""
    return np.stack([np.full(length, sequence), np.arange(length)], axis=1).astype(np.float32)


class Robot(RuleBasedStateMachine):
    """Knows by itself what may be executed, from what it saw go in and out."""

    @initialize(
        handover=strategies.sampled_from(HANDOVERS),
        finish_plan=strategies.booleans(),
        execute=strategies.sampled_from((None, 1, 4, 50)),
        max_prefix=strategies.sampled_from((0, 2, 6)),
    )
    def start(self, handover: Any, finish_plan: bool, execute: int | None, max_prefix: int) -> None:
        self.handover, self.finish_plan = handover, finish_plan
        self.controller = Controller(
            ControlSettings(
                handover=handover,
                finish_plan=finish_plan,
                execute=execute,
                hold_limit_s=HOLD_LIMIT,
                startup_s=STARTUP,
                reply_timeout_s=REPLY,
            ),
            PolicyInfo(rate=RATE, horizon=HORIZON, action_dim=2, max_prefix=max_prefix, marks=True),
        )
        self.now = 100.0
        self.era = 0
        """Counts what makes everything before it stale."""
        self.asks: dict[int, tuple[Ask, int]] = {}
        self.waiting: int | None = None
        self.good: set[int] = set()
        self.executed = 0
        self.since, self.limit, self.stopped = self.now, STARTUP, False
        self.controller.begin(self.now)
        self.controller.online(self.now)
        self.online = True

    @rule(times=strategies.integers(1, 4))
    def ticks(self, times: int) -> None:
        """The loop as it should be."""
        for _ in range(times):
            self.tick(0.1)

    @precondition(lambda self: self.waiting is not None)
    @rule()
    def good_reply(self) -> None:
        self.reply(0.0, 0, "good")

    @rule(after=strategies.sampled_from((0.0, 0.35, 0.9, 1.5, 2.0)))
    def tick_after(self, after: float) -> None:
        self.tick(after)

    def tick(self, after: float) -> None:
        self.now += after
        ask = self.controller.ask(self.now)
        if ask is not None:
            assert self.online
            assert self.waiting is None, "two requests at once"
            assert not self.stopped
            self.waiting = ask.ticket.sequence
            assert self.waiting not in self.asks
            self.asks[self.waiting] = (ask, self.era)
            assert ask.ticket.base == self.executed
        choice = self.controller.step(self.now)
        assert (choice.mode is Mode.RUN) == (choice.action is not None)
        if choice.action is not None:
            assert not self.stopped
            self.may_execute(choice.action)
            self.executed += 1
            self.since, self.limit = self.now, HOLD_LIMIT
        elif self.stopped or self.now - self.since > self.limit:
            assert choice.mode is Mode.STOP
            if not self.stopped:
                self.forget()
            self.stopped = True
        else:
            assert choice.mode is Mode.HOLD
        assert self.controller.executed == self.executed

    def may_execute(self, action: Any) -> None:
        assert np.isfinite(action).all()
        if self.handover == "ensemble":  # a mean of chunks: it must lie within those that may count now
            fresh = [s for s in self.good if self.asks[s][1] == self.era and self.now - self.asks[s][0].ticket.asked_at <= 2 * REPLY]
            assert fresh
            assert min(fresh) - 0.01 <= action[0] <= max(fresh) + 0.01
            return
        sequence, index = int(action[0]), int(action[1])
        ask, era = self.asks[sequence]
        assert sequence in self.good
        assert era == self.era, "stale"
        assert ask.ticket.base + index == self.executed, "out of line"
        assert self.now - ask.ticket.asked_at <= HORIZON / RATE + REPLY + 1e-9, "late"

    @precondition(lambda self: self.asks)
    @rule(  # an answer out of order, out of time, out of shape
        after=strategies.sampled_from((0.0, 0.05, 0.3, 3.0)),
        which=strategies.integers(0, 3),
        kind=strategies.sampled_from(("good", "good", "nan", "inf", "huge", "flat", "wide", "text", "none", "empty", "short")),
    )
    def any_reply(self, after: float, which: int, kind: str) -> None:
        self.reply(after, which, kind)

    def reply(self, after: float, which: int, kind: str) -> None:
        self.now += after
        sequence = max(self.asks) - which
        if sequence not in self.asks:
            return
        actions = self.spoilt(chunk(sequence), kind)
        verdict = self.controller.take(sequence, actions, self.now)
        if sequence != self.waiting:
            assert verdict.reason == "stale"
            return
        self.waiting = None
        if not verdict.reason:
            assert kind in ("good", "short")
            assert self.asks[sequence][1] == self.era
            self.good.add(sequence)

    def spoilt(self, actions: Any, kind: str) -> Any:
        match kind:
            case "nan" | "inf":
                actions[-1, 0] = math.nan if kind == "nan" else -math.inf
            case "huge":
                actions = actions.astype(np.float64) * 1e300
                actions[:, 1] = 1e300
            case "flat":
                return actions[0]
            case "wide":
                return np.hstack([actions, actions])
            case "text" | "none":
                return "actions" if kind == "text" else None
            case "empty":
                return actions[:0]
            case "short":
                return chunk(int(actions[0, 0]), 6)
        return actions

    @precondition(lambda self: self.waiting is not None)
    @rule()
    def no_chunk(self) -> None:
        self.controller.fail(self.waiting or 0, self.now)
        self.waiting = None

    @rule()
    def episode(self) -> None:
        self.controller.begin(self.now)
        self.forget()
        self.since, self.limit, self.stopped = self.now, STARTUP, False

    @rule()
    def lose(self) -> None:
        self.controller.offline(self.now)
        self.online, self.waiting = False, None
        if not self.finish_plan:
            self.forget()

    @rule()
    def return_(self) -> None:
        self.controller.online(self.now)
        self.online = True

    def forget(self) -> None:
        self.era += 1
        self.waiting = None

    @invariant()
    def is_latched(self) -> None:
        assert (self.controller.mode is Mode.STOP) == self.stopped


TestRobot = Robot.TestCase
TestRobot.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
