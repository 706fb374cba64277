"""A lane: one worker thread with an ordered, bounded waiting room. Engines that compute in bursts do it on a lane."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from .cpu import worker
from .errors import EngineBusyError, EngineTimeoutError, EngineUnavailableError

T = TypeVar("T")

CLOSE_TIMEOUT_S = 5.0


class Lane:
    """Runs one function at a time on a thread of its own; who waits is served by priority, then in order of arrival.

    Bound: `waiting_limit` waiting calls; policy: one more is refused with `EngineBusyError`. A call that is cancelled while
    it waits never runs; one that is cancelled while it runs is let finish (threads cannot be stopped), its result is
    dropped, and the lane stays taken until then.
    """

    def __init__(self, name: str, waiting_limit: int = 64) -> None:
        self.name = name
        self.last_step: float | None = None
        """When a call last finished, on `time.monotonic`."""
        self._limit = waiting_limit
        self._executor = worker(name)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._busy = False
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        return int(self._busy)

    @property
    def waiting(self) -> int:
        return sum(not turn.done() for _, _, turn in self._waiting)

    async def run(self, function: Callable[..., T], *args: Any, priority: int = 0, deadline: float | None = None) -> T:
        """Call `function(*args)` on the lane's thread. Smaller priorities go first.

        `deadline` (on `time.monotonic`) bounds the wait for the thread, not the call. Raises `EngineBusyError`,
        `EngineTimeoutError`, `EngineUnavailableError`, and whatever the function raises.
        """
        await self._take_turn(priority, deadline)
        loop = asyncio.get_running_loop()
        try:
            future = self._executor.submit(function, *args)
        except RuntimeError as error:
            self._pass_on()
            raise EngineUnavailableError(f"{self.name} is closed") from error
        future.add_done_callback(lambda done: self._done(loop, done))
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Refuse who waits, let the running call finish (for at most `CLOSE_TIMEOUT_S`), end the thread."""
        self._closed = True
        for _, _, turn in self._waiting:
            if not turn.done():
                turn.set_exception(EngineUnavailableError(f"{self.name} is closing"))
        self._waiting.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), CLOSE_TIMEOUT_S)

    async def _take_turn(self, priority: int, deadline: float | None) -> None:
        if self._closed:
            raise EngineUnavailableError(f"{self.name} is closed")
        if not self._busy:
            self._busy = True
            self._idle.clear()
            return
        if self.waiting >= self._limit:
            raise EngineBusyError(f"{self.name} has {self._limit} calls waiting already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), turn))
        try:
            await asyncio.wait_for(asyncio.shield(turn), None if deadline is None else deadline - time.monotonic())
        except TimeoutError as error:
            self._leave(turn)
            raise EngineTimeoutError(f"{self.name} was not free before the deadline") from error
        except asyncio.CancelledError:
            self._leave(turn)
            raise

    def _leave(self, turn: asyncio.Future[None]) -> None:
        """Give up waiting; if the turn had just been granted, pass it on."""
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            self._pass_on()
        else:
            turn.cancel()

    def _done(self, loop: asyncio.AbstractEventLoop, _: Future[Any]) -> None:
        self.last_step = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
        self._idle.set()
