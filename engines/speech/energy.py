"""A VAD that only looks at loudness: cheap enough for load tests, and good enough for a quiet room where no ONNX runtime is at hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidRequestError
from ..feed import SAMPLE_RATE, AudioFeed
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..messages import EngineChunk, ListenBody, SpeechProbabilities

FRAME = 768
"""Samples of a frame: 32 ms at 24 kHz."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyOptions:
    """A frame at `threshold_dbfs` (dB below full scale, root mean square) scores 0.5; `width_db` above it scores 1, as far below it 0."""

    threshold_dbfs: float = -42.0
    width_db: float = 10.0
    slots: int = 4096


class EnergyVad:
    """Scores each 32 ms of a feed by its loudness, in the event loop (about 10 us for what has come in since the last look)."""

    def __init__(self, options: EnergyOptions) -> None:
        self.options = options
        self._running = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(role=Role.VAD, models=("energy-vad",), slots=self.options.slots, sample_rate=SAMPLE_RATE)

    async def open(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def health(self) -> EngineHealth:
        return EngineHealth(ok=True, running=self._running)

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        """Scores until the feed is closed; what is left in it then, shorter than a frame, is not scored."""
        if not isinstance(request.body, ListenBody):
            raise InvalidRequestError(f"a VAD engine takes a ListenBody, not {type(request.body).__name__}")
        feed: AudioFeed = request.body.feed
        ready = asyncio.Event()
        feed.on_ready = ready.set
        self._running += 1
        try:
            while True:
                ready.clear()
                frames = feed.buffered_samples // FRAME
                if frames:
                    start = feed.position
                    pcm = feed.take(frames * FRAME)
                    if pcm is not None:
                        yield SpeechProbabilities(start, self.score(pcm))
                elif feed.closed:
                    return
                else:
                    await ready.wait()
        finally:
            feed.on_ready = None
            self._running -= 1

    def score(self, pcm: bytes) -> tuple[float, ...]:
        """A probability for each whole frame of `pcm`."""
        frames = np.frombuffer(pcm, dtype="<i2").reshape(-1, FRAME).astype(np.float32)
        power = np.einsum("ij,ij->i", frames, frames) / (FRAME * 32768.0**2)
        level = 10 * np.log10(power + 1e-10)
        scores = np.clip(0.5 + (level - self.options.threshold_dbfs) / (2 * self.options.width_db), 0.0, 1.0)
        return tuple(float(score) for score in scores)
