"""Whisper's log-mel features in numpy; Whisper and Smart Turn both read them."""

from __future__ import annotations

import functools

import numpy as np

from ...codecs.pcm import FloatArray

SAMPLE_RATE = 16_000
HOP = 160
"""Samples between two feature frames: 10 ms."""

_WINDOW = 400
_FLOOR = np.float32(1e-10)


@functools.lru_cache(maxsize=4)
def mel_filters(bands: int = 80) -> FloatArray:
    """Slaney's mel filters for a 400 point FFT at 16 kHz: `[bands, 201]`."""

    def to_hertz(mel: FloatArray) -> FloatArray:
        """Linear below 1 kHz, logarithmic above (Slaney, Auditory Toolbox)."""
        return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))

    highest = 15 + np.log(8000 / 1000) * 27 / np.log(6.4)
    edges = to_hertz(np.linspace(0, highest, bands + 2))
    bins = np.arange(_WINDOW // 2 + 1) * (SAMPLE_RATE / _WINDOW)
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    area = 2 / (edges[2:] - edges[:-2])
    filters: FloatArray = (np.maximum(0, np.minimum(rising, falling)) * area[:, None]).astype(np.float32)
    return filters


_HANN: FloatArray = np.hanning(_WINDOW + 1)[:-1].astype(np.float32)


def log_mel(audio: FloatArray, bands: int = 80) -> FloatArray:
    """`[n] float32` at 16 kHz -> `[bands, n // 160] float32`, about -1 to 1 (Radford et al. 2022, `log_mel_spectrogram`)."""
    padded = np.pad(audio.astype(np.float32, copy=False), _WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP][: len(audio) // HOP]
    spectrum = np.fft.rfft(frames * _HANN, axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    mel = np.log10(np.maximum(mel_filters(bands) @ power.T.astype(np.float32, copy=False), _FLOOR))
    mel = np.maximum(mel, mel.max() - 8)
    result: FloatArray = ((mel + 4) / 4).astype(np.float32)
    return result
