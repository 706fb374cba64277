"""Stepping aside for realtime work: waits at step boundaries and smaller steps, bounded and counted."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

_LOOK_S = 0.002


class Gate(Protocol):
    """What `engines.gate.GateReader` is to an engine."""

    def busy(self) -> bool: ...

    def live(self, within_s: float) -> bool: ...


class Holding:
    """When may the next step start, and how many rows may it have?

    A step (and each further forward pass of a step that has several) waits while realtime work is being computed, but no longer than
    `hold_s` after the last one ended, so that batch work always goes on at that rate at least. The older the oldest request, the shorter
    the wait: half of it at the age of `ageing_s`, a third at twice that. While there was realtime work within the last `live_s`, a step
    has at most `live_rows` rows.
    """

    def __init__(self, gate: Gate | None, *, hold_s: float, live_rows: int, live_s: float, ageing_s: float) -> None:
        self._gate = gate
        self._hold_s = hold_s
        self._live_rows = live_rows
        self._live_s = live_s
        self._ageing_s = ageing_s
        self._limit = 0.0
        self._last = 0.0
        self.held = 0
        """Times that a step or a forward pass waited."""
        self.held_seconds = 0.0
        self.capped = 0
        """Steps that had fewer rows because realtime work was live."""

    def ended(self, now: float) -> None:
        """A step has ended, or work has just arrived at an idle engine."""
        self._last = now

    def live(self) -> bool:
        return self._gate is not None and self._gate.live(self._live_s)

    def cap(self, rows: int) -> int:
        """`rows`, or fewer while realtime work is live."""
        return min(rows, self._live_rows) if self._live_rows > 0 and self.live() else rows

    async def wait(self, oldest_s: float) -> None:
        """Before a step, on the event loop; `oldest_s` is the age of the oldest request."""
        self._limit = self._hold_s / (1.0 + oldest_s / self._ageing_s)
        if not self._must_wait():
            return
        began = time.monotonic()
        while self._must_wait():  # noqa: ASYNC110 - another process's memory cannot wake anybody
            await asyncio.sleep(_LOOK_S)
        self._count(began)

    def wait_here(self) -> None:
        """Between two forward passes of a step, on the computing thread."""
        self._last = time.monotonic()
        if not self._must_wait():
            return
        began = time.monotonic()
        while self._must_wait():
            time.sleep(_LOOK_S)
        self._count(began)

    def _must_wait(self) -> bool:
        return self._gate is not None and time.monotonic() - self._last < self._limit and self._gate.busy()

    def _count(self, began: float) -> None:
        self.held += 1
        self.held_seconds += time.monotonic() - began
