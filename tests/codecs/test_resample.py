"""The resampler: any cutting into blocks gives the one-shot result; tones pass, aliases don't."""

from __future__ import annotations

import numpy as np
import pytest
from antiphon.codecs import pcm
from antiphon.codecs.resample import Resampler, RowResampler, resample, resample_pcm
from hypothesis import given, settings
from hypothesis import strategies as st

PAIRS = [(24_000, 16_000), (8_000, 24_000), (24_000, 8_000), (16_000, 24_000), (48_000, 24_000), (44_100, 24_000), (22_050, 24_000)]


def tone(hertz: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate).astype(np.float32)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_tone_keeps_its_phase_and_level(source: int, target: int) -> None:
    output = resample(tone(1000, source), source, target)
    expected = tone(1000, target)
    assert len(output) == len(expected)
    inside = slice(target // 50, -target // 50)
    assert np.abs(output - expected)[inside].max() < 2e-3


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[1] < pair[0]])
def test_what_would_alias_is_gone(source: int, target: int) -> None:
    output = resample(tone(target / 2 * 1.1, source), source, target)
    assert np.abs(output[target // 50 : -target // 50]).max() < 1e-3


@given(st.data(), st.sampled_from(PAIRS))
@settings(max_examples=60, deadline=None)
def test_blocks_joined_are_the_one_shot_result(data: st.DataObject, pair: tuple[int, int]) -> None:
    source, target = pair
    length = data.draw(st.integers(0, 3000))
    audio = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    converter = Resampler(source, target)
    blocks, at = [], 0
    while at < length:
        size = data.draw(st.integers(1, 900))
        blocks.append(converter.process(audio[at : at + size]))
        at += size
    joined = np.concatenate([*blocks, converter.flush()])
    np.testing.assert_allclose(joined, resample(audio, source, target), atol=2e-6)
    assert len(joined) == -(-length * target // source)


def test_the_first_block_is_shorter_by_the_stated_latency() -> None:
    converter = Resampler(24_000, 8_000)
    first = converter.process(np.zeros(480, np.float32))
    assert len(first) == (480 - converter.latency) // 3
    assert converter.latency / 24_000 <= 0.002


def test_flush_begins_a_new_stream() -> None:
    converter = Resampler(24_000, 16_000)
    audio = tone(440, 24_000, 0.1)
    first = np.concatenate([converter.process(audio), converter.flush()])
    second = np.concatenate([converter.process(audio), converter.flush()])
    np.testing.assert_array_equal(first, second)


def test_equal_rates_pass_through() -> None:
    audio = pcm.from_float(tone(440, 24_000, 0.1))
    assert resample_pcm(audio, 24_000, 24_000) == audio


def test_pcm_in_blocks_is_pcm_in_one_shot() -> None:
    audio = pcm.from_float(tone(440, 8_000, 0.2) * 0.5)
    converter = Resampler(8_000, 24_000)
    parts = [converter.process_pcm(audio[at : at + 320]) for at in range(0, len(audio), 320)]
    assert b"".join([*parts, converter.flush_pcm()]) == resample_pcm(audio, 8_000, 24_000)


def test_rows_are_independent_and_equal_the_stream() -> None:
    rows = np.random.default_rng(0).standard_normal((3, 4 * 768)).astype(np.float32)
    converter = RowResampler(24_000, 16_000, 768)
    history = np.zeros((3, converter.history_length), np.float32)
    outputs = []
    for at in range(0, rows.shape[1], 768):
        output, history = converter.process(rows[:, at : at + 768], history)
        outputs.append(output)
    joined = np.concatenate(outputs, axis=1)
    lag = converter.delay * 2 // 3
    for row, output in zip(rows, joined, strict=True):
        expected = resample(row, 24_000, 16_000)
        np.testing.assert_allclose(output[lag:], expected[: len(output) - lag], atol=1e-5)


def test_rates_and_blocks_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="positive"):
        Resampler(0, 8_000)
    with pytest.raises(ValueError, match="no multiple"):
        RowResampler(24_000, 16_000, 100)
