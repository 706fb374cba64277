"""The codecs of an audio track behind one interface: Opus, and G.711 for callers that have nothing else.

Outside, payloads of RTP packets; inside, mono 16-bit PCM at 24 kHz. A track codec is for one direction of one call.
"""

from __future__ import annotations

from typing import Protocol

from ....codecs import g711, opus, pcm
from ....codecs.resample import Resampler

FRAME_SAMPLES = 480
"""20 ms at 24 kHz: what a track carries in one packet."""
FRAME_BYTES = 2 * FRAME_SAMPLES
SILENCE = bytes(FRAME_BYTES)


class TrackDecoder(Protocol):
    """Payloads to PCM. `samples` counts at 24 kHz."""

    clock_rate: int
    """RTP timestamp units in a second."""

    def samples(self, payload: bytes) -> int:
        """How much audio a payload holds; 0 for what cannot be decoded."""

    def decode(self, payload: bytes) -> bytes | None:
        """A payload's audio; None for what cannot be decoded."""

    def recover(self, samples: int, following: bytes) -> bytes | None:
        """The audio lost before `following`, if that payload carries a copy."""

    def conceal(self, samples: int) -> bytes:
        """Something to put in the place of lost audio."""


class TrackEncoder(Protocol):
    """Frames of 20 ms to payloads."""

    clock_rate: int
    discontinuous: bool
    """Whether silence may be left out (the payload for it is one or two bytes)."""

    def encode(self, frame: bytes) -> bytes:
        """One frame of `FRAME_BYTES`."""

    def protect(self, loss_percent: int) -> None:
        """Prepare for so much packet loss."""


class OpusTrackDecoder:
    """See `TrackDecoder`."""

    clock_rate = 48_000

    def __init__(self) -> None:
        self._decoder = opus.OpusDecoder()

    def samples(self, payload: bytes) -> int:
        try:
            return opus.packet_samples(payload)
        except opus.OpusError:
            return 0

    def decode(self, payload: bytes) -> bytes | None:
        try:
            return self._decoder.decode(payload)
        except opus.OpusError:
            return None

    def recover(self, samples: int, following: bytes) -> bytes | None:
        if not opus.has_fec(following):
            return None
        try:
            return self._decoder.recover(following, samples)
        except opus.OpusError:
            return None

    def conceal(self, samples: int) -> bytes:
        return self._decoder.conceal(samples)


class OpusTrackEncoder:
    """See `TrackEncoder`."""

    clock_rate = 48_000
    discontinuous = True

    def __init__(self, *, bitrate: int, complexity: int) -> None:
        self._encoder = opus.OpusEncoder(bitrate=bitrate, complexity=complexity)

    @property
    def mode(self) -> opus.Mode:
        return self._encoder.mode

    def encode(self, frame: bytes) -> bytes:
        return self._encoder.encode(frame)

    def protect(self, loss_percent: int) -> None:
        self._encoder.protect(loss_percent)


class G711TrackDecoder:
    """PCMU or PCMA at 8 kHz. What is lost is the last frame again, fading."""

    clock_rate = g711.SAMPLE_RATE

    def __init__(self, name: str) -> None:
        self._to_pcm = g711.decode_mu_law if name == "PCMU" else g711.decode_a_law
        self._resampler = Resampler(g711.SAMPLE_RATE, pcm.SAMPLE_RATE)
        self._last = SILENCE
        self._repeats = 0

    def samples(self, payload: bytes) -> int:
        return 3 * len(payload)

    def decode(self, payload: bytes) -> bytes | None:
        if not payload:
            return None
        self._last, self._repeats = self._resampler.process_pcm(self._to_pcm(payload)), 0
        return self._last

    def recover(self, samples: int, following: bytes) -> bytes | None:
        return None

    def conceal(self, samples: int) -> bytes:
        self._repeats += 1
        if self._repeats > 3 or not self._last:
            return bytes(2 * samples)
        again = pcm.gain(self._last, 0.5**self._repeats)
        return (again * (2 * samples // len(again) + 1))[: 2 * samples]


class G711TrackEncoder:
    """PCMU or PCMA at 8 kHz, 160 bytes a frame; the resampler's look-ahead delays it by 2 ms."""

    clock_rate = g711.SAMPLE_RATE
    discontinuous = False

    def __init__(self, name: str) -> None:
        self._from_pcm = g711.encode_mu_law if name == "PCMU" else g711.encode_a_law
        self._resampler = Resampler(pcm.SAMPLE_RATE, g711.SAMPLE_RATE)
        self._narrow = bytes(2 * 24)

    def encode(self, frame: bytes) -> bytes:
        self._narrow += self._resampler.process_pcm(frame)
        block, self._narrow = self._narrow[:320], self._narrow[320:]
        return self._from_pcm(block)

    def protect(self, loss_percent: int) -> None:
        """G.711 cannot protect itself."""
