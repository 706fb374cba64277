"""G.711 against the reference arithmetic of ITU-T G.191 and the tables' own properties."""

from __future__ import annotations

import numpy as np
from antiphon.codecs import g711, pcm

EVERY_SAMPLE = np.arange(-32768, 32768)
EVERY_CODE = bytes(range(256))


def reference_mu_law(linear: int) -> int:
    """G.191 `ulaw_compress`, word for word."""
    magnitude = min(((~linear >> 2) if linear < 0 else (linear >> 2)) + 33, 0x1FFF)
    segment, rest = 1, magnitude >> 6
    while rest:
        segment, rest = segment + 1, rest >> 1
    code = ((8 - segment) << 4) | (0xF - ((magnitude >> segment) & 0xF))
    return code | 0x80 if linear >= 0 else code


def reference_a_law(linear: int) -> int:
    """G.191 `alaw_compress`, word for word."""
    code = ((~linear) >> 4) if linear < 0 else (linear >> 4)
    if code > 15:
        exponent = 1
        while code > 16 + 15:
            code, exponent = code >> 1, exponent + 1
        code = code - 16 + (exponent << 4)
    return (code | 0x80 if linear >= 0 else code) ^ 0x55


def test_mu_law_encoder_is_the_reference_for_every_sample() -> None:
    assert g711.encode_mu_law(pcm.from_int16(EVERY_SAMPLE)) == bytes(map(reference_mu_law, EVERY_SAMPLE.tolist()))


def test_a_law_encoder_is_the_reference_for_every_sample() -> None:
    assert g711.encode_a_law(pcm.from_int16(EVERY_SAMPLE)) == bytes(map(reference_a_law, EVERY_SAMPLE.tolist()))


def test_known_values_of_the_decoders() -> None:
    mu_law = pcm.to_int16(g711.decode_mu_law(bytes([0x00, 0x80, 0x7F, 0xFF, 0xF0])))
    assert mu_law.tolist() == [-32124, 32124, 0, 0, 120]
    a_law = pcm.to_int16(g711.decode_a_law(bytes([0xD5, 0x55, 0xAA, 0x2A])))
    assert a_law.tolist() == [8, -8, 32256, -32256]


def test_every_code_survives_decoding_and_encoding() -> None:
    assert g711.encode_a_law(g711.decode_a_law(EVERY_CODE)) == EVERY_CODE
    again = bytearray(g711.encode_mu_law(g711.decode_mu_law(EVERY_CODE)))
    assert again[0x7F] == 0xFF  # minus zero becomes zero
    again[0x7F] = 0x7F
    assert bytes(again) == EVERY_CODE


def test_speech_levels_keep_38_decibels() -> None:
    tone = np.sin(np.arange(8000) * 0.3) * 8000
    for encode, decode in ((g711.encode_mu_law, g711.decode_mu_law), (g711.encode_a_law, g711.decode_a_law)):
        error = pcm.to_int16(decode(encode(pcm.from_int16(tone.astype(np.int16))))) - tone
        assert 20 * np.log10(np.std(tone) / np.std(error)) > 36
