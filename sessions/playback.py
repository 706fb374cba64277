"""The playback ledger: what of an answer was sent, and what the listener has heard of it."""

from __future__ import annotations

from .timeline import SAMPLE_RATE


class PlaybackLedger:
    """A simulated player at the far end: it plays what was delivered, in real time, from the moment it arrives.

    `released` counts samples given to the transport, `delivered` those that the transport handed to the socket or track.
    `heard(now)` is the player's position. When the player runs dry before `complete()` was called, that is an underrun.
    """

    def __init__(self) -> None:
        self.released = 0
        self.delivered = 0
        self.underruns = 0
        self.first_delivery: float | None = None
        self._head = 0.0
        self._at: float | None = None
        self._complete = False
        self._stopped = False

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
        self._stopped = True

    def heard(self, now: float) -> float:
        """Samples heard by now."""
        self._advance(now)
        return self._head

    def heard_ms(self, now: float) -> float:
        return self.heard(now) * 1000 / SAMPLE_RATE

    def ahead(self, now: float) -> float:
        """Samples released but not heard yet."""
        return self.released - self.heard(now)

    def playing(self, now: float) -> bool:
        """Whether the listener is still hearing, or about to hear, released audio."""
        return not self._stopped and self.ahead(now) > 0

    def ends_at(self, now: float) -> float:
        """When the audio released so far will have been played."""
        return now + max(0.0, self.ahead(now)) / SAMPLE_RATE

    def _advance(self, now: float) -> None:
        if self._at is not None and not self._stopped and now > self._at:
            self._head = min(float(self.delivered), self._head + (now - self._at) * SAMPLE_RATE)
        if self._at is None or now > self._at:
            self._at = now
