"""One answer in the making: chat and speech at the same time, and a way to stop both at once.

The chat stage writes; a connector cuts its text into clauses; the speech stage says them while chat goes on. What they make is read
from the `ResponseStream`.

Back-pressure. Text waits in the outlet up to `TEXT_BOUND` chunks, then the chat stage waits. Speech begins no new clause while
more than `LEAD_SECONDS` of audio wait to be read; a clause once begun is finished, so that the speech slot is never held for a slow
reader (the outlet's bound is LEAD_SECONDS and one clause).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from .connectors import ClauseConnector
from .errors import EngineBusyError, EngineError, EngineTimeoutError, EngineUnavailableError
from .feed import BYTES_PER_SECOND
from .interface import EngineRequest, Role, WorkClass
from .messages import AudioChunk, Finished, RequestBody, ResponseBody, SpeakBody, StageMark, TextChunk, ToolCallChunk, Word
from .pipeline import Pipeline, Stage
from .pool import EnginePool
from .spoken import Clause

log = logging.getLogger(__name__)

ResponseChunk: TypeAlias = TextChunk | ToolCallChunk | AudioChunk | StageMark | Finished

TEXT_BOUND = 2048
LEAD_SECONDS = 6.0
FIRST_SLICE_MS = 40
LONGEST_SLICE_MS = 320
ABORT_SECONDS = 3.0
_SILENCE = bytes(BYTES_PER_SECOND // 50)
"""20 ms, to carry text that is shown but not spoken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseIds:
    """Whom the answer is for. `deadline` (time.monotonic) bounds each stage's wait for a slot."""

    request_id: str
    session_id: str = ""
    epoch: int = 0
    affinity: str | None = None
    work_class: WorkClass = WorkClass.REALTIME
    deadline: float | None = None


