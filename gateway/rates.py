"""Counts over a sliding window, on a clock that comes in as an argument."""

from __future__ import annotations

from collections import deque


class WindowCounter:
    """Counts what happened in the last `window` seconds, and says when there were more than `limit`."""

    def __init__(self, *, limit: int, window: float = 60.0) -> None:
        self._limit = limit
        self._window = window
        self._times: deque[float] = deque(maxlen=limit + 1)

    def exceeded(self, now: float) -> bool:
        """Note one more at `now` (seconds)."""
        self._times.append(now)
        return len(self._times) > self._limit and now - self._times[0] <= self._window
