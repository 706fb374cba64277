"""Raw PCM: mono signed 16-bit little-endian samples as `bytes`, and float32 arrays in [-1, 1)."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int16Array: TypeAlias = npt.NDArray[np.int16]
FloatArray: TypeAlias = npt.NDArray[np.float32]
Buffer: TypeAlias = bytes | bytearray | memoryview

SAMPLE_RATE = 24_000
"""The rate, in samples a second, of all audio inside the house."""

BYTES_PER_SAMPLE = 2

SILENT_DBFS = -120.0
"""What `dbfs` says of digital silence (its logarithm has no value)."""


def to_int16(pcm: Buffer) -> Int16Array:
    """A read-only view `[n] int16` of PCM bytes. Raises ValueError when they end in half a sample."""
    if len(pcm) % BYTES_PER_SAMPLE:
        raise ValueError(f"PCM of {len(pcm)} bytes ends in half a sample; 16-bit audio has an even number of bytes")
    return np.frombuffer(pcm, dtype="<i2").astype(np.int16, copy=False)


def to_float(pcm: Buffer) -> FloatArray:
    """PCM bytes as `[n] float32` in [-1, 1)."""
    return to_int16(pcm).astype(np.float32) * np.float32(1 / 32768)


def from_float(samples: npt.ArrayLike) -> bytes:
    """Float samples as PCM bytes; what lies outside [-1, 1) is clipped. `from_float(to_float(x)) == x`."""
    scaled = np.rint(np.asarray(samples, dtype=np.float32) * np.float32(32768))
    clipped: Int16Array = np.clip(scaled, -32768, 32767).astype("<i2")
    return clipped.tobytes()


def from_int16(samples: npt.ArrayLike) -> bytes:
    """int16 samples as PCM bytes."""
    return np.asarray(samples, dtype=np.int16).astype("<i2", copy=False).tobytes()


def silence(milliseconds: float, sample_rate: int = SAMPLE_RATE) -> bytes:
    """PCM zeros of the given length."""
    return bytes(samples_in(milliseconds, sample_rate) * BYTES_PER_SAMPLE)


def mix(*tracks: Buffer) -> bytes:
    """The sum of several tracks that begin together, as long as the longest, clipped."""
    if not tracks:
        return b""
    total = np.zeros(max(len(t) for t in tracks) // BYTES_PER_SAMPLE, dtype=np.int32)
    for track in tracks:
        samples = to_int16(track)
        total[: len(samples)] += samples
    return np.clip(total, -32768, 32767).astype("<i2").tobytes()


def gain(pcm: Buffer, factor: float) -> bytes:
    """The same audio, `factor` times as loud, clipped."""
    return from_float(to_float(pcm) * np.float32(factor))


def rms(pcm: Buffer) -> float:
    """Root mean square, 0 to 1; 0 for no samples."""
    samples = to_int16(pcm)
    if not len(samples):
        return 0.0
    wide = samples.astype(np.float64)
    return float(np.sqrt(np.dot(wide, wide) / len(wide)) / 32768)


def dbfs(pcm: Buffer) -> float:
    """Level in decibels below full scale: 0 for a full-scale square wave, `SILENT_DBFS` for silence."""
    level = rms(pcm)
    return max(SILENT_DBFS, float(20 * np.log10(level))) if level > 0 else SILENT_DBFS


def samples_in(milliseconds: float, sample_rate: int = SAMPLE_RATE) -> int:
    """How many samples last that long, rounded."""
    return round(milliseconds * sample_rate / 1000)


def bytes_in(milliseconds: float, sample_rate: int = SAMPLE_RATE) -> int:
    """How many bytes of 16-bit mono PCM last that long."""
    return samples_in(milliseconds, sample_rate) * BYTES_PER_SAMPLE


def duration_ms(pcm: Buffer, sample_rate: int = SAMPLE_RATE) -> float:
    """How long 16-bit mono PCM lasts, in ms."""
    return len(pcm) / BYTES_PER_SAMPLE * 1000 / sample_rate
