"""Plays the assistant's audio in real time and knows what was heard.

`SimulatedPlayer` has no sound card: it is arithmetic over arrival times, so it can be tested with any clock. It plays a delta
as soon as the one before has ended, as a listener's player does; when it runs dry inside an item, that is an underrun.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..codecs.pcm import BYTES_PER_SAMPLE, SAMPLE_RATE

TOLERANCE = 0.005
"""Seconds by which a delta may be late before it counts as an underrun: below what anybody hears."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Audio of an item that was played without a gap from `start` (seconds) on."""

    item_id: str
    start: float
    pcm: bytes

    @property
    def end(self) -> float:
        return self.start + len(self.pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a player was playing when it was stopped."""

    item_id: str
    content_index: int
    heard_ms: float


class Player(Protocol):
    """Something that plays the assistant's audio."""

    def play(self, item_id: str, content_index: int, pcm: bytes, now: float) -> bool:
        """Take a delta; False when its item had been stopped, so that it was thrown away."""

    def finish(self, item_id: str) -> None:
        """No more audio of this item will come."""

    def playing(self, now: float) -> str | None:
        """The item that the listener is hearing or about to hear, if any."""

    def heard_ms(self, item_id: str, now: float) -> float:
        """How much of the item has been heard."""

    def stop(self, now: float) -> tuple[Stopped, ...]:
        """Be silent from now on, and never play these items again. Gives every item that was cut: the one being heard first."""

    def segments(self) -> list[Segment]:
        """Everything that was heard, in order."""


@dataclass(slots=True)
class _Item:
    content_index: int
    pieces: list[tuple[float, bytes]]
    complete: bool = False
    stopped_at: float | None = None

    def end(self) -> float:
        start, pcm = self.pieces[-1]
        return start + len(pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE


class SimulatedPlayer:
    """See the module's docstring. Times are seconds on any one clock."""

    def __init__(self) -> None:
        self._items: dict[str, _Item] = {}
        self._free_at = 0.0
        self.underruns = 0
        self.underrun_s = 0.0
        self.stale_bytes = 0
        """Audio that came for an item after it had been stopped."""

    def play(self, item_id: str, content_index: int, pcm: bytes, now: float) -> bool:
        """See `Player.play`."""
        item = self._items.get(item_id)
        if item is not None and item.stopped_at is not None:
            self.stale_bytes += len(pcm)
            return False
        if item is None:
            item = self._items[item_id] = _Item(content_index, [])
        elif now > self._free_at + TOLERANCE:
            self.underruns += 1
            self.underrun_s += now - self._free_at
        start = max(now, self._free_at)
        item.pieces.append((start, pcm))
        self._free_at = item.end()
        return True

    def finish(self, item_id: str) -> None:
        """See `Player.finish`."""
        if item_id in self._items:
            self._items[item_id].complete = True

    def playing(self, now: float) -> str | None:
        """See `Player.playing`."""
        for item_id, item in self._items.items():
            if item.stopped_at is None and item.pieces and (item.end() > now or not item.complete):
                return item_id
        return None

    def heard_ms(self, item_id: str, now: float) -> float:
        """See `Player.heard_ms`."""
        item = self._items.get(item_id)
        if item is None:
            return 0.0
        until = now if item.stopped_at is None else min(now, item.stopped_at)
        lengths = (min(max(0.0, until - start), len(pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE) for start, pcm in item.pieces)
        return sum(lengths) * 1000

    def stop(self, now: float) -> tuple[Stopped, ...]:
        """See `Player.stop`."""
        stopped: list[Stopped] = []
        for item_id, item in self._items.items():
            if item.stopped_at is None and item.pieces and (item.end() > now or not item.complete):
                item.stopped_at = now
                stopped.append(Stopped(item_id, item.content_index, self.heard_ms(item_id, now)))
        self._free_at = min(self._free_at, now)
        return tuple(stopped)

    def segments(self) -> list[Segment]:
        """See `Player.segments`."""
        heard: list[Segment] = []
        for item_id, item in self._items.items():
            for start, pcm in item.pieces:
                piece = _cut(Segment(item_id, start, pcm), item.stopped_at)
                if not piece.pcm:
                    continue
                if heard and heard[-1].item_id == item_id and abs(heard[-1].end - piece.start) < 1 / SAMPLE_RATE:
                    heard[-1] = Segment(item_id, heard[-1].start, heard[-1].pcm + piece.pcm)
                else:
                    heard.append(piece)
        return sorted(heard, key=lambda segment: segment.start)

    def heard_audio(self, item_id: str) -> bytes:
        """The PCM of the item that was heard (all of it unless the player was stopped)."""
        return b"".join(segment.pcm for segment in self.segments() if segment.item_id == item_id)


def _cut(segment: Segment, at: float | None) -> Segment:
    """The segment up to the time `at`."""
    if at is None or segment.end <= at:
        return segment
    samples = max(0, round((at - segment.start) * SAMPLE_RATE))
    return Segment(segment.item_id, segment.start, segment.pcm[: samples * BYTES_PER_SAMPLE])
