"""The playback ledger: what of an answer was sent, and what the listener has heard of it."""

from __future__ import annotations

from .timeline import SAMPLE_RATE

_NOTHING = 0.5
"""Samples; less than this is a rounding error."""


class PlaybackLedger:
    """A simulated player at the far end: it plays what was delivered, in real time, from the moment it arrives, one answer after
    the other.

    `released` counts samples given to the transport, `delivered` those that the transport handed to the socket or track.
    `heard(now)` is the player's position. Always heard <= delivered <= released, and none of them falls. When the player
    runs dry before `complete()` was called, that is an underrun.
    """

    def __init__(self) -> None:
        self.released = 0
        self.delivered = 0
        self.underruns = 0
        self.first_delivery: float | None = None
        self._after: PlaybackLedger | None = None
        self._head = 0.0
        self._at: float | None = None
        self._dry_at = 0.0
        self._complete = False
        self._stopped = False
        self._withheld = False

    def follow(self, before: PlaybackLedger, now: float) -> None:
        """The player still has the audio of another answer: this one is heard after it."""
        earlier: PlaybackLedger | None = before
        while earlier is not None and not earlier.playing(now):
            earlier = earlier._after
        self._after = earlier

    def release(self, samples: int) -> None:
        """Samples given to the transport."""
        self.released += samples

    def deliver(self, samples: int, now: float) -> None:
        """Samples handed to the socket."""
        self._advance(now)
        if self.first_delivery is None:
            self.first_delivery = now
        elif self._head >= self.delivered and not self._complete and not self._stopped:
            self.underruns += 1
        self.delivered = min(self.released, self.delivered + samples)

    def complete(self) -> None:
        """No more audio will come."""
        self._complete = True

    def stop(self, now: float) -> None:
        """The player was told to stop: what is heard stays as it is."""
        self._advance(now)
        if not self._stopped:
            self._stopped = True
            self._dry_at = now

    def withhold(self) -> None:
        """What was released but not delivered never will be; the player plays the rest."""
        self._withheld = True
        self._complete = True

    def heard(self, now: float) -> float:
        """Samples heard by now."""
        self._advance(now)
        return self._head

    def heard_ms(self, now: float) -> float:
        return self.heard(now) * 1000 / SAMPLE_RATE

    @property
    def undelivered(self) -> int:
        """Samples that wait for the transport, those of the answer before included."""
        mine = 0 if self._stopped or self._withheld else self.released - self.delivered
        return mine + (self._after.undelivered if self._after is not None else 0)

    def ahead(self, now: float) -> float:
        """Samples released but not heard yet, those of the answer before included."""
        return self._left(now)

    def playing(self, now: float) -> bool:
        """Whether the listener is still hearing, or about to hear, released audio."""
        return not self._stopped and self._own(now) > _NOTHING

    def falls_to(self, samples: float, now: float) -> float | None:
        """When `ahead` will have fallen to `samples`; None: not before the transport delivers more."""
        if self.undelivered > samples + _NOTHING:
            return None
        return now + max(0.0, self.ahead(now) - samples) / SAMPLE_RATE

    def _own(self, now: float) -> float:
        end = self.delivered if self._withheld else self.released
        return end - self.heard(now)

    def _left(self, now: float) -> float:
        mine = 0.0 if self._stopped else self._own(now)
        return mine + (self._after._left(now) if self._after is not None else 0.0)

    def _ended_at(self, now: float) -> float | None:
        """When the last of this was heard; None: it still plays."""
        self._advance(now)
        if self._after is not None or self.playing(now):
            return None
        return self._dry_at

    def _advance(self, now: float) -> None:
        begin = self._at
        if self._after is not None:
            ended = self._after._ended_at(now)
            if ended is not None:
                self._after = None
                self._dry_at = max(self._dry_at, ended)
                begin = ended if begin is None else max(begin, ended)
        if self._after is None and begin is not None and not self._stopped and now > begin:
            played = (now - begin) * SAMPLE_RATE
            left = self.delivered - self._head
            if played < left:
                self._head += played
            elif left > 0:
                self._head = float(self.delivered)
                self._dry_at = begin + left / SAMPLE_RATE
        if self._at is None or now > self._at:
            self._at = now
