"""The runner of pipelines that call nobody between their steps: they run in a process of their own, which is killed to stop a run.

What is lost is the time to load the pipeline again; the next run waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import asdict, replace

from ...errors import EngineError, EngineUnavailableError
from ...interface import EngineHealth, EngineRequest, MediaCapabilities
from ...launchers import SubprocessEngine
from ...messages import EngineChunk
from .arguments import Plan
from .options import DiffusersOptions

log = logging.getLogger(__name__)


class ApartRunner:
    """A process with the pipeline in it."""

    def __init__(self, name: str, options: DiffusersOptions) -> None:
        self._name = name
        self._child = SubprocessEngine("diffusers", name, asdict(replace(options, expendable=True)))
        self._reopening: asyncio.Task[None] | None = None
        self._failure = ""
        self.kills = 0

    @property
    def pid(self) -> int | None:
        """The number of the process."""
        return self._child.pid

    async def open(self) -> MediaCapabilities:
        """Start the process and load the pipeline there. Raises `EngineError`."""
        await self._child.open()
        return self._child.capabilities.media or MediaCapabilities()

    def start(self, plan: Plan) -> ApartRun:
        """Begin a request. Raises `EngineUnavailableError` when the process could not be started again."""
        if self._failure:
            raise EngineUnavailableError(f"the process of {self._name} could not be started again: {self._failure}")
        return ApartRun(self, self._child, plan)

    async def health(self) -> EngineHealth:
        """The other process's word; while it is being started again, that it is."""
        if self._reopening is not None and not self._reopening.done():
            return EngineHealth(ok=True, detail="the pipeline is being loaded again after a run was stopped", extra=self._extra())
        if self._failure:
            return EngineHealth(ok=False, detail=self._failure, extra=self._extra())
        health = await self._child.health()
        return replace(health, extra={**health.extra, **self._extra()})

    def _extra(self) -> dict[str, float]:
        return {"kills": float(self.kills)}

    async def close(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reopening
        await self._child.close()

    def kill(self) -> None:
        """Kill the process at once, and begin to start another."""
        self.kills += 1
        if (pid := self.pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._reopening = asyncio.create_task(self._reopen(), name=f"reopen {self._name}")

    async def _reopen(self) -> None:
        try:
            await self._child.close()
            await self._child.open()
        except EngineError as error:
            self._failure = str(error)
            log.error("the process of %s could not be started again: %s", self._name, error)

    def when_ready(self, ended: Callable[[], None]) -> None:
        """Call `ended` when the next run may begin: now, or when the new process has loaded the pipeline."""
        if self._reopening is None or self._reopening.done():
            ended()
        else:
            self._reopening.add_done_callback(lambda _: ended())


class ApartRun:
    """A run in the other process."""

    def __init__(self, runner: ApartRunner, child: SubprocessEngine, plan: Plan) -> None:
        self._runner = runner
        self._child = child
        self._request = EngineRequest(request_id="apart", body=plan.body)
        self._over = False

    async def chunks(self) -> AsyncGenerator[EngineChunk, None]:
        """The other process's chunks, as they are. Raises `EngineError`."""
        # Read by a task of its own: a cancellation must come to the kill first, not to the polite abort of the stream, which waits in vain.
        # Bound: 4 chunks; policy: the reading waits.
        unread: asyncio.Queue[EngineChunk | EngineError | None] = asyncio.Queue(4)
        reading = asyncio.create_task(self._read(unread), name="read apart")
        try:
            while (chunk := await unread.get()) is not None:
                if isinstance(chunk, EngineError):
                    raise chunk
                yield chunk
        finally:
            self._end()
            reading.cancel()
            await asyncio.wait({reading})

    async def _read(self, unread: asyncio.Queue[EngineChunk | EngineError | None]) -> None:
        try:
            async with aclosing(self._child.stream(self._request)) as chunks:
                async for chunk in chunks:
                    await unread.put(chunk)
        except EngineError as error:
            self._over = not isinstance(error, EngineUnavailableError)  # that is: the process has died, and another must be started
            await unread.put(error)
        else:
            self._over = True
            await unread.put(None)

    def _end(self) -> None:
        """Kill the process unless the run is over."""
        if not self._over:
            self._over = True
            self._runner.kill()

    async def stop(self, ended: Callable[[], None]) -> None:
        """See `Run.stop`. Does not wait for the next process: this run's is gone."""
        self._end()
        self._runner.when_ready(ended)
