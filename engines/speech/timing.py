"""From a model's durations to word times, and from its padding to natural pauses."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...codecs.pcm import SAMPLE_RATE, FloatArray
from ..messages import Word
from .phonemes import Utterance

_LEAD_MS = 30.0
"""Silence kept before the first sound."""

_PAUSE_MS = {".": 260.0, "!": 260.0, "?": 260.0, "…": 320.0, ",": 130.0, ";": 180.0, ":": 180.0, "—": 200.0}
_NO_PAUSE_MS = 50.0
_AUDIBLE = 0.005
"""A sound is audible from this fraction of the utterance's peak on."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Audio without most of the model's padding: `removed` samples went away at its start, the last sound ends at `sounding`."""

    audio: FloatArray
    removed: int = 0
    sounding: int = 0


def trim(audio: FloatArray, closing: str, speed: float) -> Trimmed:
    """Leave a breath before the first sound and a natural pause behind the last.

    `closing` is the last spoken character: after a full stop the pause is longer than after a comma.
    """
    peak = float(np.abs(audio).max()) if len(audio) else 0.0
    if peak == 0.0:
        return Trimmed(audio[:0])
    audible = np.flatnonzero(np.abs(audio) > peak * _AUDIBLE)
    pause_ms = _PAUSE_MS.get(closing, _NO_PAUSE_MS) / speed
    first = max(0, int(audible[0]) - int(_LEAD_MS * SAMPLE_RATE / 1000))
    last = int(audible[-1]) + 1
    wanted = last + int(pause_ms * SAMPLE_RATE / 1000)
    trimmed = audio[first : min(len(audio), wanted)]
    if wanted > len(audio):
        trimmed = np.concatenate((trimmed, np.zeros(wanted - len(audio), np.float32)))
    return Trimmed(trimmed, first, last - first)


def word_times(utterance: Utterance, durations: npt.NDArray[np.float32], raw_samples: int, trimmed: Trimmed) -> tuple[Word, ...]:
    """One `Word` per piece, times in ms from the trimmed audio's start, rising, the last ending with the last sound.

    `durations [len(ids)]` in any unit: they are scaled to `raw_samples`, the length of the audio before trimming.
    """
    total = float(durations.sum())
    edges = np.concatenate(([0.0], np.cumsum(durations, dtype=np.float64))) * (raw_samples / total if total > 0 else 0.0)
    length = trimmed.sounding * 1000 / SAMPLE_RATE
    words: list[Word] = []
    at = 0.0
    for piece, (first, last) in zip(utterance.pieces, utterance.spans, strict=True):
        if last > first:
            sounding_last = last - 1 if last - first > 1 and piece.spoken[-1:] in _PAUSE_MS else last  # the pause is no part of the word
            start, end = ((edges[edge] - trimmed.removed) * 1000 / SAMPLE_RATE for edge in (first, sounding_last))
            start = min(max(at, float(start)), length)
            at = min(max(start, float(end)), length)
        else:
            start = at
        words.append(Word(piece.written, round(start, 1), round(at, 1)))
    return tuple(words)


def ramp(first_ms: float, growth: float, largest_ms: float) -> itertools.chain[int]:
    """Chunk lengths in samples: small at first, so that sound starts at once, then growing to a steady size."""

    def lengths() -> list[int]:
        grown: list[int] = []
        size = first_ms
        while size < largest_ms:
            grown.append(int(size * SAMPLE_RATE / 1000))
            size *= growth
        return grown

    return itertools.chain(lengths(), itertools.repeat(int(largest_ms * SAMPLE_RATE / 1000)))
