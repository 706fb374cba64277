"""Noises, and what is audible."""

import numpy as np
import pytest
from antiphon.codecs.pcm import SAMPLE_RATE, dbfs, from_float, to_float
from antiphon.scenarios import sounds


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def speech(seconds: float = 1.0, level: float = 0.2) -> bytes:
    return from_float(np.sin(np.arange(int(seconds * SAMPLE_RATE)) / 15) * level)


def test_pink_noise_has_as_much_power_in_each_octave(rng):
    power = np.abs(np.fft.rfft(sounds.pink(4.0, rng))) ** 2
    frequencies = np.fft.rfftfreq(4 * SAMPLE_RATE, 1 / SAMPLE_RATE)
    octaves = [power[(frequencies >= low) & (frequencies < 2 * low)].sum() for low in (100, 400, 1600, 3200)]
    assert max(octaves) / min(octaves) < 1.3


def test_speech_in_noise_has_the_wanted_ratio(rng):
    clean = speech()
    noisy = sounds.with_noise(clean, 10.0, rng, margin_s=0.5)
    margin = SAMPLE_RATE // 2
    assert len(noisy) == len(clean) + 4 * margin
    noise = to_float(noisy)[margin:-margin] - to_float(clean)
    assert 10 * np.log10(np.mean(to_float(clean) ** 2) / np.mean(noise**2)) == pytest.approx(10, abs=0.3)


def test_the_level_counts_only_where_somebody_speaks(rng):
    padded = bytes(48_000) + speech() + bytes(48_000)
    noise = to_float(sounds.with_noise(padded, 10.0, rng))[: SAMPLE_RATE - 240]
    assert 10 * np.log10(0.02 / np.mean(noise**2)) == pytest.approx(10, abs=0.6)


def test_audible_is_where_the_sound_is():
    first, last = sounds.audible(bytes(4_800) + speech(0.5) + bytes(9_600))
    assert first == pytest.approx(2_400, abs=240)
    assert last == pytest.approx(2_400 + 12_000, abs=240)


def test_audible_of_silence_and_of_nothing():
    assert sounds.audible(b"") == (0, 0)
    assert sounds.audible(bytes(4_800)) == (0, 2_400)


def test_a_click_is_short_a_cough_longer_and_steady_noise_has_its_level(rng):
    click, cough = sounds.click(rng), sounds.cough(rng)
    assert len(click) / 48 == pytest.approx(60)
    assert len(cough) / 48 == pytest.approx(280)
    assert np.abs(to_float(cough)).max() == pytest.approx(10 ** (-9 / 20), rel=0.01)
    assert dbfs(sounds.steady(2.0, -36.0, rng)) == pytest.approx(-36, abs=0.3)
