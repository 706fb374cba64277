"""One request on its way: what every runner gives back for one, and the run on a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ...errors import EngineTimeoutError, EngineUnavailableError
from ...interface import EngineHealth, MediaCapabilities
from ...messages import DiffusionStep, EngineChunk, Generated, Raster
from ..rasters import chunks as raster_chunks
from ..step_model import Frames
from .arguments import Plan
from .steps import Stopped

SIGN_OF_LIFE_S = 10.0
"""A step that takes long is told again so often, so that whoever watches the stream does not take it for dead."""


class Run(Protocol):
    """A request being computed."""

    def chunks(self) -> AsyncGenerator[EngineChunk, None]:
        """Everything that the request's stream gives. Raises `EngineError`."""

    async def stop(self, ended: Callable[[], None]) -> None:
        """End the run, at its next step if it still computes, and wait for that. `ended` is called once, when the next run may begin, also
        when the wait is cancelled before."""


class Runner(Protocol):
    """Runs one request at a time."""

    async def open(self) -> MediaCapabilities:
        """Get ready, and say what can be made. Raises `EngineError`."""

    def start(self, plan: Plan) -> Run:
        """Begin a request; the one before has ended. Raises `EngineError`."""

    async def health(self) -> EngineHealth: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Result:
    """What a run made, and in how many steps."""

    frames: Frames
    steps: int


Compute = Callable[["ThreadRun"], Result]


class ThreadRun:
    """A run on the runner's thread. The thread calls `report` after each step and looks at `stopping`."""

    def __init__(self, plan: Plan, compute: Compute, executor: Executor, step_s: float) -> None:
        self.plan = plan
        self.stopping = threading.Event()
        self.began = time.monotonic()
        self.last_step: float | None = None
        self._step_s = step_s
        self._loop = asyncio.get_running_loop()
        # Bound: the steps of the request; policy: only the newest preview is kept.
        self._unread: deque[DiffusionStep] = deque()
        self._latest = DiffusionStep(step=0, steps=plan.steps)
        self._changed = asyncio.Event()
        self._future: Future[Result] = executor.submit(compute, self)
        self._future.add_done_callback(lambda _: self._tell(self._changed.set))

    # ---- the thread's side ------------------------------------------------------------------------------------------

    def report(self, step: int, steps: int, preview: Raster | None) -> None:
        """`step` of `steps` are done."""
        self.last_step = time.monotonic()
        self._tell(self._put, DiffusionStep(step=step, steps=steps, preview=preview))

    def check(self) -> None:
        """Raises `Stopped` when the request was closed."""
        if self.stopping.is_set():
            raise Stopped

    def _tell(self, function: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed: nobody listens any more
            self.stopping.set()

    # ---- the loop's side --------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        return self._future.done()

    @property
    def overdue(self) -> bool:
        """Has its present step taken longer than a step may?"""
        return not self.done and time.monotonic() - (self.last_step or self.began) > self._step_s

    def _put(self, step: DiffusionStep) -> None:
        if step.preview is not None:
            for index, unread in enumerate(self._unread):
                self._unread[index] = msgspec.structs.replace(unread, preview=None)
        self._unread.append(step)
        self._latest = msgspec.structs.replace(step, preview=None)
        self._changed.set()

    async def chunks(self) -> AsyncGenerator[EngineChunk, None]:
        """The steps as they are done, then the frames. Raises `EngineTimeoutError` for a step that does not end, and the run's errors."""
        while True:
            while self._unread:
                yield self._unread.popleft()
            if self._future.done():
                break
            self._changed.clear()
            try:
                async with asyncio.timeout(SIGN_OF_LIFE_S):
                    await self._changed.wait()
            except TimeoutError:
                if self.overdue:
                    raise EngineTimeoutError(f"a step has taken more than {self._step_s:.0f} s") from None
                yield self._latest
        try:
            result = self._future.result()
        except Stopped:
            raise EngineUnavailableError("the engine is closing") from None
        for chunk in raster_chunks(result.frames):
            yield chunk
        yield Generated(seed=self.plan.body.seed, steps=result.steps, frames=len(result.frames), fps=self.plan.fps)

    async def stop(self, ended: Callable[[], None]) -> None:
        """See `Run.stop`."""
        self.stopping.set()
        self._future.add_done_callback(lambda _: self._tell(ended))
        while not self._future.done():
            self._changed.clear()
            await self._changed.wait()
