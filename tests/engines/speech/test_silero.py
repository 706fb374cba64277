"""Silero over live feeds, on the real model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
from antiphon.codecs import pcm
from antiphon.engines.errors import EngineBusyError, EngineUnavailableError, InvalidRequestError, WeightsError
from antiphon.engines.feed import AudioFeed
from antiphon.engines.interface import EngineRequest
from antiphon.engines.messages import ListenBody, SpeechProbabilities, TurnEndBody
from antiphon.engines.speech import SileroOptions, SileroVad
from antiphon.engines.speech.silero import FRAME_SAMPLES, SileroModel

SENTENCES = ("What is the weather going to be like tomorrow afternoon?", "Please set a timer for fifteen minutes.", "Stop it.")


@pytest.fixture
async def vad(model_path: Callable[[str], Path]) -> AsyncIterator[SileroVad]:
    engine = SileroVad(SileroOptions(model=model_path("silero-vad"), max_streams=40))
    await engine.open()
    yield engine
    await engine.close()


def listen(feed: AudioFeed) -> EngineRequest:
    return EngineRequest(request_id="listen", body=ListenBody(feed=feed))


async def score(vad: SileroVad, audio: bytes, packet: int = 960) -> np.ndarray:
    """The probabilities of a recording that arrives packet by packet."""
    feed = AudioFeed()

    async def write() -> None:
        for at in range(0, len(audio), packet):
            feed.put(audio[at : at + packet])
            await asyncio.sleep(0)
        feed.close()

    writing = asyncio.create_task(write())
    heard: list[float] = []
    async for chunk in vad.stream(listen(feed)):
        assert isinstance(chunk, SpeechProbabilities)
        assert chunk.start_sample == len(heard) * FRAME_SAMPLES
        heard.extend(chunk.probabilities)
    await writing
    return np.array(heard)


def is_speech(audio: bytes) -> np.ndarray:
    """Per frame: is there speech, judged by the energy of clean audio, short gaps filled?"""
    samples = pcm.to_float(audio)
    frames = samples[: len(samples) // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
    loud = np.square(frames).mean(axis=1) > 1e-5
    filled = loud.copy()
    for at in range(len(loud)):
        filled[at] = loud[max(0, at - 3) : at + 1].any() and loud[at : at + 4].any()
    return filled


async def test_speech_between_gaps_is_found(vad: SileroVad, spoken: Callable[[str], bytes]) -> None:
    audio = pcm.silence(800) + b"".join(spoken(text) + pcm.silence(800) for text in SENTENCES)
    heard, truth = await score(vad, audio) > 0.5, is_speech(audio)
    truth = truth[: len(heard)]
    true_positives = (heard & truth).sum()
    f1 = 2 * true_positives / (heard.sum() + truth.sum())
    assert f1 > 0.93


async def test_noise_and_silence_are_no_speech(vad: SileroVad) -> None:
    noise = pcm.from_float(np.random.default_rng(0).standard_normal(48_000) * 0.05)
    hum = pcm.from_float(np.sin(np.arange(48_000) * 2 * np.pi * 100 / 24_000) * 0.2)
    for audio in (pcm.silence(2000), noise, hum):
        heard = await score(vad, audio)
        assert (heard > 0.5).mean() < 0.05


async def test_speech_is_found_in_noise(vad: SileroVad, spoken: Callable[[str], bytes]) -> None:
    clean = pcm.silence(600) + spoken(SENTENCES[0]) + pcm.silence(600)
    level = pcm.rms(spoken(SENTENCES[0])) / 10 ** (10 / 20)
    noise = pcm.from_float(np.random.default_rng(1).standard_normal(len(clean) // 2) * level)
    heard, truth = await score(vad, pcm.mix(clean, noise)) > 0.5, is_speech(clean)
    assert (heard == truth[: len(heard)]).mean() > 0.85


async def test_many_feeds_score_as_one_does(vad: SileroVad, spoken: Callable[[str], bytes]) -> None:
    recordings = [pcm.silence(100 * index) + spoken(SENTENCES[index % 3]) for index in range(12)]
    alone = [await score(vad, audio) for audio in recordings]
    together = await asyncio.gather(*(score(vad, audio, 700 + 100 * index) for index, audio in enumerate(recordings)))
    for one, batched in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, batched, atol=1e-4)
    assert (await vad.health()).extra["mean_frames_per_step"] > 1


def test_rows_with_unequal_frames_in_one_call(model_path: Callable[[str], Path], spoken: Callable[[str], bytes]) -> None:
    model = SileroModel(model_path("silero-vad"))
    audio = pcm.to_float(spoken(SENTENCES[0]))
    blocks = [audio[: count * FRAME_SAMPLES] for count in (5, 32, 1, 17)]
    batched = model.score([model.new_row() for _ in blocks], blocks)
    for block, scores in zip(blocks, batched, strict=True):
        single = model.score([model.new_row()], [block])[0]
        np.testing.assert_allclose(scores, single, atol=1e-4)


async def test_a_feed_that_overflowed_keeps_true_positions(vad: SileroVad) -> None:
    feed = AudioFeed(max_seconds=1)
    for _ in range(100):
        feed.put(pcm.silence(32))
    feed.close()
    starts = [chunk.start_sample async for chunk in vad.stream(listen(feed))]
    assert starts[0] == feed.dropped_samples > 0


async def test_closing_a_stream_removes_its_row_and_the_others_go_on(vad: SileroVad, spoken: Callable[[str], bytes]) -> None:
    feed = AudioFeed()
    stream = vad.stream(listen(feed))
    feed.put(pcm.silence(64))
    await anext(stream)
    assert (await vad.health()).running == 1
    await stream.aclose()
    assert (await vad.health()).running == 0
    assert feed.on_ready is None
    assert (await score(vad, spoken(SENTENCES[2]))).max() > 0.9


async def test_a_reader_that_stops_does_not_grow_the_engine(vad: SileroVad) -> None:
    feed = AudioFeed(max_seconds=1)
    stream = vad.stream(listen(feed))
    feed.put(pcm.silence(32))
    await anext(stream)
    for _ in range(400):
        feed.put(pcm.silence(32))
        await asyncio.sleep(0.001)
    assert feed.dropped_samples > 0
    feed.close()
    rest = [chunk async for chunk in stream]
    assert len(rest) <= 64 + 2


async def test_bounds_and_wrong_requests(vad: SileroVad) -> None:
    streams = [vad.stream(listen(feed)) for feed in (AudioFeed() for _ in range(40))]
    waiting = [asyncio.create_task(anext(stream)) for stream in streams]
    await asyncio.sleep(0)
    with pytest.raises(EngineBusyError, match="40 feeds"):
        await anext(vad.stream(listen(AudioFeed())))
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    with pytest.raises(InvalidRequestError):
        await anext(vad.stream(EngineRequest(request_id="x", body=TurnEndBody(pcm=b""))))


async def test_closing_the_engine_tells_its_streams(model_path: Callable[[str], Path]) -> None:
    engine = SileroVad(SileroOptions(model=model_path("silero-vad")))
    with pytest.raises(EngineUnavailableError):
        await anext(engine.stream(listen(AudioFeed())))
    await engine.open()
    waiting = asyncio.create_task(anext(engine.stream(listen(AudioFeed()))))
    await asyncio.sleep(0.01)
    await engine.close()
    with pytest.raises(EngineUnavailableError, match="closing"):
        await waiting


async def test_missing_weights_are_a_sentence(tmp_path: Path) -> None:
    engine = SileroVad(SileroOptions(model=tmp_path / "none.onnx"))
    with pytest.raises(WeightsError, match="antiphon models pull silero-vad"):
        await engine.open()
    (tmp_path / "none.onnx").write_bytes(b"no model")
    with pytest.raises(WeightsError, match="cannot load"):
        await engine.open()
    await engine.close()
