"""WAV files of every encoding we claim to read."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest
from antiphon.codecs import g711, pcm, wav
from hypothesis import given
from hypothesis import strategies as st

TONE = (np.sin(np.arange(2400) * 0.1) * 0.5).astype(np.float32)


def riff(encoding: int, bits: int, body: bytes, *, rate: int = 24_000, channels: int = 1, extensible: bool = False) -> bytes:
    block = channels * bits // 8
    fmt = struct.pack("<HHIIHH", 0xFFFE if extensible else encoding, channels, rate, rate * block, block, bits)
    if extensible:
        fmt += struct.pack("<HHIH", 22, bits, 0, encoding) + b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
    chunks = b"LIST\x03\x00\x00\x00abc\x00" + b"fmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def in_24_bits(samples: np.ndarray) -> bytes:
    return (samples * 2**23).astype("<i4").tobytes()


ENCODINGS = {
    "8 bits": riff(1, 8, ((TONE * 128) + 128).astype(np.uint8).tobytes()),
    "16 bits": riff(1, 16, pcm.from_float(TONE)),
    "24 bits": riff(1, 24, b"".join(in_24_bits(TONE)[at : at + 3] for at in range(0, 4 * len(TONE), 4))),
    "32 bits": riff(1, 32, (TONE * 2.0**31).astype("<i4").tobytes()),
    "float": riff(3, 32, TONE.astype("<f4").tobytes()),
    "double": riff(3, 64, TONE.astype("<f8").tobytes()),
    "extensible": riff(1, 16, pcm.from_float(TONE), extensible=True),
    "mu-law": riff(7, 8, g711.encode_mu_law(pcm.from_float(TONE))),
    "A-law": riff(6, 8, g711.encode_a_law(pcm.from_float(TONE))),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_is_read(name: str) -> None:
    sound = wav.decode(ENCODINGS[name])
    assert sound.samples.shape == (2400, 1)
    assert np.abs(sound.samples[:, 0] - TONE).max() < 0.02


def test_stereo_at_another_rate_becomes_mono_at_24_khz(tmp_path: Path) -> None:
    left, right = np.full(4800, 0.5, np.float32), np.full(4800, -0.25, np.float32)
    path = tmp_path / "stereo.wav"
    wav.write(path, pcm.from_float(left), pcm.from_float(right), sample_rate=48_000)
    audio = pcm.to_float(wav.read(path))
    assert len(audio) == 2400
    assert audio[1000:1400] == pytest.approx(0.125, abs=1e-3)


def test_what_we_write_others_read(tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    wav.write(path, pcm.from_float(TONE), pcm.from_float(TONE[:100]))
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate(), file.getnframes()) == (2, 2, 24_000, 2400)
        frames = np.frombuffer(file.readframes(2400), "<i2").reshape(-1, 2)
    assert frames[:, 0].tobytes() == pcm.from_float(TONE)
    assert not frames[100:, 1].any()


def test_a_stream_without_a_stated_length_is_read_to_its_end() -> None:
    streamed = ENCODINGS["16 bits"].replace(b"data" + struct.pack("<I", 4800), b"data\xff\xff\xff\xff")
    assert len(wav.decode(streamed).samples) == 2400


@pytest.mark.parametrize("data", [b"", b"RIFF", b"OggS" + bytes(60), riff(2, 4, b"abcd"), ENCODINGS["16 bits"][:30]])
def test_what_is_no_readable_wav_is_an_error(data: bytes) -> None:
    with pytest.raises(wav.WavError):
        wav.decode(data)


@given(st.binary(max_size=300))
def test_garbage_never_raises_anything_else(data: bytes) -> None:
    for candidate in (data, b"RIFF\x00\x00\x00\x00WAVE" + data, ENCODINGS["float"][:44] + data):
        try:
            wav.decode(candidate)
        except wav.WavError:
            continue
