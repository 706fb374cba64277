"""One clock of 20 ms for every call of a process, on absolute deadlines.

Calls are spread over five phases of 4 ms, so that their encoding does not fall together. A tick that comes late is served
late; ticks that were missed altogether are reported, not made up for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

PERIOD = 0.020
PHASES = 5

Tick = Callable[[float, int], None]
"""Called with the time (seconds, monotonic) and how many ticks before this one were missed."""


class Ticker:
    """`add` and `remove` members; runs only while there are any. All on the event loop."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        failed: Callable[[Exception], None] | None = None,
        ticked: Callable[[int], None] = lambda members: None,
    ) -> None:
        """`failed` is told of faults in members' ticks and in `ticked`, which is told of every slot before it is served, and of
        every member that leaves, with the number of members."""
        self._clock = clock
        self._ticked = ticked
        self._failed = failed
        self._phases: list[dict[int, Tick]] = [{} for _ in range(PHASES)]
        self._timer: asyncio.TimerHandle | None = None
        self._slot = 0
        """The slot whose turn is next, counted from the clock's zero: slot k is due at k * PERIOD / PHASES."""
        self._armed = 0
        """The slot that the timer waits for."""
        self._numbers = 0
        self.lateness = 0.0
        """Seconds: a moving average of how late ticks are."""
        self.worst = 0.0
        """The latest tick since this was last reset."""
        self.missed = 0

    def __len__(self) -> int:
        return sum(map(len, self._phases))

    def add(self, tick: Tick) -> int:
        """Call `tick` every 20 ms from now on; returns the number by which to remove it."""
        phase = min(range(PHASES), key=lambda index: len(self._phases[index]))
        self._numbers += 1
        number = self._numbers * PHASES + phase
        self._phases[phase][number] = tick
        if self._timer is None:
            self._slot = int(self._clock() / (PERIOD / PHASES)) + 1
        self._arm()
        return number

    def remove(self, number: int) -> None:
        """No more ticks for this member."""
        self._phases[number % PHASES].pop(number, None)
        self._ticked(len(self))
        if not len(self) and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Stop."""
        for phase in self._phases:
            phase.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        """One timer, for the next slot that has members."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for slot in range(self._slot, self._slot + PHASES):
            if self._phases[slot % PHASES]:
                self._armed = slot
                delay = max(0.0, slot * (PERIOD / PHASES) - self._clock())
                self._timer = asyncio.get_running_loop().call_later(delay, self._due)
                return

    def _due(self) -> None:
        """Serve every slot that is due, each once; what lies a whole period back was missed."""
        self._timer = None
        step = PERIOD / PHASES
        now = self._clock()
        last = int(now / step + 1e-6)
        late = max(0.0, now - self._armed * step)
        self.lateness += (late - self.lateness) / 64
        self.worst = max(self.worst, late)
        self.missed += max(0, (last - self._armed) // PHASES)
        self._guarded(self._ticked, len(self))
        for slot in range(max(self._slot, last + 1 - PHASES), last + 1):
            missed = (slot - self._slot) // PHASES
            for tick in list(self._phases[slot % PHASES].values()):
                self._guarded(tick, now, missed)
        self._slot = max(self._slot, last + 1)
        self._arm()

    def _guarded(self, call: Callable[..., None], *arguments: Any) -> None:
        """One call's fault must not stop the clock of all others."""
        try:
            call(*arguments)
        except Exception as error:
            if self._failed is None:
                raise
            self._failed(error)
