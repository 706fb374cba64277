"""Runs the declared pipelines on the pool: whole answers, and the single stages that listen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from .errors import EngineError, EngineTimeoutError
from .feed import AudioFeed
from .interface import EngineRequest, Role, WorkClass
from .messages import (
    EngineChunk,
    ListenBody,
    ResponseBody,
    SpeechProbabilities,
    TranscribeBody,
    Transcript,
    TurnEndBody,
    TurnEndProbability,
)
from .pipeline import Pipeline, Stage
from .pool import EnginePool
from .response import ResponseIds, ResponseStream, stage_error


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorOptions:
    """Deadlines in seconds where the caller sets none: for a transcript, and for a verdict on the end of a turn."""

    transcribe: float = 15.0
    turn_end: float = 2.0


class Orchestrator:
    """See the module's docstring. It holds no tasks of its own: whoever reads a stream owns it and closes it."""

    def __init__(self, pool: EnginePool, pipelines: Iterable[Pipeline], options: OrchestratorOptions | None = None) -> None:
        self.pool = pool
        self.options = options or OrchestratorOptions()
        self._pipelines = {pipeline.name: pipeline for pipeline in pipelines}
        for pipeline in self._pipelines.values():
            for stage in pipeline.stages:
                role = pool.engine(stage.engine).capabilities.role
                if role is not stage.role:
                    raise EngineError(
                        f"pipeline {pipeline.name!r}, stage {stage.name!r}: engine {stage.engine!r} is a {role} engine, not {stage.role}",
                        code="invalid_configuration",
                    )

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline of that name. Raises `EngineError`."""
        pipeline = self._pipelines.get(name)
        if pipeline is None:
            known = ", ".join(self._pipelines) or "none"
            raise EngineError(f"there is no pipeline {name!r}; there are: {known}", code="unknown_pipeline")
        return pipeline

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        return tuple(self._pipelines.values())

    def respond(
        self,
        pipeline: str,
        body: ResponseBody,
        *,
        request_id: str,
        session_id: str = "",
        epoch: int = 0,
        affinity: str | None = None,
        work_class: WorkClass = WorkClass.REALTIME,
        deadline: float | None = None,
    ) -> ResponseStream:
        """An answer as it is made, written or spoken; read it, then close it. `deadline` (time.monotonic) bounds the wait for
        slots. The stream raises `EngineError` whose code names the failed stage: `chat_failed`, `speech_busy` and so on."""
        ids = ResponseIds(
            request_id=request_id,
            session_id=session_id,
            epoch=epoch,
            affinity=affinity or session_id or None,
            work_class=work_class,
            deadline=deadline,
        )
        return ResponseStream(self.pool, self.pipeline(pipeline), body, ids)

    async def listen(
        self, pipeline: str, feed: AudioFeed, *, session_id: str, deadline: float | None = None
    ) -> AsyncGenerator[SpeechProbabilities, None]:
        """VAD scores of a live feed until it is closed. Raises `EngineError` (`vad_failed`, `vad_busy` ...)."""
        stage = self.pipeline(pipeline).stage(Role.VAD)
        request = EngineRequest(request_id=f"{session_id}:listen", body=ListenBody(feed), session_id=session_id, deadline=deadline)
        try:
            async with aclosing(self.pool.stream(stage.engine, request)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, SpeechProbabilities):
                        yield chunk
        except EngineError as error:
            raise stage_error(stage, error) from error

    async def judge_turn_end(
        self,
        pipeline: str,
        pcm: bytes,
        *,
        request_id: str = "turn_end",
        session_id: str = "",
        work_class: WorkClass = WorkClass.REALTIME,
        deadline: float | None = None,
    ) -> float:
        """How likely it is that the speaker of `pcm` (the last 8 s, trailing silence included) is done. Raises `EngineError`."""
        stage = self.pipeline(pipeline).stage(Role.TURN_END)
        deadline = deadline or time.monotonic() + self.options.turn_end
        request = EngineRequest(
            request_id=request_id, body=TurnEndBody(pcm), session_id=session_id, work_class=work_class, deadline=deadline
        )
        chunk = await self._last(stage, request, deadline)
        if not isinstance(chunk, TurnEndProbability):
            raise EngineError(f"the {stage.name} stage gave no verdict", code="turn_end_failed")
        return chunk.probability

    async def transcribe(
        self,
        pipeline: str,
        body: TranscribeBody,
        *,
        request_id: str = "transcribe",
        session_id: str = "",
        work_class: WorkClass = WorkClass.REALTIME,
        deadline: float | None = None,
    ) -> Transcript:
        """The text of an utterance. Raises `EngineError` (`asr_failed`, `asr_timeout` ...)."""
        stage = self.pipeline(pipeline).stage(Role.ASR)
        deadline = deadline or time.monotonic() + self.options.transcribe
        request = EngineRequest(request_id=request_id, body=body, session_id=session_id, work_class=work_class, deadline=deadline)
        chunk = await self._last(stage, request, deadline)
        if not isinstance(chunk, Transcript):
            raise EngineError(f"the {stage.name} stage gave no transcript", code="asr_failed")
        return chunk

    async def _last(self, stage: Stage, request: EngineRequest, deadline: float) -> EngineChunk | None:
        """The last chunk of a stage that gives an answer rather than a stream, before the deadline."""
        last: EngineChunk | None = None
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())), aclosing(self.pool.stream(stage.engine, request)) as chunks:
                async for chunk in chunks:
                    last = chunk
        except TimeoutError as error:
            late = EngineTimeoutError(f"no answer from engine {stage.engine!r} before the deadline")
            raise stage_error(stage, late) from error
        except EngineError as error:
            raise stage_error(stage, error) from error
        return last
