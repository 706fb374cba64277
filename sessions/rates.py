"""A token bucket on the session's clock."""

from __future__ import annotations


class TokenBucket:
    """At most `capacity` at once, refilled evenly over `period` seconds."""

    def __init__(self, capacity: float, period: float) -> None:
        self._capacity = float(capacity)
        self._per_second = capacity / period
        self._level = float(capacity)
        self._at: float | None = None

    def take(self, now: float, amount: float = 1.0) -> bool:
        """Take `amount` if there is enough."""
        self._refill(now)
        if self._level < amount:
            return False
        self._level -= amount
        return True

    def borrow(self, now: float, amount: float) -> float:
        """Take `amount` whether it is there or not. Gives the seconds until the bucket is out of debt: 0, if it was there."""
        self._refill(now)
        self._level -= amount
        return max(0.0, -self._level / self._per_second)

    def remaining(self, now: float) -> int:
        """Whole tokens left."""
        self._refill(now)
        return int(self._level)

    def refill_s(self, now: float) -> float:
        """Seconds until the bucket is full again."""
        self._refill(now)
        return round((self._capacity - self._level) / self._per_second, 3)

    def _refill(self, now: float) -> None:
        if self._at is not None:
            self._level = min(self._capacity, self._level + max(0.0, now - self._at) * self._per_second)
        self._at = now
