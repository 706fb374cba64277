"""The waiting room of something that only one can use at a time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time

from ...errors import EngineBusyError, EngineError, EngineTimeoutError, EngineUnavailableError


class WaitingRoom:
    """Whose turn it is: the most urgent class of work first, then in order of arrival. Used from one event loop.

    Bound: `limit` waiting; policy: one more is refused with `EngineBusyError`.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._line: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._closed = False
        self.taken = False

    @property
    def waiting(self) -> int:
        return sum(not turn.done() for _, _, turn in self._line)

    async def take(self, priority: int, deadline: float | None) -> None:
        """Wait for the turn, at most until `deadline` on `time.monotonic`; the smaller priority goes first.

        Who has the turn must `give` it back once. Raises `EngineBusyError`, `EngineTimeoutError`, `EngineUnavailableError`.
        """
        if self._closed:
            raise EngineUnavailableError(f"{self._name} is closed")
        if not self.taken:
            self.taken = True
            return
        if self.waiting >= self._limit:
            raise EngineBusyError(f"{self._name} has {self._limit} requests waiting already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._line, (priority, next(self._order), turn))
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic())):
                await asyncio.shield(turn)
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give()  # it was granted this very moment
            turn.cancel()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise EngineTimeoutError(f"{self._name} was not free before the deadline") from error

    def give(self) -> None:
        """Give the turn back: the next in line has it at once."""
        while self._line:
            turn = heapq.heappop(self._line)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self.taken = False

    def close(self, error: EngineError) -> None:
        """Tell everyone who waits, and refuse who comes. Who has the turn keeps it."""
        self._closed = True
        for _, _, turn in self._line:
            if not turn.done():
                turn.set_exception(error)
        self._line.clear()
