"""SmolLM2-135M on llama.cpp: real weights, one slot, small context."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from antiphon.engines.ar.llama import LlamaChat, LlamaOptions
from antiphon.engines.errors import EngineError, EngineUnavailableError, InvalidRequestError
from antiphon.engines.interface import EngineRequest
from antiphon.engines.messages import ChatBody, ChatMessage, EngineChunk, Finished, ListenBody, TextChunk, Tool, ToolCall, ToolCallChunk

SYSTEM = ChatMessage(role="system", text="You are a helpful voice assistant. Answer in one or two short spoken sentences.")
WEATHER = Tool(
    name="get_weather",
    description="Get the weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
TIMER = Tool(
    name="set_timer",
    description="Set a timer.",
    parameters={"type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]},
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llama(smollm: Path) -> AsyncIterator[LlamaChat]:
    engine = LlamaChat(LlamaOptions(model=smollm, slots=1, context=1024))
    await engine.open()
    yield engine
    await engine.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")


def asked(text: str, **keywords: Any) -> ChatBody:
    return ChatBody(messages=(SYSTEM, ChatMessage(role="user", text=text)), **keywords)


async def run(engine: LlamaChat, body: ChatBody) -> list[EngineChunk]:
    async with aclosing(engine.stream(EngineRequest(request_id="r", body=body))) as chunks:
        return [chunk async for chunk in chunks]


def text_of(chunks: list[EngineChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


def end_of(chunks: list[EngineChunk]) -> Finished:
    assert isinstance(chunks[-1], Finished)
    return chunks[-1]


async def test_it_answers_token_by_token_and_counts(llama: LlamaChat) -> None:
    chunks = await run(llama, asked("What is the capital of France?"))
    assert "Paris" in text_of(chunks)
    assert len(chunks) > 4
    finished = end_of(chunks)
    assert finished.reason == "stop"
    assert finished.usage.input_tokens > 20
    assert finished.usage.output_tokens == len(chunks)  # one chunk a token; the end token gives none, `Finished` is one


async def test_the_same_beginning_is_not_computed_again(llama: LlamaChat) -> None:
    await run(llama, asked("What is the capital of France?", max_tokens=2))
    finished = end_of(await run(llama, asked("What is the capital of Italy?", max_tokens=2)))
    assert finished.usage.cached_tokens >= 20


async def test_max_tokens(llama: LlamaChat) -> None:
    finished = end_of(await run(llama, asked("Tell me a long story.", max_tokens=5)))
    assert (finished.reason, finished.usage.output_tokens) == ("length", 5)


async def test_the_same_question_gets_the_same_answer(llama: LlamaChat) -> None:
    body = asked("Tell me about the sea.", max_tokens=16, temperature=0.8)
    await run(llama, body)  # from here on the prompt is cached; computing it gives other last bits than reading it
    assert text_of(await run(llama, body)) == text_of(await run(llama, body))


async def test_a_closed_stream_frees_its_slot_at_the_next_token(llama: LlamaChat) -> None:
    stream = llama.stream(EngineRequest(request_id="long", body=asked("Write a very long story.", max_tokens=500)))
    for _ in range(5):
        await anext(stream)
    began = time.monotonic()
    await stream.aclose()
    assert time.monotonic() - began < 0.5  # a token takes about 12 ms on a quiet core
    assert (await llama.health()).running == 0
    follower = llama.stream(EngineRequest(request_id="next", body=asked("What is the capital of France?")))
    await anext(follower)
    assert time.monotonic() - began < 2.0  # 500 tokens would take six seconds
    await follower.aclose()


async def test_a_prompt_is_aborted_between_two_batches(llama: LlamaChat) -> None:
    stream = llama.stream(EngineRequest(request_id="prompt", body=asked("word " * 700)))
    first = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert time.monotonic() - began < 1.6  # 64 of 700 tokens
    while (await llama.health()).running:
        assert time.monotonic() - began < 3.0
        await asyncio.sleep(0.02)


async def test_a_waiting_request_is_given_up_without_a_trace(llama: LlamaChat) -> None:
    running = llama.stream(EngineRequest(request_id="a", body=asked("Write a very long story.", max_tokens=500)))
    await anext(running)
    waiting = asyncio.ensure_future(run(llama, asked("hi")))
    await asyncio.sleep(0.05)
    assert (await llama.health()).waiting == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (await llama.health()).waiting == 0
    await running.aclose()
    assert text_of(await run(llama, asked("hi", max_tokens=3)))


async def test_the_event_loop_is_free_while_the_model_computes(llama: LlamaChat) -> None:
    longest = 0.0
    task = asyncio.ensure_future(run(llama, asked("word " * 300, max_tokens=10)))
    while not task.done():
        before = time.monotonic()
        await asyncio.sleep(0.001)
        longest = max(longest, time.monotonic() - before)
    await task
    assert longest < 0.25  # generous: the machine may be busy; a blocked loop would show a second


@pytest.mark.parametrize("choice", ["required", "function:get_weather"])
async def test_a_demanded_call_is_valid(llama: LlamaChat, choice: str) -> None:
    chunks = await run(llama, asked("What is the weather in Paris?", tools=(WEATHER, TIMER), tool_choice=choice))
    (call,) = (chunk for chunk in chunks if isinstance(chunk, ToolCallChunk))
    assert call.name == "get_weather"
    assert json.loads(call.arguments) == {"city": "Paris"}
    assert not text_of(chunks)
    assert end_of(chunks).reason == "tool_calls"


async def test_a_call_of_its_own_accord_and_an_answer_in_words(llama: LlamaChat) -> None:
    chunks = await run(llama, asked("Set a timer for five minutes.", tools=(WEATHER, TIMER)))
    (call,) = (chunk for chunk in chunks if isinstance(chunk, ToolCallChunk))
    assert (call.name, json.loads(call.arguments)) == ("set_timer", {"minutes": 5})
    chunks = await run(llama, asked("Hello, how are you?", tools=(WEATHER, TIMER)))
    assert text_of(chunks)
    assert not any(isinstance(chunk, ToolCallChunk) for chunk in chunks)


async def test_a_result_is_told(llama: LlamaChat) -> None:
    messages = (
        SYSTEM,
        ChatMessage(role="user", text="How many orders do I have?"),
        ChatMessage(role="assistant", tool_calls=(ToolCall("c", "count_orders", "{}"),)),
        ChatMessage(role="tool", call_id="c", text='{"open_orders": 12}'),
    )
    assert "12" in text_of(await run(llama, ChatBody(messages=messages, tools=(Tool(name="count_orders"),))))


async def test_a_long_conversation_loses_its_oldest_messages(llama: LlamaChat) -> None:
    history = [ChatMessage(role=("user", "assistant")[n % 2], text=f"{n} we talk about green fields. " * 4) for n in range(60)]
    chunks = await run(llama, ChatBody(messages=(SYSTEM, *history, ChatMessage(role="user", text="What is the capital of France?"))))
    assert "Paris" in text_of(chunks)
    assert end_of(chunks).usage.input_tokens < 1024


async def test_what_cannot_be_asked(llama: LlamaChat) -> None:
    for body, sentence in (
        (ChatBody(messages=()), "conversation is empty"),
        (asked("x", tool_choice="function:nope"), "not among the tools"),
        (asked("x", tool_choice="required"), "no tools"),
        (asked("word " * 3000), "longer than the model's context"),
    ):
        with pytest.raises(InvalidRequestError, match=sentence):
            await run(llama, body)
    with pytest.raises(InvalidRequestError, match="ChatBody"):
        await anext(llama.stream(EngineRequest(request_id="r", body=ListenBody(None))))
    assert (await llama.health()).running == 0


async def test_close_ends_what_runs(smollm: Path) -> None:
    engine = LlamaChat(LlamaOptions(model=smollm, slots=1, context=512, overflow="error"))
    with pytest.raises(EngineUnavailableError, match="not open"):
        await run(engine, asked("x"))
    await engine.open()
    await engine.open()  # harmless
    with pytest.raises(InvalidRequestError, match="the model's context holds 512"):
        await run(engine, asked("word " * 600))
    stream = engine.stream(EngineRequest(request_id="r", body=asked("Write a very long story.", max_tokens=400)))
    await anext(stream)
    began = time.monotonic()
    await engine.close()
    assert time.monotonic() - began < 3.0
    await stream.aclose()
    assert not (await engine.health()).ok


async def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailableError, match="no model file"):
        await LlamaChat(LlamaOptions(model=tmp_path / "none.gguf")).open()
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(EngineUnavailableError, match="could not load"):
        await LlamaChat(LlamaOptions(model=tmp_path / "bad.gguf")).open()
    with pytest.raises(EngineError, match="overflow"):
        LlamaChat(LlamaOptions(model=tmp_path, overflow="panic"))


async def test_functions_by_the_models_own_template(smollm: Path) -> None:
    engine = LlamaChat(LlamaOptions(model=smollm, function_calls="template"))
    engine._by_template = True  # what `open` finds for a large model
    body = asked("hi", tools=(WEATHER,))
    payload = engine._payload(body, body.messages)
    assert payload["tools"][0]["function"]["name"] == "get_weather"
    result = ChatMessage(role="tool", call_id="c", text="rain")
    assert engine._payload(body, (*body.messages, result))["messages"][-1] == {"role": "tool", "content": "rain", "tool_call_id": "c"}
    with pytest.raises(EngineError, match="function_calls"):
        LlamaChat(LlamaOptions(model=smollm, function_calls="magic"))
