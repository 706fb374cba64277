"""Hibari (and Kokoro, when its weights are here): sane sound, true word times, chunks that grow, aborts that free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
from antiphon.codecs import pcm
from antiphon.engines import weights
from antiphon.engines.errors import EngineUnavailableError, InvalidRequestError
from antiphon.engines.interface import EngineRequest
from antiphon.engines.messages import AudioChunk, SpeakBody, TranscribeBody
from antiphon.engines.speech import HibariOptions, HibariSpeech, KokoroOptions, KokoroSpeech, Whisper, WhisperOptions
from antiphon.engines.speech.synthesis import SpeechEngine

TEXT = "The train to Boston leaves at 7:30, Dr. Smith said. It costs **$5.99**! 😀 Really?"


@pytest.fixture
async def hibari() -> AsyncIterator[HibariSpeech]:
    engine = HibariSpeech(HibariOptions())
    await engine.open()
    yield engine
    await engine.close()


async def speak(engine: SpeechEngine, text: str, voice: str | None = None, speed: float = 1.0) -> list[AudioChunk]:
    body = SpeakBody(text=text, voice=voice, speed=speed)
    chunks = [chunk async for chunk in engine.stream(EngineRequest(request_id="t", body=body))]
    assert all(isinstance(chunk, AudioChunk) for chunk in chunks)
    return chunks  # type: ignore[return-value]


def sound(chunks: list[AudioChunk]) -> bytes:
    return b"".join(chunk.pcm for chunk in chunks)


async def test_the_sound_is_sane(hibari: HibariSpeech) -> None:
    audio = sound(await speak(hibari, TEXT))
    assert 5_000 < pcm.duration_ms(audio) < 10_000
    assert -35 < pcm.dbfs(audio) < -10
    samples = pcm.to_float(audio)
    assert np.abs(samples).max() < 1.0
    assert abs(samples.mean()) < 0.01
    onset = np.flatnonzero(np.abs(samples) > 0.02)[0]
    assert onset < pcm.samples_in(120), "the model's third of a second of padding is trimmed"


async def test_the_transcript_is_what_was_written_without_markup(hibari: HibariSpeech) -> None:
    chunks = await speak(hibari, TEXT)
    assert "".join(chunk.transcript for chunk in chunks) == TEXT.replace("**", "")
    assert all("".join(word.text for word in chunk.words) == chunk.transcript for chunk in chunks)


async def test_word_times_rise_and_lie_inside_the_sentence(hibari: HibariSpeech) -> None:
    chunks = await speak(hibari, TEXT)
    starts = [index for index, chunk in enumerate(chunks) if chunk.transcript]
    assert len(starts) == 3
    for first, following in zip(starts, [*starts[1:], len(chunks)], strict=True):
        length = pcm.duration_ms(sound(chunks[first:following]))
        times = [time for word in chunks[first].words for time in (word.start_ms, word.end_ms)]
        assert times == sorted(times)
        assert times[0] >= 0
        assert times[-1] <= length
        assert times[-1] > length * 0.5


async def test_word_times_are_true(hibari: HibariSpeech, model_path: Callable[[str], str]) -> None:
    """What is cut out at a word's times is that word to Whisper."""
    (first, *_) = chunks = await speak(hibari, "Please remember seven purple elephants tomorrow.")
    audio = sound(chunks)
    cut = next(word for word in first.words if word.text == " elephants")
    ear = Whisper(WhisperOptions(model=model_path("whisper-tiny.en")))
    await ear.open()
    around = audio[pcm.bytes_in(cut.start_ms - 40) : pcm.bytes_in(cut.end_ms + 40)]
    body = TranscribeBody(pcm=pcm.silence(200) + around + pcm.silence(300))
    (heard,) = [chunk async for chunk in ear.stream(EngineRequest(request_id="t", body=body))]
    await ear.close()
    assert "elephant" in heard.text.lower()  # type: ignore[union-attr]


