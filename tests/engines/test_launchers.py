"""Engines in a process of their own: the same behaviour, and a death that harms nobody else."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from antiphon.engines.errors import EngineError, EngineUnavailableError, InvalidRequestError
from antiphon.engines.feed import AudioFeed
from antiphon.engines.interface import Engine, EngineRequest
from antiphon.engines.launchers import SubprocessEngine, launch
from antiphon.engines.messages import AudioChunk, ChatBody, Finished, ListenBody, SpeakBody, SpeechProbabilities, TextChunk
from antiphon.engines.pool import EnginePool, PoolOptions

from .fakes import ask


@asynccontextmanager
async def running(kind: str, **options: Any) -> AsyncIterator[SubprocessEngine]:
    engine = launch(kind, "mine", options, "subprocess")
    assert isinstance(engine, SubprocessEngine)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


async def run(engine: Engine, body: Any) -> list[Any]:
    async with aclosing(engine.stream(EngineRequest(request_id="r", body=body))) as chunks:  # type: ignore[type-var]
        return [chunk async for chunk in chunks]


async def test_chat_and_errors_come_through() -> None:
    async with running("echo-chat", tokens_per_second=0.0) as engine:
        chunks = await run(engine, ask("one two three"))
        assert chunks[:3] == [TextChunk("one"), TextChunk(" two"), TextChunk(" three")]
        assert isinstance(chunks[3], Finished)
        with pytest.raises(InvalidRequestError, match="no user message"):
            await run(engine, ChatBody(messages=()))
        health = await engine.health()
        assert health.ok
        assert health.running == 0
        pid = engine.pid
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_audio_comes_through_unchanged() -> None:
    here = launch("tone-speech", "here", {})
    async with running("tone-speech") as there:
        body = SpeakBody(text="A tone as long as this sentence would be, if someone said it.")
        assert await run(there, body) == await run(here, body)
        assert isinstance((await run(there, body))[0], AudioChunk)


async def test_a_live_feed() -> None:
    async with running("energy-vad") as engine:
        feed = AudioFeed()
        stream = engine.stream(EngineRequest(request_id="r", body=ListenBody(feed)))
        feed.put(b"\x00\x40" * 768)
        first = await asyncio.wait_for(anext(stream), 5.0)
        assert first == SpeechProbabilities(0, (1.0,))
        feed.put(bytes(768 * 2))
        assert await asyncio.wait_for(anext(stream), 5.0) == SpeechProbabilities(768, (0.0,))
        feed.close()
        assert [chunk async for chunk in stream] == []


async def test_a_reader_that_stops_holds_the_engine_back_and_closing_frees_it() -> None:
    async with running("echo-chat", tokens_per_second=0.0) as engine:
        stream = engine.stream(EngineRequest(request_id="r", body=ask("word " * 5000)))
        await anext(stream)
        await asyncio.sleep(0.2)
        assert (await engine.health()).running == 1  # it waits for credit
        began = time.monotonic()
        await stream.aclose()
        assert time.monotonic() - began < 1.0
        assert (await engine.health()).running == 0
        assert len(await run(engine, ask("word " * 500))) == 502


async def test_a_killed_worker_fails_its_streams_and_the_pool_starts_another() -> None:
    engine = SubprocessEngine("echo-chat", "mine", {"tokens_per_second": 20.0})
    pool = EnginePool(PoolOptions(failures=1, backoff=0.05))
    pool.add("e", engine)
    await pool.open()
    first = engine.pid
    stream = pool.stream("e", EngineRequest(request_id="r", body=ask("word " * 200)))
    await anext(stream)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(EngineUnavailableError, match="died"):
        [chunk async for chunk in stream]
    assert time.monotonic() - began < 1.0
    deadline = time.monotonic() + 20.0
    while engine.pid in (None, first) or pool.snapshot()[0].replicas[0].state != "trial":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    chunks = [chunk async for chunk in pool.stream("e", EngineRequest(request_id="r", body=ask("again")))]
    assert chunks[0] == TextChunk("again")
    await pool.close()


async def test_what_cannot_be_opened() -> None:
    with pytest.raises(EngineError, match="no kind 'parrot'"):
        launch("parrot", "mine", {}, "subprocess")
    with pytest.raises(EngineError, match="no launcher 'rocket'"):
        launch("echo-chat", "mine", {}, "rocket")
    engine = SubprocessEngine("echo-chat", "mine", {}, open_seconds=30.0)
    engine._configure = engine._configure.__class__("echo-chat", "mine", {"nonsense": 1})
    with pytest.raises(EngineError, match="unknown option 'nonsense'"):
        await engine.open()
    with pytest.raises(EngineUnavailableError, match="not running"):
        await run(engine, ask("x"))
    assert not (await engine.health()).ok
