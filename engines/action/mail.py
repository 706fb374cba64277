"""From the compute thread to the event loop: what is posted while the loop is busy arrives all at once, for one wake-up."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from ..errors import EngineError


class Mail:
    """Settles futures of the loop that they belong to. `post` from any thread.

    Bound: what was posted since the loop last had a turn; each future is settled a constant number of times by its work.
    """

    def __init__(self) -> None:
        self._letters: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._called: asyncio.AbstractEventLoop | None = None
        """The loop that has been called and has not come yet."""

    def post(self, future: asyncio.Future[Any], outcome: Any) -> None:
        """Give a future its result, or an `EngineError`, unless it is done by then. Who waited on a loop that is closed waits no more."""
        self._letters.append((future, outcome))
        loop = future.get_loop()
        if self._called is loop:
            return
        self._called = loop
        try:
            loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # it is closed
            self._called = None
            self._letters.clear()

    def _deliver(self) -> None:
        self._called = None  # first: what is posted from here on calls again, at worst for nothing
        while self._letters:
            future, outcome = self._letters.popleft()
            if future.done():
                continue
            if isinstance(outcome, EngineError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