class ResponseStream:
    """Yields chunks; ends after `Finished`. Raises `EngineError` whose `code` names the stage that failed.

    `abort()` needs no await: from its return on no chunk comes out, and every stage has been told to stop. `aclose()` also waits,
    in bounded time, until their slots are free. Work starts at the first `anext`.
    """

    def __init__(self, pool: EnginePool, pipeline: Pipeline, body: ResponseBody, ids: ResponseIds) -> None:
        self._pool = pool
        self._chat_stage = pipeline.stage(Role.CHAT)
        self._speech_stage = pipeline.stage(Role.SPEECH) if body.audio else None
        self._body = body
        self._ids = ids
        self._task: asyncio.Task[None] | None = None
        self._out: deque[ResponseChunk] = deque()
        self._readable = asyncio.Event()
        self._read = asyncio.Event()
        self._ended = False
        self._aborted = False
        self._error: BaseException | None = None
        self._finished = Finished()
        self._clauses = ClauseConnector(self.ahead)
        self._slice_ms = FIRST_SLICE_MS
        self._waiting_bytes = 0
        self._made_bytes = 0
        self._first_read: float | None = None

    # ---- the reader's side ------------------------------------------------------------------------------------------

    def __aiter__(self) -> ResponseStream:
        return self

    async def __anext__(self) -> ResponseChunk:
        if self._task is None and not self._aborted:
            self._task = asyncio.create_task(self._run(), name=f"response {self._ids.request_id}")
        while True:
            if self._aborted:
                raise StopAsyncIteration
            if self._out:
                return self._take()
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._ended:
                raise StopAsyncIteration
            self._readable.clear()
            await self._readable.wait()

    def _take(self) -> ResponseChunk:
        chunk = self._out.popleft()
        if isinstance(chunk, AudioChunk):
            self._waiting_bytes -= len(chunk.pcm)
            if self._first_read is None:
                self._first_read = time.monotonic()
        self._read.set()
        return chunk

    def abort(self) -> None:
        """Stop at once: drop what has not been read and cancel every stage. Harmless when called again."""
        if self._aborted:
            return  # a second cancellation would cut short the stages' own clearing up
        self._aborted = True
        self._out.clear()
        self._waiting_bytes = 0
        self._clauses.cleanup()
        if self._task is not None:
            self._task.cancel()
        self._readable.set()

    async def aclose(self) -> None:
        """Abort and wait until every stage's slot is free, at most `ABORT_SECONDS`."""
        self.abort()
        if self._task is not None and not self._task.done():
            _, pending = await asyncio.wait({self._task}, timeout=ABORT_SECONDS)
            if pending:
                log.error("response %s did not stop within %.1f s", self._ids.request_id, ABORT_SECONDS)

    def ahead(self) -> float:
        """Seconds of audio made but not yet due to be heard, if playing began when the first chunk was read."""
        made = self._made_bytes / BYTES_PER_SECOND
        if self._first_read is None:
            return made
        return max(0.0, made - (time.monotonic() - self._first_read))

    # ---- the stages -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._guard(self._chat_stage, self._chat()))
                if self._speech_stage is not None:
                    group.create_task(self._guard(self._speech_stage, self._speak(self._speech_stage)))
            self._emit(self._finished)
        except BaseExceptionGroup as errors:
            self._error = errors.exceptions[0]
        finally:
            self._clauses.cleanup()
            self._ended = True
            self._readable.set()

    async def _guard(self, stage: Stage, work: Coroutine[None, None, None]) -> None:
        """Run a stage's work; its failure gets a code that names the stage."""
        try:
            await work
        except EngineError as error:
            raise stage_error(stage, error) from error
        except Exception as error:
            log.exception("stage %s of response %s failed", stage.name, self._ids.request_id)
            raise EngineError(f"the {stage.name} stage failed: {error}", code=f"{stage.role}_failed") from error

    async def _chat(self) -> None:
        stage = self._chat_stage
        self._mark(stage, "start")
        first = True
        async with aclosing(self._pool.stream(stage.engine, self._request("chat", self._body.chat), affinity=self._ids.affinity)) as chunks:
            async for chunk in chunks:
                if first:
                    self._mark(stage, "first")
                    first = False
                if isinstance(chunk, Finished):
                    self._finished = chunk
                elif isinstance(chunk, ToolCallChunk) or (isinstance(chunk, TextChunk) and self._speech_stage is None):
                    await self._emit_text(chunk)
                elif isinstance(chunk, TextChunk):
                    await self._clauses.put(chunk.text)
        self._clauses.finish()
        self._mark(stage, "end")

    async def _speak(self, stage: Stage) -> None:
        number = 0
        untold = ""  # text that goes out with the next sound
        while (piece := await self._clauses.get()) is not None:
            clause = Clause(untold + piece)
            if not clause.audible:
                untold = clause.written
                continue
            await self._room_for_audio()
            if number == 0:
                self._mark(stage, "start")
            untold = await self._say(stage, clause, number)
            number += 1
        if untold.strip():
            self.emit_audio(AudioChunk(pcm=_SILENCE, transcript=untold))
        if number:
            self._mark(stage, "end")

    async def _say(self, stage: Stage, clause: Clause, number: int) -> str:
        """Say one clause. Returns what of its text no audio carried."""
        body = SpeakBody(text=clause.written, voice=self._body.voice, speed=self._body.speed)
        request = self._request(f"speech-{number}", body)
        slices = _Slices(self)
        first = number == 0
        async with aclosing(self._pool.stream(stage.engine, request, affinity=self._ids.affinity)) as chunks:
            async for chunk in chunks:
                if not isinstance(chunk, AudioChunk):
                    continue
                if first and chunk.pcm:
                    self._mark(stage, "first")
                    first = False
                slices.add(chunk.pcm, *clause.label(chunk))
        return slices.finish() + clause.remainder()

    def _request(self, part: str, body: RequestBody) -> EngineRequest:
        ids = self._ids
        return EngineRequest(
            request_id=f"{ids.request_id}:{part}",
            body=body,
            session_id=ids.session_id,
            epoch=ids.epoch,
            work_class=ids.work_class,
            deadline=ids.deadline,
        )

    # ---- the outlet -------------------------------------------------------------------------------------------------

    def _emit(self, chunk: ResponseChunk) -> None:
        if not self._aborted:
            self._out.append(chunk)
            self._readable.set()

    def _mark(self, stage: Stage, what: str) -> None:
        self._emit(StageMark(stage.name, what, time.monotonic()))

    def slice_bytes(self) -> int:
        """How long the next slice of audio should be."""
        return (FIRST_SLICE_MS if self.ahead() <= 0 else self._slice_ms) * BYTES_PER_SECOND // 1000

    def emit_audio(self, chunk: AudioChunk) -> None:
        """Put audio out; the slices after it may be longer."""
        self._slice_ms = FIRST_SLICE_MS * 2 if self.ahead() <= 0 else min(LONGEST_SLICE_MS, self._slice_ms * 2)
        if not self._aborted:
            self._waiting_bytes += len(chunk.pcm)
            self._made_bytes += len(chunk.pcm)
            self._emit(chunk)

    async def _emit_text(self, chunk: TextChunk | ToolCallChunk) -> None:
        while len(self._out) >= TEXT_BOUND:
            self._read.clear()
            await self._read.wait()
        self._emit(chunk)

    async def _room_for_audio(self) -> None:
        while self._waiting_bytes > LEAD_SECONDS * BYTES_PER_SECOND:
            self._read.clear()
            await self._read.wait()


class _Slices:
    """Cuts a clause's audio into slices: 40 ms when nothing is in hand, so that sound starts at once, doubling up to 320 ms while the
    reader is supplied. A slice that a text begins with carries it."""

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream
        self._pcm = b""
        self._transcript = ""
        self._words: tuple[Word, ...] = ()

    def add(self, pcm: bytes, transcript: str, words: tuple[Word, ...]) -> None:
        """More audio of the clause; a new text begins a new slice."""
        if transcript:
            if self._pcm:
                self._emit(len(self._pcm))
            self._transcript += transcript
            self._words += words
        self._pcm += pcm
        while self._pcm and len(self._pcm) >= (size := self._stream.slice_bytes()):
            self._emit(size)

    def finish(self) -> str:
        """The last, short slice. Returns a text that came without any audio."""
        if self._pcm:
            self._emit(len(self._pcm))
        return self._transcript

    def _emit(self, size: int) -> None:
        pcm, self._pcm = self._pcm[:size], self._pcm[size:]
        self._stream.emit_audio(AudioChunk(pcm=pcm, transcript=self._transcript, words=self._words))
        self._transcript, self._words = "", ()


def stage_error(stage: Stage, error: EngineError) -> EngineError:
    """The error as the pipeline reports it: `chat_busy`, `asr_timeout`, `speech_unavailable`, else `<role>_failed`."""
    kinds = ((EngineBusyError, "busy"), (EngineTimeoutError, "timeout"), (EngineUnavailableError, "unavailable"))
    suffix = next((suffix for kind, suffix in kinds if isinstance(error, kind)), "failed")
    return EngineError(f"the {stage.name} stage failed: {error}", code=f"{stage.role}_{suffix}")