async def test_chunks_begin_small_and_grow(hibari: HibariSpeech) -> None:
    lengths = [pcm.duration_ms(chunk.pcm) for chunk in await speak(hibari, "This sentence is long enough to see the chunks grow.")]
    assert lengths[0] == 40
    assert lengths[:5] == sorted(lengths[:5])
    assert max(lengths) == 200


@pytest.mark.parametrize("speed", [0.25, 0.5, 1.5])
async def test_speed_changes_the_length(hibari: HibariSpeech, speed: float) -> None:
    text = "What is the weather going to be like tomorrow?"
    usual, other = [pcm.duration_ms(sound(await speak(hibari, text, speed=value))) for value in (1.0, speed)]
    assert other == pytest.approx(usual / speed, rel=0.25)


async def test_names_of_other_systems_voices_are_answered(hibari: HibariSpeech) -> None:
    usual = sound(await speak(hibari, "Hello."))
    for voice in ("alloy", "ash", "marin", "cedar", None, "heart"):
        assert sound(await speak(hibari, "Hello.", voice)) == usual


@pytest.mark.parametrize("text", ["", "   ", "😀", "***", "```\ncode\n```", "...", "日本語", "\x00\ud800", "a" * 3000, "x " * 1500])
async def test_nothing_to_say_and_odd_text_are_survived(hibari: HibariSpeech, text: str) -> None:
    chunks = await speak(hibari, text)
    assert len(sound(chunks)) % 2 == 0
    assert all("".join(word.text for word in chunk.words) == chunk.transcript for chunk in chunks)


async def test_closing_the_stream_frees_the_lane(hibari: HibariSpeech) -> None:
    stream = hibari.stream(EngineRequest(request_id="t", body=SpeakBody(text=TEXT * 10)))
    await anext(stream)
    await stream.aclose()
    await asyncio.sleep(0.05)
    health = await hibari.health()
    assert (health.ok, health.running, health.waiting) == (True, 0, 0)


async def test_a_first_sentence_goes_ahead_of_later_ones(hibari: HibariSpeech) -> None:
    order: list[str] = []

    async def note(name: str, text: str) -> None:
        async for chunk in hibari.stream(EngineRequest(request_id=name, body=SpeakBody(text=text))):
            if isinstance(chunk, AudioChunk) and chunk.transcript:
                order.append(name)

    long = "This is a rather long sentence that takes a while to say. " * 4
    await asyncio.gather(note("long", long), note("long too", long), note("short", "Hi."))
    assert order.index("short") <= 3


async def test_not_open_and_wrong_requests() -> None:
    engine = HibariSpeech(HibariOptions())
    with pytest.raises(EngineUnavailableError, match="not open"):
        await speak(engine, "Hello.")
    with pytest.raises(InvalidRequestError):
        await anext(engine.stream(EngineRequest(request_id="t", body=TranscribeBody(pcm=b""))))
    await engine.close()


async def test_kokoro_speaks_in_several_voices(model_path: Callable[[str], str]) -> None:
    """The callers of the scenarios: an American man and a British woman, both understood."""
    voices = weights.pull("kokoro-voices")
    engine = KokoroSpeech(KokoroOptions(model=weights.pull("kokoro-82m-int8")["model"], voices_folder=voices["af_bella"].parent))
    ear = Whisper(WhisperOptions(model=model_path("whisper-tiny.en")))
    await engine.open()
    await ear.open()
    assert set(engine.capabilities.voices) == set(voices)
    sounds = []
    for voice in ("am_adam", "bf_emma"):
        chunks = await speak(engine, "Please lock the front door.", voice)
        sounds.append(sound(chunks))
        times = [time for word in chunks[0].words for time in (word.start_ms, word.end_ms)]
        assert times == sorted(times)
        assert times[-1] <= pcm.duration_ms(sounds[-1])
        body = TranscribeBody(pcm=pcm.silence(300) + sounds[-1] + pcm.silence(300))
        (heard,) = [chunk async for chunk in ear.stream(EngineRequest(request_id="t", body=body))]
        assert heard.text.strip(" .") == "Please lock the front door"  # type: ignore[union-attr]
    assert sounds[0] != sounds[1]
    await engine.close()
    await ear.close()
