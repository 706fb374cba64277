"""A request inside the step engine, and the queue between it and its reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from ..errors import EngineError
from ..interface import WorkClass
from ..messages import DiffusionStep, EngineChunk, GenerateBody
from .scheduling import Entry
from .step_model import Sample

UNREAD_STEPS = 32
"""Bound of a request's unread progress; policy: the oldest is dropped, since the newest says it all. The engine waits for no reader."""
SIGN_S = 5.0
"""A request that waits says so (its present step once more) after so long without news."""


class Outbox:
    """What the engine has for one reader."""

    def __init__(self) -> None:
        self._steps: deque[DiffusionStep] = deque(maxlen=UNREAD_STEPS)
        self._results: Iterator[EngineChunk] | None = None
        self._failure: EngineError | None = None
        self._changed = asyncio.Event()

    def step(self, chunk: DiffusionStep) -> None:
        self._steps.append(chunk)
        self._changed.set()

    def finish(self, results: Iterator[EngineChunk]) -> None:
        """The last chunks; they are made as they are read."""
        self._results = results
        self._changed.set()

    def fail(self, failure: EngineError) -> None:
        if self._results is None:
            self._failure = failure
            self._changed.set()

    async def read(self, sign: Callable[[], DiffusionStep | None]) -> AsyncIterator[EngineChunk]:
        """Everything, to the end; `sign` gives what is said while there is no news. Raises the failure."""
        while True:
            while self._steps:
                yield self._steps.popleft()
            if self._results is not None:
                for chunk in self._results:
                    yield chunk
                return
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            try:
                async with asyncio.timeout(SIGN_S):
                    await self._changed.wait()
            except TimeoutError:
                if (news := sign()) is not None:
                    yield news


@dataclass(eq=False, slots=True, kw_only=True)
class Running:
    """A request in the engine, from its arrival until its reader leaves. `entry` and `sample` are there once it is prepared."""

    body: GenerateBody
    work_class: WorkClass
    arrived: float
    deadline: float | None
    outbox: Outbox = field(default_factory=Outbox)
    entry: Entry | None = None
    sample: Sample | None = None

    def progress(self, steps: int) -> DiffusionStep:
        """Where it stands; `steps` for one that is not prepared yet."""
        if self.sample is None:
            return DiffusionStep(step=0, steps=self.body.steps or steps)
        return DiffusionStep(step=self.sample.step, steps=self.sample.steps)
