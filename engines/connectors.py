"""What lies between two stages of a pipeline: a bounded hand-over that may also reshape what passes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from .clauses import ClauseOptions, ClauseSplitter

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorHealth:
    """`depth` of `bound` (in the connector's own unit) is filled; `waits` counts the puts that had to wait."""

    depth: int
    bound: int
    puts: int
    waits: int


class Connector(Protocol[In, Out]):
    """Moves payloads from one stage to the next. One task puts, one task gets."""

    async def put(self, item: In) -> None:
        """Hand an item over; waits while the connector is full (back-pressure on the stage before)."""

    def finish(self) -> None:
        """Nothing more will be put."""

    async def get(self) -> Out | None:
        """The next item; None when everything has been taken and nothing more will come."""

    def cleanup(self) -> None:
        """Drop what is held and wake who waits: the pipeline has ended."""

    def health(self) -> ConnectorHealth: ...


class _Gate:
    """Shared by the connectors: wakes the other side, and remembers whether the end was announced or the pipeline torn down."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.finished = False
        self.closed = False
        self.puts = 0
        self.waits = 0

    def wake(self) -> None:
        self.changed.set()

    async def wait(self, limit: float | None = None) -> None:
        """Until the other side did something, at most `limit` seconds."""
        self.changed.clear()
        try:
            async with asyncio.timeout(limit):
                await self.changed.wait()
        except TimeoutError:
            return


class PlainConnector:
    """Items one by one, unchanged. Bound: `bound` items; policy: the stage before waits."""

    def __init__(self, bound: int = 256) -> None:
        self._bound = bound
        self._items: deque[Any] = deque()
        self._gate = _Gate()

    async def put(self, item: Any) -> None:
        self._gate.puts += 1
        while len(self._items) >= self._bound and not self._gate.closed:
            self._gate.waits += 1
            await self._gate.wait()
        if not self._gate.closed:
            self._items.append(item)
            self._gate.wake()

    def finish(self) -> None:
        self._gate.finished = True
        self._gate.wake()

    async def get(self) -> Any | None:
        while not self._items:
            if self._gate.finished or self._gate.closed:
                return None
            await self._gate.wait()
        item = self._items.popleft()
        self._gate.wake()
        return item

    def cleanup(self) -> None:
        self._gate.closed = True
        self._items.clear()
        self._gate.wake()

    def health(self) -> ConnectorHealth:
        return ConnectorHealth(depth=len(self._items), bound=self._bound, puts=self._gate.puts, waits=self._gate.waits)


class ClauseConnector:
    """Text from a chat stage in, pieces worth speaking out (see `clauses`).

    `ahead` tells how many seconds of audio are made but not yet due to be heard: the more, the longer the pieces. Bound: `bound`
    characters not yet taken; policy: the chat stage waits.
    """

    def __init__(self, ahead: Callable[[], float], options: ClauseOptions | None = None, bound: int = 32_768) -> None:
        self._splitter = ClauseSplitter(options)
        self._ahead = ahead
        self._bound = bound
        self._gate = _Gate()

    async def put(self, item: str) -> None:
        self._gate.puts += 1
        while self._splitter.pending >= self._bound and not self._gate.closed:
            self._gate.waits += 1
            await self._gate.wait()
        if not self._gate.closed:
            self._splitter.feed(item)
            self._gate.wake()

    def finish(self) -> None:
        self._gate.finished = True
        self._splitter.finish()
        self._gate.wake()

    async def get(self) -> str | None:
        while not self._gate.closed:
            ahead = self._ahead()
            piece = self._splitter.take(ahead)
            if piece is not None:
                self._gate.wake()
                return piece
            if self._splitter.exhausted:
                return None
            # Time alone can make a shorter piece good enough: look again when the audio in hand has shrunk by a fifth.
            await self._gate.wait(max(0.05, ahead / 5) if ahead > 0 else None)
        return None

    def cleanup(self) -> None:
        self._gate.closed = True
        self._gate.wake()

    def health(self) -> ConnectorHealth:
        return ConnectorHealth(depth=self._splitter.pending, bound=self._bound, puts=self._gate.puts, waits=self._gate.waits)
