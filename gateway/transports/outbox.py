"""The short queue between a session and its socket: bounded, and purged by epoch without awaiting anything."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from .connection import Purged


@dataclass(frozen=True, slots=True)
class Queued:
    """An encoded event on its way out; `epoch` None means that no fence may drop it."""

    data: bytes
    epoch: int | None
    samples: int
    response_id: str | None


class Outbox:
    """Events in order, from the session to the transport's writer.

    Bounds: `max_samples` of audio, `max_bytes` and `max_events` in all. The session paces its audio to what was delivered, so
    that a full outbox means a reader that stopped. Policy: stale audio is dropped first (`purge`); an event beyond a
    bound is refused (`put` returns False) and the transport closes the connection.
    """

    def __init__(self, *, max_samples: int, max_bytes: int, max_events: int) -> None:
        self._queue: deque[Queued] = deque()
        self._max_samples = max_samples
        self._max_bytes = max_bytes
        self._max_events = max_events
        self._changed = asyncio.Event()
        self.epoch = 0
        """The newest fence: nothing older leaves any more."""
        self.samples = 0
        """Audio queued, in samples at 24 kHz."""
        self.size = 0
        """Bytes queued."""

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, data: bytes, *, epoch: int | None = None, samples: int = 0, response_id: str | None = None) -> bool:
        """Queue an event; False when it would break a bound. An event older than the last fence is dropped silently."""
        if epoch is not None and epoch < self.epoch:
            return True
        if self._queue and (
            self.samples + samples > self._max_samples or self.size + len(data) > self._max_bytes or len(self._queue) >= self._max_events
        ):
            return False
        self._queue.append(Queued(data, epoch, samples, response_id))
        self.samples += samples
        self.size += len(data)
        self._changed.set()
        return True

    def pop(self) -> Queued | None:
        """The next event, or None when there is none."""
        if not self._queue:
            return None
        item = self._queue.popleft()
        self.samples -= item.samples
        self.size -= len(item.data)
        return item

    def purge(self, epoch: int) -> Purged:
        """Drop everything made for an epoch before `epoch`, and refuse it from now on. Returns what was dropped."""
        self.epoch = max(self.epoch, epoch)
        kept: deque[Queued] = deque()
        events = samples = 0
        for item in self._queue:
            if item.epoch is not None and item.epoch < self.epoch:
                events += 1
                samples += item.samples
                self.size -= len(item.data)
            else:
                kept.append(item)
        self.samples -= samples
        self._queue = kept
        return Purged(events, samples)

    def wake(self) -> None:
        """Let `wait` return, whether or not something is queued."""
        self._changed.set()

    async def wait(self) -> None:
        """Wait until something was queued (or `wake` was called) since the last wait. The writer's only resting place."""
        if not self._queue:
            await self._changed.wait()
        self._changed.clear()
