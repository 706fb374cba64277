"""How fast one tenant may submit. How many unfinished jobs it may have is counted in the database, where all servers see it."""

from __future__ import annotations

from collections import OrderedDict, deque

from .errors import JobLimitError

WINDOW = 60.0
"""Seconds."""
TENANTS = 10_000
"""Tenants that are remembered; beyond, the one that was silent longest is forgotten."""


class SubmitLimit:
    """At most `per_minute` submissions of a tenant in any minute, counted in this process. Pure: the clock comes in as an argument."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._submitted: OrderedDict[str, deque[float]] = OrderedDict()

    def require(self, tenant: str, now: float, count: int = 1) -> None:
        """Note `count` submissions at `now` (seconds, any steady clock), or note nothing and raise `JobLimitError`."""
        times = self._submitted.setdefault(tenant, deque())
        self._submitted.move_to_end(tenant)
        while len(self._submitted) > TENANTS:
            self._submitted.popitem(last=False)
        while times and times[0] <= now - WINDOW:
            times.popleft()
        if len(times) + count > self._per_minute:
            oldest = times[min(len(times), len(times) + count - self._per_minute) - 1] if times else now
            message = f"This key may submit {self._per_minute} jobs a minute, and has. Try again in a moment."
            raise JobLimitError(message, retry_after=max(1.0, oldest + WINDOW - now))
        times.extend([now] * count)
