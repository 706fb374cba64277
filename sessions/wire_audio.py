"""Audio between the wire and the house: G.711 or PCM outside, mono 16-bit PCM at 24 kHz inside."""

from __future__ import annotations

from ..codecs import g711
from ..codecs.resample import Resampler
from .timeline import SAMPLE_RATE

G711_RATE = 8_000


class OutputEncoder:
    """Encodes one answer's audio block by block: PCM as it is, G.711 with the resampler's state kept."""

    def __init__(self, format_type: str) -> None:
        self._format = format_type
        self._resampler = None if format_type == "audio/pcm" else Resampler(SAMPLE_RATE, G711_RATE)

    def encode(self, pcm: bytes) -> bytes:
        """The next block. The resampler holds the last 2 ms back until it sees what follows."""
        return pcm if self._resampler is None else self._narrow(self._resampler.process_pcm(pcm))

    def flush(self) -> bytes:
        """What was held back, once there is no more."""
        return b"" if self._resampler is None else self._narrow(self._resampler.flush_pcm())

    def _narrow(self, pcm: bytes) -> bytes:
        return g711.encode_mu_law(pcm) if self._format == "audio/pcmu" else g711.encode_a_law(pcm)


class InputDecoder:
    """Decodes the caller's audio to 24 kHz PCM. Odd bytes wait for the next block."""

    def __init__(self, format_type: str) -> None:
        self._format = format_type
        self._resampler = None if format_type == "audio/pcm" else Resampler(G711_RATE, SAMPLE_RATE)
        self._odd = b""

    def decode(self, data: bytes) -> bytes:
        """The next block as mono 16-bit PCM at 24 kHz."""
        if self._resampler is not None:
            wide = g711.decode_mu_law(data) if self._format == "audio/pcmu" else g711.decode_a_law(data)
            return self._resampler.process_pcm(wide)
        if self._odd:
            data = self._odd + data
        self._odd = data[len(data) & ~1 :]
        return data[: len(data) & ~1] if self._odd else data
