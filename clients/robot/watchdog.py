"""No action: the robot holds; for too long: it is stopped, and stays so until its owner begins another episode."""

from __future__ import annotations

import enum


class Mode(enum.StrEnum):
    """What a control step executes."""

    RUN = "run"
    """An action of the policy."""
    HOLD = "hold"
    """The owner's hold action: there is none of the policy."""
    STOP = "stop"
    """The owner's stop action."""


class Watchdog:
    """A state machine over control steps. `STOP` is left by `begin` only."""

    def __init__(self, *, hold_limit_s: float, startup_s: float) -> None:
        self.mode = Mode.HOLD
        self._hold_limit = hold_limit_s
        self._startup = startup_s
        self._limit = startup_s
        self._since = 0.0

    def begin(self, now: float) -> None:
        """An episode begins: until its first action, the longer limit holds."""
        self.mode, self._since, self._limit = Mode.HOLD, now, self._startup

    def step(self, has_action: bool, now: float) -> Mode:
        """A control step; `has_action`: the policy has one for it."""
        if self.mode is Mode.STOP:
            return self.mode
        if has_action:
            self.mode, self._since, self._limit = Mode.RUN, now, self._hold_limit
        else:
            self.mode = Mode.STOP if now - self._since > self._limit else Mode.HOLD
        return self.mode
