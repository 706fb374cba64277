"""A live audio feed into an engine: bounded, written by the event loop, drained by the engine's batcher."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

SAMPLE_RATE = 24_000
BYTES_PER_SECOND = SAMPLE_RATE * 2


class AudioFeed:
    """PCM (mono s16le at 24 kHz) on its way to an engine.

    Bound: `max_seconds`; policy: the oldest audio is dropped and counted in `dropped_samples`, and `position` keeps counting
    it, so that the engine's sample positions stay true. `on_ready` is called (on the event loop) after each write and at
    the close.
    """

    def __init__(self, max_seconds: float = 10.0) -> None:
        self._blocks: deque[bytes] = deque()
        self._buffered = 0
        self._limit = int(max_seconds * BYTES_PER_SECOND)
        self.dropped_samples = 0
        self.position = 0
        """Sample index, since the feed began, of the next sample that `take` returns."""
        self.closed = False
        self.on_ready: Callable[[], None] | None = None

    @property
    def buffered_samples(self) -> int:
        return self._buffered // 2

    def put(self, pcm: bytes) -> None:
        """Append audio; whole samples only."""
        if self.closed or not pcm:
            return
        self._blocks.append(pcm)
        self._buffered += len(pcm)
        while self._buffered > self._limit and len(self._blocks) > 1:
            dropped = self._blocks.popleft()
            self._buffered -= len(dropped)
            self.dropped_samples += len(dropped) // 2
            self.position += len(dropped) // 2
        if self.on_ready is not None:
            self.on_ready()

    def take(self, samples: int) -> bytes | None:
        """Exactly `samples` samples, or None when fewer are buffered."""
        wanted = samples * 2
        if self._buffered < wanted:
            return None
        parts: list[bytes] = []
        left = wanted
        while left:
            block = self._blocks.popleft()
            if len(block) > left:
                self._blocks.appendleft(block[left:])
                block = block[:left]
            parts.append(block)
            left -= len(block)
        self._buffered -= wanted
        self.position += samples
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """No more audio will come."""
        self.closed = True
        if self.on_ready is not None:
            self.on_ready()
