"""PCM bytes and float arrays."""

from __future__ import annotations

import numpy as np
import pytest
from antiphon.codecs import pcm
from hypothesis import given
from hypothesis import strategies as st

samples = st.lists(st.integers(-32768, 32767), max_size=200)


@given(samples)
def test_float_and_back_is_exact(values: list[int]) -> None:
    audio = pcm.from_int16(values)
    assert pcm.from_float(pcm.to_float(audio)) == audio


def test_float_beyond_full_scale_is_clipped() -> None:
    assert pcm.to_int16(pcm.from_float([2.0, -2.0, 1.0, -1.0])).tolist() == [32767, -32768, 32767, -32768]


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="half a sample"):
        pcm.to_int16(b"abc")


@given(samples, samples)
def test_mix_is_the_clipped_sum_of_the_longest(first: list[int], second: list[int]) -> None:
    mixed = pcm.to_int16(pcm.mix(pcm.from_int16(first), pcm.from_int16(second))).tolist()
    length = max(len(first), len(second))
    padded = [values + [0] * (length - len(values)) for values in (first, second)]
    assert mixed == [max(-32768, min(32767, a + b)) for a, b in zip(*padded, strict=True)]


def test_levels() -> None:
    square = pcm.from_int16(np.tile([32767, -32767], 500))
    assert pcm.dbfs(square) == pytest.approx(0.0, abs=0.01)
    assert pcm.dbfs(pcm.gain(square, 0.1)) == pytest.approx(-20.0, abs=0.01)
    assert pcm.dbfs(pcm.silence(20)) == pcm.dbfs(b"") == pcm.SILENT_DBFS
    assert pcm.rms(b"") == 0.0


def test_durations() -> None:
    assert len(pcm.silence(20)) == pcm.bytes_in(20) == 960
    assert pcm.duration_ms(pcm.silence(250)) == 250
    assert pcm.samples_in(20, 8_000) == 160
    assert pcm.duration_ms(bytes(320), 8_000) == 20
