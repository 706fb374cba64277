"""Any diffusers pipeline as an engine: one request at a time, stopped at the next step, in front of the pipeline's runner."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator, Callable

from ..errors import EngineUnavailableError, InvalidRequestError
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..messages import DiffusionStep, EngineChunk, GenerateBody
from .pipelines.apart import ApartRunner
from .pipelines.arguments import plan_of
from .pipelines.facts import read_facts
from .pipelines.loading import way_to_stop
from .pipelines.options import DiffusersOptions
from .pipelines.run import SIGN_OF_LIFE_S, Run, Runner
from .pipelines.source import locate
from .pipelines.steps import Way
from .pipelines.threaded import ThreadedRunner
from .pipelines.waiting import WaitingRoom

log = logging.getLogger(__name__)


class DiffusersEngine:
    """`GenerateBody` -> `DiffusionStep` for each step, then `RasterChunk`s and one `Generated`.

    A pipeline object runs one request at a time; others wait, the most urgent class first. Pipelines that let nobody in between their steps
    can only be stopped by killing a process: the engine gives those one of their own.
    """

    def __init__(self, options: DiffusersOptions) -> None:
        """Reads the pipeline's JSON files, so that the capabilities are known before torch is loaded. Raises `EngineError`."""
        self._options = options
        self._source = locate(options)
        self._facts = read_facts(self._source, options)
        self._media = self._facts.media
        self._room = WaitingRoom(self._facts.pipeline, options.waiting)
        self._runner: Runner | None = None
        self.capabilities = Capabilities(role=Role.DIFFUSION, models=(self._source.name, self._facts.pipeline), slots=1, media=self._media)

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load the pipeline. Raises `WeightsError` for what is missing, `EngineError` for what cannot run here."""
        name = self._facts.pipeline
        runner: Runner
        if not self._options.expendable and await self._way() is Way.NONE:
            log.warning(
                "%s calls nobody between its steps: a request is stopped by killing a process, and loading the pipeline again", name
            )
            runner = ApartRunner(name, self._options)
        else:
            runner = ThreadedRunner(self._source, self._facts, self._options)
        try:
            self._media = await runner.open()
        except BaseException:
            await runner.close()
            raise
        self.capabilities = dataclasses.replace(self.capabilities, media=self._media)
        self._room = WaitingRoom(name, self._options.waiting)
        self._runner = runner

    async def _way(self) -> Way:
        """How the pipeline lets itself be followed. Its libraries take seconds to import: not on the event loop."""
        return await asyncio.to_thread(way_to_stop, self._source, self._options)

    async def close(self) -> None:
        """Refuse who waits, stop the run at its next step, free the pipeline."""
        runner, self._runner = self._runner, None
        self._room.close(EngineUnavailableError(f"{self._facts.pipeline} is closing"))
        if runner is not None:
            await runner.close()

    async def health(self) -> EngineHealth:
        """The runner's word, with those who wait here."""
        if self._runner is None:
            return EngineHealth(ok=False, detail=f"{self._facts.pipeline} is not open")
        return dataclasses.replace(await self._runner.health(), waiting=self._room.waiting)

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """See the class. Closing stops the pipeline at its next step and waits for that; the turn passes on when it has stopped."""
        body = request.body
        if not isinstance(body, GenerateBody):
            raise InvalidRequestError(f"{self._facts.pipeline} makes pictures; it cannot serve a {type(body).__name__}")
        plan = plan_of(body, self._media)
        room = self._room
        turn = asyncio.create_task(room.take(int(request.work_class), request.deadline), name="turn")
        run: Run | None = None
        try:
            while not (await asyncio.wait({turn}, timeout=SIGN_OF_LIFE_S))[0]:
                yield DiffusionStep(step=0, steps=plan.steps)
            turn.result()
            if self._runner is None:
                raise EngineUnavailableError(f"{self._facts.pipeline} is not open")
            run = self._runner.start(plan)
            chunks = run.chunks()
            try:
                async for chunk in chunks:
                    yield chunk
            finally:
                await _stopped(run, chunks, room.give)
        finally:
            if run is None:
                await _withdrawn(turn, room.give)


async def _stopped(run: Run, chunks: AsyncGenerator[EngineChunk, None], ended: Callable[[], None]) -> None:
    """First stop what computes, then close its stream."""
    try:
        await run.stop(ended)
    finally:
        await chunks.aclose()


async def _withdrawn(turn: asyncio.Task[None], give: Callable[[], None]) -> None:
    """Give up a turn that was not used, or the place in the line."""
    turn.cancel()
    await asyncio.wait({turn})
    if not turn.cancelled() and turn.exception() is None:
        give()
