"""WAV files: read any uncompressed encoding to 24 kHz mono, write 16-bit mono or stereo."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import g711
from .pcm import SAMPLE_RATE, Buffer, FloatArray, from_float, to_float
from .resample import resample

_FORMAT_PCM, _FORMAT_FLOAT, _FORMAT_A_LAW, _FORMAT_MU_LAW, _FORMAT_EXTENSIBLE = 1, 3, 6, 7, 0xFFFE


class WavError(ValueError):
    """The file is no WAV, is cut short, or holds a compressed encoding."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A recording as stored: `samples [frames, channels] float32` in [-1, 1]."""

    samples: FloatArray
    sample_rate: int

    def mono(self, sample_rate: int = SAMPLE_RATE) -> FloatArray:
        """All channels averaged, at the wanted rate: `[n] float32`."""
        return resample(self.samples.mean(axis=1, dtype=np.float32), self.sample_rate, sample_rate)


def read(path: str | os.PathLike[str]) -> bytes:
    """Any PCM WAV file as mono 16-bit PCM at 24 kHz. Raises `WavError`, OSError."""
    return from_float(load(path).mono())


def load(path: str | os.PathLike[str]) -> Sound:
    """A WAV file as it is. Raises `WavError`, OSError."""
    return decode(Path(path).read_bytes(), name=str(path))


def decode(data: bytes, name: str = "the data") -> Sound:
    """WAV bytes as they are: integer PCM of 8, 16, 24 or 32 bits, float of 32 or 64, A-law, mu-law. Raises `WavError`."""
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise WavError(f"{name} is not a WAV file: it does not begin with a RIFF/WAVE header")
    chunks = _chunks(data)
    if b"fmt " not in chunks or b"data" not in chunks or len(chunks[b"fmt "]) < 16:
        raise WavError(f"{name} lacks a format or a data chunk")
    fmt = chunks[b"fmt "]
    encoding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", fmt)
    if encoding == _FORMAT_EXTENSIBLE and len(fmt) >= 26:
        encoding = struct.unpack_from("<H", fmt, 24)[0]  # the first two bytes of the sub-format's GUID
    if channels == 0 or rate == 0:
        raise WavError(f"{name} says it has {channels} channels at {rate} Hz")
    samples = _samples(chunks[b"data"], encoding, bits, name)
    frames = len(samples) // channels
    return Sound(samples[: frames * channels].reshape(frames, channels), rate)


def _chunks(data: bytes) -> dict[bytes, bytes]:
    """The file's chunks by name. A data chunk whose stated size is 0 or too large (a stream's) runs to the end."""
    found: dict[bytes, bytes] = {}
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
        if name == b"data" and (size in (0, 0xFFFFFFFF) or at + 8 + size > len(data)):
            size = len(data) - at - 8
        found.setdefault(name, data[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
    return found


def _samples(raw: bytes, encoding: int, bits: int, name: str) -> FloatArray:
    if encoding == _FORMAT_PCM and bits in (8, 16, 24, 32):
        raw = raw[: len(raw) // (bits // 8) * (bits // 8)]
        if bits == 8:
            return (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / np.float32(128)
        if bits == 16:
            return to_float(raw)
        if bits == 24:
            widened = np.zeros((len(raw) // 3, 4), np.uint8)
            widened[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
            raw = widened.tobytes()
        return (np.frombuffer(raw, "<i4") / 2**31).astype(np.float32)
    if encoding == _FORMAT_FLOAT and bits in (32, 64):
        raw = raw[: len(raw) // (bits // 8) * (bits // 8)]
        return np.nan_to_num(np.frombuffer(raw, f"<f{bits // 8}").astype(np.float32))
    if encoding == _FORMAT_A_LAW and bits == 8:
        return to_float(g711.decode_a_law(raw))
    if encoding == _FORMAT_MU_LAW and bits == 8:
        return to_float(g711.decode_mu_law(raw))
    raise WavError(f"{name} uses WAV encoding {encoding} with {bits} bits; only PCM, float, A-law and mu-law can be read")


def encode(*channels: Buffer, sample_rate: int = SAMPLE_RATE) -> bytes:
    """A 16-bit WAV file in memory from one PCM track (mono) or two (left, right); a shorter track is padded with silence."""
    if len(channels) not in (1, 2):
        raise ValueError(f"a WAV file is written with one or two channels, not {len(channels)}")
    length = max(len(channel) for channel in channels) // 2
    frames = np.zeros((length, len(channels)), "<i2")
    for index, channel in enumerate(channels):
        samples = np.frombuffer(channel, "<i2")
        frames[: len(samples), index] = samples
    body = frames.tobytes()
    block = 2 * len(channels)
    fmt = struct.pack("<HHIIHH", _FORMAT_PCM, len(channels), sample_rate, sample_rate * block, block, 16)
    header = b"RIFF" + struct.pack("<I", 36 + len(body)) + b"WAVEfmt " + struct.pack("<I", 16) + fmt
    return header + b"data" + struct.pack("<I", len(body)) + body


def write(path: str | os.PathLike[str], *channels: Buffer, sample_rate: int = SAMPLE_RATE) -> None:
    """Write one PCM track (mono) or two (left, right) as a 16-bit WAV file."""
    Path(path).write_bytes(encode(*channels, sample_rate=sample_rate))
