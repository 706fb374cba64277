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
    runs dry before `complete()` was called, that is an underrun. Questions change nothing, so that what happens to a session
    does not depend on how often somebody looked.
    """

    def __init__(self) -> None:
        self.released = 0
        self.delivered = 0
        self.underruns = 0
        self.first_delivery: float | None = None
        self._after: PlaybackLedger | None = None
        self._head = 0.0
        """Samples heard at the time `_since`."""
        self._since = 0.0
        self._complete = False
        self._stopped = False
        self._withheld = False

    def follow(self, before: PlaybackLedger, now: float) -> None:
        """The player still has the audio of another answer: this one is heard after it."""
        earlier: PlaybackLedger | None = before
        while earlier is not None and not earlier.playing(now):
            earlier = earlier._after
        if earlier is not None:
            earlier._part(now)
        self._after = earlier

    def release(self, samples: int) -> None:
        """Samples given to the transport."""
        self.released += samples

    def deliver(self, samples: int, now: float) -> None:
        """Samples handed to the socket."""
        self._part(now)
        self._head, self._since = self.heard(now), now
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
        if not self._stopped:
            self._part(now)
            self._head, self._since = self.heard(now), now
            self._stopped = True

    def withhold(self) -> None:
        """What was released but not delivered never will be; the player plays the rest."""
        self._withheld = True
        self._complete = True

    def heard(self, now: float) -> float:
        """Samples heard by now."""
        begin = self._begin(now)
        if begin is None or self._stopped or self.first_delivery is None:
            return self._head
        played = self._head + max(0.0, now - begin) * SAMPLE_RATE
        return played if played < self.delivered - _NOTHING else float(self.delivered)

    def heard_ms(self, now: float) -> float:
        return self.heard(now) * 1000 / SAMPLE_RATE

    @property
    def waiting(self) -> int:
        """Samples of this answer that wait for the transport."""
        return 0 if self._stopped or self._withheld else self.released - self.delivered

    @property
    def undelivered(self) -> int:
        """Samples that wait for the transport, those of the answer before included."""
        return self.waiting + (self._after.undelivered if self._after is not None else 0)

    def ahead(self, now: float) -> float:
        """Samples released but not heard yet, those of the answer before included."""
        mine = 0.0 if self._stopped else self._left(now)
        return mine + (self._after.ahead(now) if self._after is not None else 0.0)

    def playing(self, now: float) -> bool:
        """Whether the listener is still hearing, or about to hear, released audio."""
        return not self._stopped and self._left(now) > _NOTHING

    def falls_to(self, samples: float, now: float) -> float | None:
        """When `ahead` will have fallen to `samples`; None: not before the transport delivers more."""
        if self.undelivered > samples + _NOTHING:
            return None
        return now + max(0.0, self.ahead(now) - samples) / SAMPLE_RATE

    def _part(self, now: float) -> None:
        """Forget the answer before once it has been heard: what is asked often must not look ever further back."""
        if self._after is None:
            return
        self._after._part(now)
        ended = self._after._ended_at(now)
        if ended is not None:
            self._since, self._after = max(self._since, ended), None

    def _left(self, now: float) -> float:
        return (self.delivered if self._withheld else self.released) - self.heard(now)

    def _begin(self, now: float) -> float | None:
        """From when on `_head` moves; None: the answer before still plays."""
        if self._after is None:
            return self._since
        ended = self._after._ended_at(now)
        return None if ended is None else max(self._since, ended)

    def _ended_at(self, now: float) -> float | None:
        """When the last of this was heard; None: it still plays."""
        begin = self._begin(now)
        if begin is None or self.playing(now):
            return None
        return begin if self._stopped else begin + (self.delivered - self._head) / SAMPLE_RATE
