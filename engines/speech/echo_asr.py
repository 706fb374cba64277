"""An ASR that does not listen: it gives a set text, or counts. For load tests, where what was said does not matter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ..errors import InvalidRequestError
from ..feed import SAMPLE_RATE
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..messages import EngineChunk, TranscribeBody, Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoAsrOptions:
    """`text` is the answer; `{n}` in it is the number of the transcription, `{seconds}` the length of the audio."""

    text: str = "This is utterance number {n}."
    delay_ms: float = 0.0
    slots: int = 1024


class EchoAsr:
    """See the module's docstring. Empty audio gives an empty text."""

    def __init__(self, options: EchoAsrOptions) -> None:
        self.options = options
        self._count = 0
        self._running = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(role=Role.ASR, models=("echo-asr",), slots=self.options.slots, sample_rate=SAMPLE_RATE, streaming=False)

    async def open(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def health(self) -> EngineHealth:
        return EngineHealth(ok=True, running=self._running)

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        """One transcript."""
        body = request.body
        if not isinstance(body, TranscribeBody):
            raise InvalidRequestError(f"an ASR engine takes a TranscribeBody, not {type(body).__name__}")
        self._running += 1
        try:
            await asyncio.sleep(self.options.delay_ms / 1000)
            if body.final:
                self._count += 1
            seconds = len(body.pcm) / 2 / SAMPLE_RATE
            text = self.options.text.replace("{n}", str(self._count)).replace("{seconds}", f"{seconds:.1f}") if body.pcm else ""
            yield Transcript(text=text, final=body.final)
        finally:
            self._running -= 1
