"""The ear of one session: its audio to the VAD engine, and its questions to the turn-end and ASR engines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from ..engines.errors import EngineError
from ..engines.feed import AudioFeed
from ..engines.messages import TranscribeBody
from ..sessions.commands import JudgeTurnEnd, Transcribe
from ..sessions.inbound import Inbound, SpeechScored, Transcribed, TranscriptionFailed, TurnEndJudged, VadLost, VadReady
from .logs import logger
from .workbench import Workbench

log = logger("gateway.listening")

RETRY_FIRST = 1.0
RETRY_LONGEST = 30.0
"""Seconds between attempts to get a lost VAD engine back; doubled each time."""


class Listener:
    """Feeds the VAD engine, from the first audio on; when the engine fails, says so and tries again with what comes later."""

    def __init__(self, bench: Workbench, *, on_dropped: Callable[[int], None]) -> None:
        self._bench = bench
        self._on_dropped = on_dropped
        self._audio: AudioFeed | None = None
        self._started = False
        self._reported_drops = 0

    @property
    def backlog(self) -> int:
        """Samples that wait for the VAD engine."""
        return self._audio.buffered_samples if self._audio is not None else 0

    def hear(self, pcm: bytes) -> None:
        """More of the caller's audio."""
        if not self._started:
            self._started = True
            self._audio = AudioFeed()
            self._bench.tasks.start(self._listen(), name=f"vad {self._bench.session_id}", on_crash=self._crashed)
        if self._audio is not None:
            self._audio.put(pcm)
            dropped = self._audio.dropped_samples
            if dropped > self._reported_drops:
                self._on_dropped(dropped - self._reported_drops)
                self._reported_drops = dropped

    def close(self) -> None:
        """No more audio will come."""
        if self._audio is not None:
            self._audio.close()

    async def _listen(self) -> None:
        pause = RETRY_FIRST
        while self._audio is not None:
            try:
                stream = self._bench.orchestrator.listen(self._bench.pipeline, self._audio, session_id=self._bench.session_id)
                async with contextlib.aclosing(stream):
                    async for chunk in stream:
                        pause = RETRY_FIRST
                        self._bench.feed(SpeechScored(chunk.start_sample, chunk.probabilities))
                return
            except EngineError as error:
                log.warning("VAD lost", session=self._bench.session_id, code=error.code, error=str(error))
                self._audio.close()
                self._audio = None
                self._bench.feed(VadLost(error.code, str(error)))
            await asyncio.sleep(pause)
            pause = min(RETRY_LONGEST, pause * 2)
            self._reported_drops = 0
            self._audio = AudioFeed()
            self._bench.feed(VadReady())

    def _crashed(self, error: BaseException) -> None:
        log.error("listening crashed", session=self._bench.session_id, exc_info=error)
        self.close()
        self._audio = None
        self._bench.feed(VadLost("internal_error", "The server can no longer listen to this session."))


class Questions:
    """The session's questions to the turn-end and ASR engines, each a task that brings back its answer.

    Bound: the session asks one thing at a time of each kind, and cancels what it no longer wants.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._running: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def judge(self, command: JudgeTurnEnd) -> None:
        """Ask whether the speaker is done; a failure is answered with None, and then the silence decides."""

        async def ask() -> None:
            try:
                probability: float | None = await self._bench.orchestrator.judge_turn_end(
                    self._bench.pipeline, command.pcm, request_id=command.request_id, session_id=self._bench.session_id
                )
            except EngineError as error:
                log.warning("turn end not judged", session=self._bench.session_id, code=error.code, error=str(error))
                probability = None
            self._answer(command.request_id, TurnEndJudged(command.request_id, probability))

        self._ask(command.request_id, ask, TurnEndJudged(command.request_id, None))

    def transcribe(self, command: Transcribe) -> None:
        """Ask for a transcript."""
        body = TranscribeBody(pcm=command.pcm, language=command.language, prompt=command.prompt, final=command.purpose == "final")

        async def ask() -> None:
            answer: Inbound
            try:
                transcript = await self._bench.orchestrator.transcribe(
                    self._bench.pipeline, body, request_id=command.request_id, session_id=self._bench.session_id
                )
                answer = Transcribed(
                    request_id=command.request_id,
                    text=transcript.text,
                    no_speech=transcript.no_speech,
                    logprob=transcript.logprob,
                )
            except EngineError as error:
                log.warning("not transcribed", session=self._bench.session_id, purpose=command.purpose, code=error.code, error=str(error))
                answer = TranscriptionFailed(command.request_id, error.code, str(error))
            self._answer(command.request_id, answer)

        failed = TranscriptionFailed(command.request_id, "internal_error", "The server failed while writing this down.")
        self._ask(command.request_id, ask, failed)

    def cancel(self, request_id: str) -> None:
        """The answer is no longer wanted and will not come."""
        task = self._running.pop(request_id, None)
        if task is not None:
            task.cancel()

    def _ask(self, request_id: str, ask: Callable[[], Coroutine[Any, Any, None]], on_fault: Inbound) -> None:
        def crashed(error: BaseException) -> None:
            log.error("question crashed", session=self._bench.session_id, request=request_id, exc_info=error)
            self._answer(request_id, on_fault)

        self._running[request_id] = self._bench.tasks.start(ask(), name=f"question {request_id}", on_crash=crashed)

    def _answer(self, request_id: str, answer: Inbound) -> None:
        if self._running.pop(request_id, None) is not None:
            self._bench.feed(answer)
