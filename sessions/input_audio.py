"""The caller's audio: a ring in session time, bounded, trimmed as turns are committed."""

from __future__ import annotations

from collections import deque

from .timeline import SAMPLE_RATE


def to_ms(samples: int) -> int:
    """Samples at 24 kHz as whole milliseconds."""
    return samples * 1000 // SAMPLE_RATE


def to_samples(ms: float) -> int:
    """Milliseconds as samples at 24 kHz."""
    return int(ms * SAMPLE_RATE / 1000)


class InputRing:
    """PCM addressed by its position (samples since the session's first).

    Bound: `max_samples`; policy: `append` drops the oldest audio beyond it. `begin` is the position of the oldest sample kept,
    `end` that of the next to come.
    """

    def __init__(self, max_samples: int) -> None:
        self._blocks: deque[bytes] = deque()
        self._max = max_samples
        self.begin = 0
        self.end = 0

    def append(self, pcm: bytes) -> None:
        """Add audio (whole samples)."""
        if not pcm:
            return
        self._blocks.append(pcm)
        self.end += len(pcm) // 2
        if self.end - self.begin > self._max:
            self.trim(self.end - self._max)

    def trim(self, before: int) -> None:
        """Forget audio before the position `before`."""
        before = min(before, self.end)
        while self._blocks and self.begin < before:
            block = self._blocks[0]
            samples = len(block) // 2
            if self.begin + samples <= before:
                self._blocks.popleft()
                self.begin += samples
            else:
                self._blocks[0] = block[(before - self.begin) * 2 :]
                self.begin = before

    def slice(self, start: int, end: int) -> bytes:
        """The audio from `start` to `end`, as far as it is still (and already) there."""
        start = max(start, self.begin)
        parts: list[bytes] = []
        position = self.begin
        for block in self._blocks:
            samples = len(block) // 2
            if position >= end:
                break
            if position + samples > start:
                parts.append(block[max(0, start - position) * 2 : (end - position) * 2])
            position += samples
        return b"".join(parts)
