"""Every task has an owner who ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.websockets import WebSocketDisconnect


async def both_ways(reading: Coroutine[Any, Any, None], writing: Coroutine[Any, Any, None], *, name: str) -> None:
    """Read and write a WebSocket until one of the two ends; then the other is ended too. That the connection is gone is no error, whatever
    else one of them raises is raised."""
    tasks = (asyncio.create_task(reading, name=f"{name} reader"), asyncio.create_task(writing, name=f"{name} writer"))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError | OSError | WebSocketDisconnect):
            raise result


class TaskOwner:
    """The tasks of one session. A crash (anything but a cancellation) is handed to the task's `on_crash`, never swallowed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, coroutine: Coroutine[Any, Any, None], *, name: str, on_crash: Callable[[BaseException], None]) -> asyncio.Task[None]:
        """Run a coroutine until it ends or the owner closes."""
        if self._closed:
            coroutine.close()
            raise RuntimeError(f"the owner of task {name!r} is closed")
        task = asyncio.create_task(coroutine, name=name)
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                on_crash(error)

        task.add_done_callback(ended)
        return task

    async def close(self, timeout: float) -> int:
        """Cancel everything and wait at most `timeout` seconds. Returns how many tasks would not end in time."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if not tasks:
            return 0
        _, stuck = await asyncio.wait(tasks, timeout=timeout)
        return len(stuck)
