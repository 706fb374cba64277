"""Sends audio as a live microphone does: a frame each 20 ms (or 100 ms) on absolute deadlines, silence included."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from ..codecs.pcm import BYTES_PER_SAMPLE, SAMPLE_RATE, Int16Array, to_int16

SLACK = 0.005
"""Seconds by which a frame may leave late before it is counted: a timer's error."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A sound that was given to the sender: it lies at `start` .. `end` (samples) of everything sent."""

    start: int
    end: int


class AudioSender:
    """Everything that is said or sounds at the caller's end, mixed into one stream of frames.

    A frame is sent when its last sample would have been recorded: sample `n` sounds at `time_of(n)`. A frame that is late is
    sent at once and the next one on its own deadline, so the stream never drifts. `sent` keeps what was sent (at most
    `keep_s` seconds of it).
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        *,
        frame_ms: int = 20,
        keep_s: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if frame_ms <= 0:
            raise ValueError(f"frame_ms must be positive, not {frame_ms}")
        self._send = send
        self._clock = clock
        self._frame = frame_ms * SAMPLE_RATE // 1000
        self._keep = int(keep_s * SAMPLE_RATE) * BYTES_PER_SAMPLE
        self._sounds: list[tuple[int, Int16Array]] = []
        self._bed: Int16Array | None = None
        self.position = 0
        """Samples sent so far."""
        self.started_at: float | None = None
        self.sent = bytearray()
        self.late_frames = 0
        self.worst_lateness = 0.0

    def say(self, pcm: bytes, *, delay_ms: float = 0.0) -> Spoken:
        """Let `pcm` sound from the next frame on (or `delay_ms` later), on top of whatever else sounds then."""
        start = self.position + round(delay_ms * SAMPLE_RATE / 1000)
        samples = to_int16(pcm)
        if len(samples):
            self._sounds.append((start, samples))
        return Spoken(start, start + len(samples))

    def background(self, pcm: bytes | None) -> None:
        """Let `pcm` sound beneath everything, over and over; None: silence."""
        self._bed = to_int16(pcm) if pcm else None

    def time_of(self, sample: int) -> float:
        """When that sample sounds, on the clock. Before the start: as if sending began now."""
        return (self.started_at if self.started_at is not None else self._clock()) + sample / SAMPLE_RATE

    @property
    def speaking(self) -> bool:
        """Whether a sound given to `say` has not been sent to its end."""
        return bool(self._sounds)

    async def run(self) -> None:
        """Send until cancelled. Raises what `send` raises."""
        if self.started_at is None:
            self.started_at = self._clock()
        while True:
            due = self.time_of(self.position + self._frame)
            wait = due - self._clock()
            if wait > 0:
                await asyncio.sleep(wait)
            elif -wait > SLACK:
                self.late_frames += 1
                self.worst_lateness = max(self.worst_lateness, -wait)
            frame = self._next()
            if len(self.sent) < self._keep:
                self.sent += frame
            await self._send(frame)

    def _next(self) -> bytes:
        start, end = self.position, self.position + self._frame
        self.position = end
        if not self._sounds and self._bed is None:
            return bytes(self._frame * BYTES_PER_SAMPLE)
        mixed = np.zeros(self._frame, np.int32)
        if self._bed is not None:
            mixed += self._bed[np.arange(start, end) % len(self._bed)]
        for at, samples in self._sounds:
            first, last = max(start, at), min(end, at + len(samples))
            if first < last:
                mixed[first - start : last - start] += samples[first - at : last - at]
        self._sounds = [(at, samples) for at, samples in self._sounds if at + len(samples) > end]
        return np.clip(mixed, -32768, 32767).astype("<i2").tobytes()
