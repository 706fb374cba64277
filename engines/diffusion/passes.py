"""How the rows of a step are split into forward passes of the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


def _nothing() -> None:
    """Nothing happens between two passes."""


@dataclass(frozen=True, slots=True)
class Passes:
    """A forward pass takes at most `limit` rows (0: all that there are). `between` is called between two of them, on the thread that
    computes; it may wait, so that realtime work gets the processor."""

    limit: int = 0
    between: Callable[[], None] = _nothing

    def split(self, rows: int) -> Iterator[slice]:
        """The passes' rows, in order and in nearly equal parts."""
        count = max(1, -(-rows // self.limit)) if self.limit > 0 else 1
        each = -(-rows // count)
        for start in range(0, rows, max(1, each)):
            if start:
                self.between()
            yield slice(start, min(rows, start + each))


ALL = Passes()
