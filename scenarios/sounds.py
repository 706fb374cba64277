"""Noises for the callers' end of the line: steady noise, a click, a cough. All 24 kHz PCM, from a seeded generator."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..codecs.pcm import SAMPLE_RATE, FloatArray, from_float, to_float

_WINDOW = SAMPLE_RATE // 100
_AUDIBLE_BELOW_PEAK = 0.01
"""40 dB below the loudest 10 ms: quieter than that, nobody says that somebody speaks."""


def pink(seconds: float, rng: np.random.Generator) -> FloatArray:
    """Pink noise `[n] float32` with a root mean square of 1: equal power in each octave from 20 Hz up."""
    samples = round(seconds * SAMPLE_RATE)
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    frequencies = np.fft.rfftfreq(samples, 1 / SAMPLE_RATE)
    spectrum /= np.sqrt(np.maximum(frequencies, 20.0))
    spectrum[frequencies < 20] = 0
    noise = np.fft.irfft(spectrum, samples)
    return np.asarray(noise / np.sqrt(np.mean(noise**2)), np.float32)


def steady(seconds: float, dbfs: float, rng: np.random.Generator) -> bytes:
    """Pink noise at a level: a fan, a street."""
    return from_float(pink(seconds, rng) * 10 ** (dbfs / 20))


def click(rng: np.random.Generator, *, dbfs: float = -9.0) -> bytes:
    """A knock of 60 ms on the microphone: a burst that dies away at once."""
    samples = round(0.06 * SAMPLE_RATE)
    shape = np.exp(-np.arange(samples) / (0.008 * SAMPLE_RATE))
    return from_float(_at_peak(rng.standard_normal(samples) * shape, dbfs))


def cough(rng: np.random.Generator, *, dbfs: float = -9.0) -> bytes:
    """A cough of 280 ms: a hard burst of breath through a throat (three broad resonances), then a softer tail."""
    samples = round(0.28 * SAMPLE_RATE)
    time = np.arange(samples) / SAMPLE_RATE
    shape = np.where(time < 0.012, time / 0.012, np.exp(-(time - 0.012) / 0.045)) + 0.25 * np.exp(-(((time - 0.17) / 0.04) ** 2))
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    frequencies = np.fft.rfftfreq(samples, 1 / SAMPLE_RATE)
    throat = sum(
        gain / (1 + ((frequencies - centre) / width) ** 2) for centre, width, gain in ((550, 250, 1), (1500, 500, 0.7), (2800, 900, 0.4))
    )
    return from_float(_at_peak(np.fft.irfft(spectrum * throat, samples) * shape, dbfs))


def with_noise(speech: bytes, snr_db: float, rng: np.random.Generator, *, margin_s: float = 0.0) -> bytes:
    """Speech in pink noise, `snr_db` below the level of its audible part. The noise begins and ends `margin_s` outside it."""
    clean = to_float(speech)
    first, last = audible(speech)
    loud = clean[first:last] if last > first else clean
    power = float(np.mean(loud.astype(np.float64) ** 2)) if len(loud) else 0.0
    margin = round(margin_s * SAMPLE_RATE)
    noise = pink(len(clean) / SAMPLE_RATE + 2 * margin_s, rng)[: len(clean) + 2 * margin]
    mixed = noise * np.float32(np.sqrt(power / 10 ** (snr_db / 10)))
    mixed[margin : margin + len(clean)] += clean
    return from_float(mixed)


def audible(pcm: bytes) -> tuple[int, int]:
    """The first audible sample and the one after the last, to 10 ms: where a window's level is within 40 dB of the loudest."""
    samples = to_float(pcm)
    windows = len(samples) // _WINDOW
    if windows == 0:
        return 0, len(samples)
    levels = np.sqrt(np.mean(samples[: windows * _WINDOW].reshape(windows, _WINDOW) ** 2, axis=1))
    loud = np.flatnonzero(levels > levels.max() * _AUDIBLE_BELOW_PEAK) if levels.max() > 0 else np.array([0, windows - 1])
    return int(loud[0]) * _WINDOW, (int(loud[-1]) + 1) * _WINDOW


def _at_peak(samples: npt.NDArray[np.float64], dbfs: float) -> FloatArray:
    return np.asarray(samples / np.abs(samples).max() * 10 ** (dbfs / 20), np.float32)
