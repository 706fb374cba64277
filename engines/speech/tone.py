"""A speech engine that hums: audio as long as speech would be, at next to no cost. For load tests and for machines without weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidRequestError
from ..feed import SAMPLE_RATE
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..messages import AudioChunk, EngineChunk, SpeakBody
from ..timing import spread

_CHUNK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToneOptions:
    """`characters_per_second` sets how long a text sounds; `delay_ms` comes before the first audio; `level` is the peak, 0 to 1.

    `hertz` must be a whole number, so that one second of the tone joins with the next without a click.
    """

    hertz: int = 330
    level: float = 0.2
    characters_per_second: float = 15.0
    delay_ms: float = 0.0
    slots: int = 1024


class ToneSpeech:
    """A sine for each text, cut from one precomputed second."""

    def __init__(self, options: ToneOptions) -> None:
        self.options = options
        phase = np.arange(SAMPLE_RATE, dtype=np.float64) * (2 * np.pi * options.hertz / SAMPLE_RATE)
        self._second = np.round(np.sin(phase) * options.level * 32767).astype("<i2").tobytes()
        self._running = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(role=Role.SPEECH, models=("tone",), slots=self.options.slots, sample_rate=SAMPLE_RATE, voices=("tone",))

    async def open(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def health(self) -> EngineHealth:
        return EngineHealth(ok=True, running=self._running)

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        """The tone in chunks of a second at most; the first carries the text and the times of its words."""
        body = request.body
        if not isinstance(body, SpeakBody):
            raise InvalidRequestError(f"a speech engine takes a SpeakBody, not {type(body).__name__}")
        self._running += 1
        try:
            await asyncio.sleep(self.options.delay_ms / 1000)
            seconds = len(body.text) / self.options.characters_per_second / body.speed
            samples = int(seconds * SAMPLE_RATE)
            words = spread(body.text, samples * 1000 / SAMPLE_RATE)
            step = int(_CHUNK_SECONDS * SAMPLE_RATE)
            for start in range(0, max(samples, 1), step):
                pcm = self._second[: min(step, samples - start) * 2]
                yield AudioChunk(pcm=pcm, transcript="" if start else body.text, words=() if start else words)
                await asyncio.sleep(0)
        finally:
            self._running -= 1
