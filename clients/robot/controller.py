"""What is executed at each control step, and when a chunk is asked for. Without I/O; the time comes in.

Invariants (tests/clients/robot/test_controller_machine.py):
1. Each step gives a mode: an action of the policy (RUN), or the word to hold or to stop. No step is left out.
2. An action of the policy comes from a chunk that was asked for in the present epoch, is finite and within the bounds, belongs to the
   present count of executed actions, and its observation is not older than the chunk's life.
3. Without an action the robot holds; after the limit it is stopped, until the next episode.
4. At most one request is on its way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from .handover import action_of, delay_steps, is_due, prefix_of
from .plan import Action, Chunk, Plan, Ticket, check_chunk
from .policy import PolicyInfo
from .settings import ControlSettings
from .watchdog import Mode, Watchdog

DELAYS = 10
"""The latest ones, which say how long the next one may be; policy: the oldest is forgotten."""
DEFAULT_HORIZON = 16
"""Until a chunk has come, where the server does not say."""


FENCED = "fenced"
"""The status of a reply whose chunk a reset, another episode or the end of the session has overtaken."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask for a chunk with the observation of this step."""

    ticket: Ticket
    prefix: Chunk | None
    """`[d, A]`: the actions that will be executed meanwhile."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a control step executes. `action` is None unless the mode is RUN; `sequence` is the request's whose chunk it comes from.
    `border`: it is the first action that its chunk alone decided, neither executed from the one before nor promised to the policy."""

    mode: Mode
    action: Action | None = None
    sequence: int | None = None
    border: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a chunk: `reason` is "" when it was taken; `clipped` of its numbers were out of bounds."""

    reason: str = ""
    clipped: int = 0


class Controller:
    """See the module's docstring. `begin` comes first."""

    def __init__(self, settings: ControlSettings, policy: PolicyInfo) -> None:
        rate = settings.rate or policy.rate
        if rate is None:
            raise ValueError("The server does not say how often its actions are to be executed: set ControlSettings.rate.")
        self.rate = rate
        self.epoch = 0
        self.executed = 0
        self.connected = False
        self._settings = settings
        self._policy = policy
        self._action_dim = policy.action_dim
        self._horizon = policy.horizon or DEFAULT_HORIZON
        self._low, self._high = settings.low or policy.low, settings.high or policy.high
        self._watchdog = Watchdog(hold_limit_s=settings.hold_limit_s, startup_s=settings.startup_s)
        self._plans: deque[Plan] = deque(maxlen=settings.ensemble_chunks if settings.handover == "ensemble" else 1)
        self._ticket: Ticket | None = None
        self._sequence = 0
        self._steps = 0
        self._delays: deque[int] = deque(maxlen=DELAYS)

    @property
    def mode(self) -> Mode:
        """Of the last step."""
        return self._watchdog.mode

    @property
    def delay(self) -> int:
        """Control steps that a chunk takes to come, as measured."""
        return delay_steps(self._delays)

    @property
    def execute(self) -> int:
        """Actions of a chunk to be played before the next one takes over."""
        return min(self._settings.execute or max(1, self._horizon // 2), self._horizon)

    @property
    def life_s(self) -> float:
        """How old an observation may be whose action is executed."""
        return self._horizon / self.rate + self._settings.reply_timeout_s

    # ---- what happens -----------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """A new episode: nothing from before counts any more, and a stop is over."""
        self._fence()
        self._watchdog.begin(now)

    def online(self, now: float) -> None:
        """There is a connection: requests may be made."""
        self.connected = True

    def offline(self, now: float) -> None:
        """The connection is gone, and with it whatever was on its way."""
        self.connected = False
        self._ticket = None
        if not self._settings.finish_plan:
            self._fence()

    def fail(self, sequence: int, now: float, reason: str = "") -> None:
        """A request was answered without a chunk. `reason` "fenced": the server has moved on, and what it said before counts no more."""
        if self._ticket is not None and self._ticket.sequence == sequence:
            self._ticket = None
            if reason == FENCED:
                self._fence()

    def take(self, sequence: int, actions: object, now: float) -> Verdict:
        """The reply of request `sequence` came with these actions (`[H, A]`, unchecked)."""
        ticket = self._ticket
        if ticket is None or ticket.sequence != sequence or ticket.epoch != self.epoch:
            return Verdict("stale")
        self._ticket = None
        self._delays.append(self._steps - ticket.step)
        chunk = check_chunk(actions, self._action_dim)
        if isinstance(chunk, str):
            return Verdict(chunk)
        self._action_dim, self._horizon = chunk.shape[1], len(chunk)
        bounded = self._clip(chunk)
        if bounded is None:
            return Verdict("wrong_shape")
        first = self.executed - ticket.base
        until = ticket.asked_at + self.life_s
        if first >= len(chunk) or now > until:
            return Verdict("late")
        self._plans.append(Plan(ticket, bounded, first, until))
        return Verdict(clipped=int((bounded != chunk).sum()))

    # ---- what is to be done -----------------------------------------------------------------------------------------

    def ask(self, now: float) -> Ask | None:
        """Is a chunk to be asked for with this step's observation? To be asked before the step's action is chosen."""
        self._expire(now)
        settings = self._settings
        plan = self._plans[-1] if self._plans else None
        if not self.connected or self._ticket is not None or self.mode is Mode.STOP:
            return None
        if not is_due(settings.handover, plan, self.executed, self.execute, self.delay):
            return None
        prefix = None
        if settings.handover == "rtc":
            prefix = prefix_of(plan, self.executed, self.delay, self._policy.max_prefix)
        self._sequence += 1
        self._ticket = Ticket(
            sequence=self._sequence,
            epoch=self.epoch,
            base=self.executed,
            step=self._steps,
            asked_at=now,
            prefix=0 if prefix is None else len(prefix),
        )
        return Ask(self._ticket, prefix)

    def step(self, now: float) -> Choice:
        """One control step: what it executes."""
        self._steps += 1
        self._expire(now)
        settings = self._settings
        action = action_of(settings.handover, self._plans, self.executed, self.execute, settings.ensemble_decay)
        before, mode = self.mode, self._watchdog.step(action is not None, now)
        if mode is Mode.STOP and before is not Mode.STOP:
            self._fence()
        if mode is not Mode.RUN or action is None:
            return Choice(mode)
        newest = self._plans[-1]
        border = newest.decides(self.executed)
        self.executed += 1
        return Choice(mode, action.copy(), newest.ticket.sequence, border)

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _fence(self) -> None:
        self.epoch += 1
        self._plans.clear()
        self._ticket = None

    def _expire(self, now: float) -> None:
        while self._plans and now > self._plans[0].until:
            self._plans.popleft()

    def _clip(self, chunk: Chunk) -> Chunk | None:
        """Within the bounds; None: those are of another dimension."""
        if any(bound is not None and len(bound) != chunk.shape[1] for bound in (self._low, self._high)):
            return None
        low = -np.inf if self._low is None else np.asarray(self._low, np.float32)
        high = np.inf if self._high is None else np.asarray(self._high, np.float32)
        clipped: Chunk = np.clip(chunk, low, high).astype(np.float32)
        return clipped
