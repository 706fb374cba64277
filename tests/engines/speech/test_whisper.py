"""Whisper on the real model: right words, short context, order of service."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
from antiphon.codecs import pcm
from antiphon.engines.interface import EngineRequest
from antiphon.engines.messages import TranscribeBody, Transcript
from antiphon.engines.speech import Whisper, WhisperOptions
from antiphon.engines.speech.whisper import cut_at_quiet

SENTENCES = (
    "What is the weather going to be like tomorrow afternoon?",
    "I would like to book a table for four people on Friday night.",
    "Turn off the lights in the kitchen and lock the front door.",
    "My order has not arrived yet, and the tracking page shows nothing.",
    "Add eggs, butter, and two cartons of orange juice to my shopping list.",
    "Could you spell that name for me one more time?",
    "The old bridge was closed after the storm damaged its foundation.",
)


@pytest.fixture
async def whisper(model_path: Callable[[str], Path]) -> AsyncIterator[Whisper]:
    engine = Whisper(WhisperOptions(model=model_path("whisper-tiny.en")))
    await engine.open()
    yield engine
    await engine.close()


async def transcribe(whisper: Whisper, audio: bytes, **fields: object) -> Transcript:
    body = TranscribeBody(pcm=audio, **fields)  # type: ignore[arg-type]
    (chunk,) = [chunk async for chunk in whisper.stream(EngineRequest(request_id="t", body=body))]
    assert isinstance(chunk, Transcript)
    return chunk


def words(text: str) -> list[str]:
    return re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()


def errors(said: str, heard: str) -> int:
    """Word edits between the two."""
    one, other = words(said), words(heard)
    row = list(range(len(other) + 1))
    for index, word in enumerate(one, 1):
        before, row = row, [index]
        for at, candidate in enumerate(other, 1):
            row.append(min(before[at] + 1, row[-1] + 1, before[at - 1] + (word != candidate)))
    return row[-1]


async def test_what_hibari_says_is_understood(whisper: Whisper, utterance: Callable[[str], bytes]) -> None:
    heard = [await transcribe(whisper, utterance(text)) for text in SENTENCES]
    wrong = sum(errors(said, one.text) for said, one in zip(SENTENCES, heard, strict=True))
    assert wrong / sum(len(words(text)) for text in SENTENCES) <= 0.05
    assert all(one.no_speech < 0.5 and -1 < one.logprob < 0 and one.language == "en" and one.final for one in heard)


async def test_partials_are_understood_too(whisper: Whisper, spoken: Callable[[str], bytes]) -> None:
    audio = spoken(SENTENCES[1])
    partial = await transcribe(whisper, audio[: pcm.bytes_in(2000)], final=False)
    assert not partial.final
    assert words(partial.text)[:5] == words(SENTENCES[1])[:5]


async def test_no_speech_is_said_to_be_none(whisper: Whisper) -> None:
    noise = pcm.from_float(np.random.default_rng(0).standard_normal(48_000) * 0.03)
    for audio in (pcm.silence(2000), noise):
        heard = await transcribe(whisper, audio)
        assert heard.no_speech > 0.6
        assert heard.logprob < -1
    assert (await transcribe(whisper, pcm.silence(50))).text == ""
    assert (await transcribe(whisper, b"")).no_speech == 1.0


async def test_single_words(whisper: Whisper, utterance: Callable[[str], bytes]) -> None:
    for text in ("Stop.", "Hold on.", "Yes.", "What?"):
        audio = utterance(text)[pcm.bytes_in(400) :]
        assert words((await transcribe(whisper, audio)).text) == words(text)


async def test_more_than_thirty_seconds(whisper: Whisper, utterance: Callable[[str], bytes]) -> None:
    said = " ".join(SENTENCES * 2)
    heard = await transcribe(whisper, b"".join(utterance(text) for text in SENTENCES * 2))
    assert errors(said, heard.text) / len(words(said)) <= 0.06


async def test_final_goes_ahead_of_partial_and_the_cancelled_never_runs(whisper: Whisper, spoken: Callable[[str], bytes]) -> None:
    audio = spoken(SENTENCES[5])
    served: list[str] = []

    async def one(name: str, final: bool) -> None:
        await transcribe(whisper, audio, final=final)
        served.append(name)

    tasks = {}
    for name, final in (("running", True), ("partial", False), ("dropped", False), ("final", True)):
        tasks[name] = asyncio.create_task(one(name, final))
        await asyncio.sleep(0)
    tasks["dropped"].cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert served == ["running", "final", "partial"]
    health = await whisper.health()
    assert (health.running, health.waiting) == (0, 0)


def test_long_audio_is_cut_where_it_is_quiet() -> None:
    audio = np.random.default_rng(0).standard_normal(40 * 16_000).astype(np.float32)
    audio[24 * 16_000 : 25 * 16_000] = 0
    pieces = cut_at_quiet(audio)
    assert len(pieces) == 2
    assert 24 * 16_000 < len(pieces[0]) < 25 * 16_000
    np.testing.assert_array_equal(np.concatenate(pieces), audio)
