"""From VAD scores to speech: onset, pauses, end, in session time."""

from __future__ import annotations

from .timeline import SAMPLE_RATE

FRAME = 768
"""Samples in a VAD frame: 32 ms at 24 kHz."""
FRAME_MS = FRAME * 1000 // SAMPLE_RATE


class SpeechEdges:
    """Follows one caller's speech frame by frame.

    Speech begins with the first of enough consecutive frames above the threshold, and pauses when frames fall below the
    threshold less the hysteresis. Positions are samples; `onset` and `last_voiced` are None while nobody has spoken.
    """

    def __init__(self, min_speech_ms: int, hysteresis: float) -> None:
        self._needed = max(1, min_speech_ms // FRAME_MS)
        self._hysteresis = hysteresis
        self.reset()

    def reset(self) -> None:
        """Forget the current speech."""
        self.active = False
        self.onset: int | None = None
        self.last_voiced: int | None = None
        self.position = 0
        self.voiced_frames = 0
        self._run = 0

    def frame(self, start: int, probability: float, threshold: float) -> None:
        """Take the score of the frame that begins at `start`."""
        self.position = start + FRAME
        if self.active:
            if probability >= max(0.01, threshold - self._hysteresis):
                self.last_voiced = self.position
                self.voiced_frames += 1
            return
        if probability < threshold:
            self._run = 0
            self.onset = None
            return
        if self._run == 0:
            self.onset = start
        self._run += 1
        if self._run >= self._needed:
            self.active = True
            self.last_voiced = self.position
            self.voiced_frames = self._run
            self._run = 0

    @property
    def span_ms(self) -> int:
        """From the onset to the last voiced sample."""
        if not self.active or self.onset is None or self.last_voiced is None:
            return 0
        return (self.last_voiced - self.onset) * 1000 // SAMPLE_RATE

    @property
    def silence_ms(self) -> int:
        """Since the last voiced sample."""
        if not self.active or self.last_voiced is None:
            return 0
        return (self.position - self.last_voiced) * 1000 // SAMPLE_RATE
