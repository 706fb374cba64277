"""Smart Turn on the real model. Synthetic voices fall at the end of anything, so only clear cases are asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
from antiphon.codecs import pcm
from antiphon.engines.interface import EngineRequest
from antiphon.engines.messages import TurnEndBody, TurnEndProbability
from antiphon.engines.speech import SmartTurn, SmartTurnOptions
from antiphon.engines.speech.smart_turn import turn_features


@pytest.fixture
async def turn(model_path: Callable[[str], Path]) -> AsyncIterator[SmartTurn]:
    engine = SmartTurn(SmartTurnOptions(model=model_path("smart-turn-v3.2")))
    await engine.open()
    yield engine
    await engine.close()


async def probability(turn: SmartTurn, audio: bytes) -> float:
    (chunk,) = [chunk async for chunk in turn.stream(EngineRequest(request_id="t", body=TurnEndBody(pcm=audio)))]
    assert isinstance(chunk, TurnEndProbability)
    return chunk.probability


@pytest.mark.parametrize("text", ["What is the weather going to be like tomorrow?", "No, I meant the second option.", "What time is it?"])
async def test_a_complete_sentence_is_the_end(turn: SmartTurn, spoken: Callable[[str], bytes], text: str) -> None:
    audio = spoken(text)
    assert await probability(turn, audio) > 0.5


async def test_a_sentence_broken_off_in_a_word_is_less_of_an_end(turn: SmartTurn, spoken: Callable[[str], bytes]) -> None:
    audio = spoken("I would like to book a table for four people on Friday night.")
    broken = audio[: len(audio) * 45 // 100 // 2 * 2] + pcm.silence(200)
    assert await probability(turn, broken) < await probability(turn, audio) - 0.2


async def test_any_length_is_taken(turn: SmartTurn) -> None:
    noise = pcm.from_float(np.random.default_rng(0).standard_normal(24_000 * 12) * 0.05)
    for audio in (b"", pcm.silence(1), noise[:4800], noise):
        assert 0.0 <= await probability(turn, audio) <= 1.0


def test_features_put_the_audio_at_the_end() -> None:
    tone = np.sin(np.arange(16_000) * 0.3).astype(np.float32)
    features = turn_features(tone)
    assert features.shape == (80, 800)
    assert features[:, 700:].mean() > features[:, :690].mean()
    np.testing.assert_array_equal(turn_features(np.concatenate((tone, tone[:0]))), features)
