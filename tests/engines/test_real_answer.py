"""SmolLM2 and Hibari under the orchestrator: the words of the chat model, spoken, and an abort that frees both."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from antiphon.engines import weights
from antiphon.engines.messages import AudioChunk, ChatBody, ChatMessage, Finished, ResponseBody, TextChunk
from antiphon.engines.orchestrator import Orchestrator
from antiphon.engines.pipeline import Pipeline
from antiphon.engines.pool import EnginePool
from antiphon.engines.registry import build_engine

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house() -> AsyncIterator[Orchestrator]:
    weights.pull("smollm2-135m-instruct")
    pool = EnginePool()
    pool.add("llama", build_engine("llama", "llama", {"slots": 1, "context": 1024}))
    pool.add("hibari", build_engine("hibari", "hibari", {}))
    await pool.open()
    yield Orchestrator(pool, [Pipeline.voice("voice", chat="llama", speech="hibari")])
    await pool.close()


def body(text: str, audio: bool = True, max_tokens: int = 40) -> ResponseBody:
    system = ChatMessage(role="system", text="You are a helpful voice assistant. Answer in one or two short spoken sentences.")
    return ResponseBody(chat=ChatBody(messages=(system, ChatMessage(role="user", text=text)), max_tokens=max_tokens), audio=audio)


async def test_what_is_written_is_what_is_spoken(house: Orchestrator) -> None:
    question = "What is the capital of France?"
    written = [chunk async for chunk in house.respond("voice", body(question, audio=False), request_id="w")]
    spoken = [chunk async for chunk in house.respond("voice", body(question), request_id="s")]
    text = "".join(chunk.text for chunk in written if isinstance(chunk, TextChunk))
    sound = [chunk for chunk in spoken if isinstance(chunk, AudioChunk)]
    assert "".join(chunk.transcript for chunk in sound) == text
    assert "".join(word.text for chunk in sound for word in chunk.words) == text
    seconds = sum(len(chunk.pcm) for chunk in sound) / 48_000
    assert 0.5 < seconds < 1.0 + len(text) / 8
    last = max(word.end_ms for chunk in sound for word in chunk.words)
    assert last <= seconds * 1000
    assert isinstance(spoken[-1], Finished)
    assert house.pool.running() == Counter()


@pytest.mark.parametrize("after", [0, 1, 3, 5, 12])
async def test_closing_frees_both_engines_in_bounded_time(house: Orchestrator, after: int) -> None:
    stream = house.respond("voice", body("Tell me a very long story about the sea.", max_tokens=400), request_id="r")
    for _ in range(after):
        await anext(stream)
    began = time.monotonic()
    await stream.aclose()
    assert time.monotonic() - began < 1.6
    assert house.pool.running() == Counter()
    for _ in range(200):
        health = await house.pool.health()
        if not any(state.running for state in health.values()):
            break
        await asyncio.sleep(0.01)
    assert not any(state.running for state in health.values())
