"""Whether a caller is still there, judged by what was last heard from them: no I/O, the clock comes in."""

from __future__ import annotations

import enum


class Life(enum.Enum):
    """ALIVE; SUSPECT: nothing has come for a while, stop paying for more; DEAD: give the call up."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"


class Liveness:
    """Counts from the last sign of life. Times in seconds."""

    def __init__(self, suspect_after: float, close_after: float) -> None:
        self._suspect_after = min(suspect_after, close_after)
        self._close_after = close_after
        self.last = 0.0
        """When something authentic last came."""

    def state(self, now: float) -> Life:
        quiet = now - self.last
        if quiet >= self._close_after:
            return Life.DEAD
        return Life.SUSPECT if quiet >= self._suspect_after else Life.ALIVE

    def next_change(self, now: float) -> float:
        """When the state changes next if nothing comes; `now` when the caller is dead already."""
        match self.state(now):
            case Life.ALIVE:
                return self.last + self._suspect_after
            case Life.SUSPECT:
                return self.last + self._close_after
        return now
