"""ITU-T G.711: mu-law and A-law, both ways, by tables built once from the recommendation's reference arithmetic (G.191).

A G.711 byte is one sample at 8 kHz; PCM here is mono signed 16-bit little-endian bytes at the same rate.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .pcm import Buffer, to_int16

SAMPLE_RATE = 8_000

_MU_LAW_BIAS = 33
_MU_LAW_CLIP = 0x1FFF


def _ones_complement_magnitude(linear: npt.NDArray[np.int32], shift: int) -> npt.NDArray[np.int32]:
    """|x| of the top bits as the recommendation takes it: the one's complement of negative values."""
    return np.where(linear < 0, ~linear, linear) >> shift


def _build_mu_law_encoder() -> npt.NDArray[np.uint8]:
    linear = np.arange(-32768, 32768, dtype=np.int32)
    magnitude = np.minimum(_ones_complement_magnitude(linear, 2) + _MU_LAW_BIAS, _MU_LAW_CLIP)
    segment = np.floor(np.log2(magnitude)).astype(np.int32) - 4
    code = ((8 - segment) << 4) | (15 - ((magnitude >> segment) & 15))
    code = np.where(linear >= 0, code | 0x80, code)
    return np.roll(code.astype(np.uint8), -32768)  # indexed by the sample's bits as uint16


def _build_mu_law_decoder() -> npt.NDArray[np.int16]:
    code = np.arange(256, dtype=np.int32)
    inverted = ~code
    exponent = (inverted >> 4) & 7
    step = 8 << exponent
    magnitude = (0x80 << exponent) + step * (inverted & 15) + step // 2 - 4 * _MU_LAW_BIAS
    return np.where(code < 0x80, -magnitude, magnitude).astype(np.int16)


def _build_a_law_encoder() -> npt.NDArray[np.uint8]:
    linear = np.arange(-32768, 32768, dtype=np.int32)
    magnitude = _ones_complement_magnitude(linear, 4)
    exponent = np.maximum(np.floor(np.log2(np.maximum(magnitude, 1))).astype(np.int32) - 3, 0)
    mantissa = (magnitude >> np.maximum(exponent - 1, 0)) & 15
    code = (exponent << 4) | mantissa
    code = np.where(linear >= 0, code | 0x80, code) ^ 0x55
    return np.roll(code.astype(np.uint8), -32768)


def _build_a_law_decoder() -> npt.NDArray[np.int16]:
    code = np.arange(256, dtype=np.int32)
    plain = (code ^ 0x55) & 0x7F
    exponent = plain >> 4
    mantissa = (plain & 15) + np.where(exponent > 0, 16, 0)
    magnitude = ((mantissa << 4) + 8) << np.maximum(exponent - 1, 0)
    linear: npt.NDArray[np.int16] = np.where(code > 127, magnitude, -magnitude).astype(np.int16)
    return linear


_MU_LAW_ENCODER = _build_mu_law_encoder()
_MU_LAW_DECODER = _build_mu_law_decoder()
_A_LAW_ENCODER = _build_a_law_encoder()
_A_LAW_DECODER = _build_a_law_decoder()


def encode_mu_law(pcm: Buffer) -> bytes:
    """16-bit PCM to mu-law (PCMU), one byte a sample."""
    return _MU_LAW_ENCODER[to_int16(pcm).view(np.uint16)].tobytes()


def decode_mu_law(data: Buffer) -> bytes:
    """mu-law (PCMU) to 16-bit PCM."""
    return _MU_LAW_DECODER[np.frombuffer(data, np.uint8)].astype("<i2", copy=False).tobytes()


def encode_a_law(pcm: Buffer) -> bytes:
    """16-bit PCM to A-law (PCMA), one byte a sample."""
    return _A_LAW_ENCODER[to_int16(pcm).view(np.uint16)].tobytes()


def decode_a_law(data: Buffer) -> bytes:
    """A-law (PCMA) to 16-bit PCM."""
    return _A_LAW_DECODER[np.frombuffer(data, np.uint8)].astype("<i2", copy=False).tobytes()
