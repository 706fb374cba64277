"""What the conductor needs of a transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge dropped: events, and samples of audio at 24 kHz."""

    events: int = 0
    samples: int = 0


class Depth(Protocol):
    """How much waits in a queue: events by `len`, and audio in samples at 24 kHz."""

    samples: int

    def __len__(self) -> int: ...


class Connection(Protocol):
    """A transport attached to a session. Nothing here awaits: the conductor applies a session's outbound events in one go."""

    @property
    def outbox(self) -> Depth:
        """What is on its way out."""

    def send(self, data: bytes, *, epoch: int | None = None, samples: int = 0, response_id: str | None = None) -> None:
        """Queue an encoded wire event. `epoch`: dropped by a later fence; `samples`: the audio in it, at 24 kHz."""

    def purge(self, epoch: int) -> Purged:
        """Drop, now, everything still queued that was made for an epoch before `epoch`."""

    def expect_audio(self, bytes_per_second: int) -> None:
        """The session's input format has so many bytes a second: audio is capped in seconds, not in bytes."""

    def finish(self, code: int, reason: str) -> None:
        """Close once everything queued has been sent, at the latest after the connection's send deadline."""
