"""What a control loop has done so far, in figures."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np

from .controller import Choice, Verdict
from .plan import Action
from .watchdog import Mode

COUNTS = (
    "steps",
    "executed",
    "held",
    "stopped",
    "missed",
    "stalls",
    "episodes",
    "requests",
    "chunks",
    "clipped",
    "timeouts",
    "connections",
)
KEPT = 20_000
"""Values of each kind that are kept for the percentiles; policy: the oldest are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Of some values: how many, and how they lie. 0 where there are none."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    most: float = 0.0

    @classmethod
    def of(cls, values: deque[float]) -> Spread:
        """Of the values themselves."""
        if not values:
            return cls()
        p50, p95, p99, most = (float(one) for one in np.quantile(values, (0.5, 0.95, 0.99, 1.0)))
        return cls(count=len(values), p50=p50, p95=p95, p99=p99, most=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Figures since the client was made. `steps` = `executed` + `held` + `stopped`; `missed` ones were never begun, as the loop was late
    by whole steps."""

    steps: int
    executed: int
    held: int
    stopped: int
    missed: int
    stalls: int
    """How often the robot began to hold while an episode ran."""
    episodes: int
    requests: int
    chunks: int
    """Those that could be executed."""
    refused: dict[str, int]
    """Replies that could not, by reason: late, stale, not_finite, ..., or the server's word: superseded, fenced, failed ..."""
    clipped: int
    """Numbers of actions that were out of bounds."""
    timeouts: int
    connections: int
    """Opened; one more than there were reconnections."""
    round_trip_s: Spread
    lateness_s: Spread
    """How late the steps began: the jitter."""
    work_s: Spread
    """How long a step took the robot and us: beyond 1 / rate, steps are missed."""
    border_jumps: Spread
    """Where a chunk begins to decide by itself (after what it was told to continue), the largest change of an action's number from
    what was executed before (holding included); not at an episode's first chunk."""
    last_error: str


@dataclass(slots=True, eq=False)
class Tally:
    """Counts. `jump_dims`: see `ControlSettings`."""

    jump_dims: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    last_error: str = ""
    _round_trips: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    _lateness: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    _work: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    _jumps: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    _last: Action | None = None
    _running: bool = False
    _begun: bool = False
    """Has the episode had a chunk?"""

    def step(self, choice: Choice, action: Action, lateness_s: float, work_s: float) -> None:
        """A control step was taken, and executed `action`."""
        self.counts["steps"] += 1
        self.counts[{Mode.RUN: "executed", Mode.HOLD: "held", Mode.STOP: "stopped"}[choice.mode]] += 1
        self._lateness.append(lateness_s)
        self._work.append(work_s)
        running, self._running = self._running, choice.action is not None
        last, self._last = self._last, action
        if not self._running:
            self.counts["stalls"] += running
        elif choice.border:
            if self._begun and last is not None:
                self._jumps.append(float(np.abs(action - last)[: self.jump_dims].max()))
            self._begun = True

    def episode(self) -> None:
        """Another episode begins: what comes now is no jump."""
        self.counts["episodes"] += 1
        self._running, self._last, self._begun = False, None, False

    def reply(self, verdict: Verdict, round_trip_s: float) -> None:
        """A reply came, and this became of it."""
        self._round_trips.append(round_trip_s)
        if verdict.reason:
            self.refused[verdict.reason] += 1
        else:
            self.counts["chunks"] += 1
            self.counts["clipped"] += verdict.clipped

    def snapshot(self) -> Statistics:
        """The figures as they stand."""
        return Statistics(
            **{name: self.counts[name] for name in COUNTS},
            refused=dict(self.refused),
            round_trip_s=Spread.of(self._round_trips),
            lateness_s=Spread.of(self._lateness),
            work_s=Spread.of(self._work),
            border_jumps=Spread.of(self._jumps),
            last_error=self.last_error,
        )
