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
import uvloop
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


def test_a_worker_that_dies_is_closed_and_opened_anew_on_uvloop_as_well() -> None:
    """The event loop of the server: it raises for a write to a connection that is gone, where asyncio's own does not."""

    async def scene() -> None:
        async with running("echo-chat", tokens_per_second=0.0) as engine:
            for _ in range(2):
                assert engine.pid is not None
                os.kill(engine.pid, signal.SIGKILL)
                await asyncio.sleep(0.3)
                await engine.close()
                await engine.open()
                assert (await run(engine, ask("x")))[0] == TextChunk("x")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())


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


async def test_a_worker_that_hangs_is_found_by_whoever_gives_up_on_it_and_the_pool_starts_another() -> None:
    engine = SubprocessEngine("echo-chat", "mine", {"tokens_per_second": 5.0})
    pool = EnginePool(PoolOptions(backoff=0.05, health=0.5))
    pool.add("e", engine)
    await pool.open()
    hung = engine.pid
    assert hung is not None
    stream = pool.stream("e", EngineRequest(request_id="r", body=ask("word " * 200)))
    await anext(stream)
    os.kill(hung, signal.SIGSTOP)
    waiting = asyncio.create_task(_next_of(stream))
    await asyncio.sleep(0.5)
    waiting.cancel()  # as a deadline or the loss of a connection does
    await asyncio.wait({waiting})
    with pytest.raises(EngineUnavailableError, match="does not answer"):
        [chunk async for chunk in pool.stream("e", EngineRequest(request_id="r", body=ask("x")))]
    deadline = time.monotonic() + 20.0
    while engine.pid in (None, hung) or pool.snapshot()[0].replicas[0].state != "trial":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(hung, 0)
    chunks = [chunk async for chunk in pool.stream("e", EngineRequest(request_id="r", body=ask("again")))]
    assert chunks[0] == TextChunk("again")
    await pool.close()


async def _next_of(stream: Any) -> Any:
    """Reads on, until nothing comes any more."""
    while True:
        await anext(stream)


async def test_a_worker_that_was_suspended_is_used_again_once_it_is_heard_of() -> None:
    async with running("echo-chat", tokens_per_second=5.0) as engine:
        assert engine.pid is not None
        stream = engine.stream(EngineRequest(request_id="r", body=ask("word " * 200)))
        await anext(stream)
        os.kill(engine.pid, signal.SIGSTOP)
        await stream.aclose()
        with pytest.raises(EngineUnavailableError, match="does not answer"):
            await run(engine, ask("x"))
        os.kill(engine.pid, signal.SIGCONT)
        assert (await asyncio.wait_for(engine.health(), 10)).ok
        assert (await run(engine, ask("x")))[0] == TextChunk("x")
