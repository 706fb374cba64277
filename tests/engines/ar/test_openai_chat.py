"""Any OpenAI-compatible server by URL: a small server that streams, and llama.cpp's own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from antiphon.engines.ar.openai_chat import OpenAIChat, OpenAIChatOptions
from antiphon.engines.errors import EngineBusyError, EngineError, EngineTimeoutError, EngineUnavailableError, InvalidRequestError
from antiphon.engines.interface import EngineRequest
from antiphon.engines.messages import ChatBody, ChatMessage, EngineChunk, Finished, TextChunk, Tool, ToolCallChunk, Usage
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from ..fakes import ask

SYSTEM = ChatMessage(role="system", text="You are a helpful voice assistant. Answer in one or two short spoken sentences.")


class Counterpart:
    """A chat server that says what it is told to say and remembers what it was asked."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self.complete)
        self.app.get("/v1/models")(self.models)
        self.events: list[str] = []
        self.pause = 0.0
        self.status = 200
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.sent = 0
        self.gone = asyncio.Event()

    async def models(self) -> dict[str, Any]:
        return {"data": []}

    async def complete(self, request: Request) -> Response:
        self.asked.append(await request.json())
        self.keys.append(request.headers.get("authorization", ""))
        if self.status != 200:
            return JSONResponse({"error": {"message": "not today"}}, status_code=self.status)
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[str]:
        try:
            for event in self.events:
                await asyncio.sleep(self.pause)
                self.sent += 1
                yield event
        except asyncio.CancelledError:
            self.gone.set()
            raise

    def say(self, *deltas: dict[str, Any], reason: str = "stop") -> None:
        choices = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        choices.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
        lines = [f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in (*choices, {"choices": [], "usage": usage})]
        self.events = [": a comment\n\n", *lines, "data: [DONE]\n\n"]


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    """The app on a free loopback port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await task


@asynccontextmanager
async def talking(url: str, **options: Any) -> AsyncIterator[OpenAIChat]:
    engine = OpenAIChat(OpenAIChatOptions(url=url, model="some-model", **options))
    await engine.open()
    yield engine
    await engine.close()


async def run(engine: OpenAIChat, body: ChatBody) -> list[EngineChunk]:
    async with aclosing(engine.stream(EngineRequest(request_id="r", body=body))) as chunks:
        return [chunk async for chunk in chunks]


async def test_text_and_usage() -> None:
    counterpart = Counterpart()
    counterpart.say({"role": "assistant"}, {"content": "Grüß"}, {"content": "\u2028dich"})
    async with serving(counterpart.app) as url, talking(url, key="secret", extra={"top_k": 5}) as engine:
        chunks = await run(engine, ask("hi", max_tokens=9, temperature=0.5))
        assert (await engine.health()).ok
    usage = Usage(input_tokens=7, output_tokens=3, cached_tokens=2)
    assert chunks == [TextChunk("Grüß"), TextChunk("\u2028dich"), Finished(usage=usage)]
    assert counterpart.keys == ["Bearer secret"]
    sent = counterpart.asked[0]
    assert (sent["model"], sent["max_tokens"], sent["temperature"], sent["top_k"]) == ("some-model", 9, 0.5, 5)
    assert sent["messages"] == [{"role": "user", "content": "hi"}]
    assert "tools" not in sent


async def test_function_calls() -> None:
    counterpart = Counterpart()

    def call(index: int, **function: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, "id": f"c{index}" if "name" in function else None, "function": function}]}

    counterpart.say(
        call(0, name="a", arguments=""),
        call(0, arguments='{"x":'),
        call(0, arguments="1}"),
        call(1, name="b", arguments="{}"),
        reason="tool_calls",
    )
    tools = (Tool(name="a", description="A."), Tool(name="b"))
    async with serving(counterpart.app) as url, talking(url + "/v1/") as engine:
        chunks = await run(engine, ask("hi", tools=tools, tool_choice="function:a", parallel_tool_calls=False))
    calls = [chunk for chunk in chunks if isinstance(chunk, ToolCallChunk)]
    assert [(part.index, part.call_id, part.name, part.arguments) for part in calls] == [
        (0, "c0", "a", ""),
        (0, "", "", '{"x":'),
        (0, "", "", "1}"),
        (1, "c1", "b", "{}"),
    ]
    assert isinstance(chunks[-1], Finished)
    assert chunks[-1].reason == "tool_calls"
    assert counterpart.asked[0]["tool_choice"] == {"type": "function", "function": {"name": "a"}}
    assert counterpart.asked[0]["parallel_tool_calls"] is False


async def test_closing_disconnects_and_the_server_stops() -> None:
    counterpart = Counterpart()
    counterpart.say(*({"content": f"{number} "} for number in range(500)))
    counterpart.pause = 0.01
    async with serving(counterpart.app) as url, talking(url) as engine:
        stream = engine.stream(EngineRequest(request_id="r", body=ask("count")))
        assert await anext(stream) == TextChunk("0 ")
        began = time.monotonic()
        await stream.aclose()
        assert time.monotonic() - began < 0.5
        await asyncio.wait_for(counterpart.gone.wait(), 2.0)
        assert counterpart.sent < 400
        assert (await engine.health()).running == 0


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (429, EngineBusyError, "engine_busy"),
        (401, EngineError, "engine_unauthorized"),
        (404, EngineUnavailableError, "engine_unavailable"),
        (503, EngineUnavailableError, "engine_unavailable"),
        (504, EngineTimeoutError, "engine_timeout"),
        (400, InvalidRequestError, "invalid_request"),
        (500, EngineError, "engine_error"),
    ],
)
async def test_refusals(status: int, kind: type[EngineError], code: str) -> None:
    counterpart = Counterpart()
    counterpart.status = status
    async with serving(counterpart.app) as url, talking(url) as engine:
        with pytest.raises(kind, match="not today") as caught:
            await run(engine, ask("hi"))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("event", "sentence"), [("data: {nonsense\n\n", "no JSON"), ('data: {"error": {"message": "out of memory"}}\n\n', "out of memory")]
)
async def test_a_stream_that_goes_wrong(event: str, sentence: str) -> None:
    counterpart = Counterpart()
    counterpart.events = ['data: {"choices": [{"delta": {"content": "a"}}]}\n\n', event]
    async with serving(counterpart.app) as url, talking(url) as engine:
        with pytest.raises(EngineError, match=sentence):
            await run(engine, ask("hi"))


async def test_a_server_that_is_slow_or_not_there() -> None:
    counterpart = Counterpart()
    counterpart.say({"content": "late"})
    counterpart.pause = 2.0
    async with serving(counterpart.app) as url:
        async with talking(url, first_token=0.1) as engine:
            with pytest.raises(EngineTimeoutError):
                await run(engine, ask("hi"))
        gone = url
    async with talking(gone) as engine:
        with pytest.raises(EngineUnavailableError, match="cannot be reached"):
            await run(engine, ask("hi"))
        assert not (await engine.health()).ok


async def test_what_cannot_be_asked() -> None:
    with pytest.raises(EngineError, match="http://"):
        OpenAIChat(OpenAIChatOptions(url="localhost:8000", model="m"))
    engine = OpenAIChat(OpenAIChatOptions(url="http://127.0.0.1:9", model="m"))
    with pytest.raises(EngineUnavailableError, match="not open"):
        await run(engine, ask("hi"))
    with pytest.raises(InvalidRequestError, match="empty"):
        await run(engine, ChatBody(messages=()))


async def test_llama_cpp_as_the_server(smollm: Path) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(smollm)
    params.n_ctx = 512
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.fit_params = False
    params.verbosity = 1
    params.api_keys = ["secret"]
    server = await asyncio.to_thread(xllamacpp.Server, params)
    async with talking(server.listening_address, key="secret", temperature=0.0) as engine:
        body = ChatBody(messages=(SYSTEM, ChatMessage(role="user", text="What is the capital of France?")), max_tokens=12)
        chunks = await run(engine, body)
        assert "Paris" in "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))
        assert isinstance(chunks[-1], Finished)
        assert chunks[-1].usage.input_tokens > 10
    holder = [server]
    del server
    await asyncio.to_thread(holder.clear)
