"""The control loop's time."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that only grow."""

    def now(self) -> float:
        """The time."""

    async def sleep_until(self, when: float) -> None:
        """Return at `when`, or at once if that is past; other tasks get a turn in either case."""


class MonotonicClock:
    """The machine's."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep_until(self, when: float) -> None:
        await asyncio.sleep(max(0.0, when - time.monotonic()))
