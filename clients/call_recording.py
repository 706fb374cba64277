"""Both sides of a call in one stereo WAV file with their true timing: the caller left, the assistant right."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from ..codecs import wav
from ..codecs.pcm import SAMPLE_RATE, to_int16
from .player import Segment


def save_call(path: str | os.PathLike[str], caller: bytes, caller_started_at: float, heard: Iterable[Segment]) -> None:
    """Write the call. `caller` is everything that was sent, its first sample sounding at `caller_started_at`; `heard` is what the
    listener's player played, on the same clock."""
    wav.write(path, caller, assistant_track(heard, caller_started_at))


def assistant_track(heard: Iterable[Segment], started_at: float) -> bytes:
    """What was heard, as one track that begins at `started_at`; what was heard before is left out."""
    placed = [(round((segment.start - started_at) * SAMPLE_RATE), to_int16(segment.pcm)) for segment in heard]
    placed = [(at, samples) for at, samples in placed if at >= 0]
    track = np.zeros(max((at + len(samples) for at, samples in placed), default=0), "<i2")
    for at, samples in placed:
        track[at : at + len(samples)] = samples
    return track.tobytes()
