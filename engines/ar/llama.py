"""Chat on llama.cpp in this process (`xllamacpp`): slots, continuous batching and a prefix cache on a GGUF file.

Each running request has a thread that sits in llama.cpp's own server code and is called back at every step of the prompt and
at every token; returning True from the callback ends the request there and then, which is how a closed stream frees its slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ..errors import EngineError, EngineUnavailableError, InvalidRequestError
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..messages import ChatBody, ChatMessage, EngineChunk, Finished, TextChunk
from . import context as contexts
from . import generic_tools
from .wire import DeltaReader, message_payload, named_tool, tool_payload

log = logging.getLogger(__name__)

_REUSE = 32
"""Runs of at least so many tokens are moved in the cache, not computed anew, when older messages before them are dropped."""

_CUTS = 6
"""How often a conversation is cut anew when the model finds it still too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaOptions:
    """`context` is in tokens for each of the `slots`. `threads`: leave a core free for everything else; threads that must wait for each
    other at every layer are slower than one when the machine is busy. `batch` is how many prompt tokens are computed between two
    looks at whether the request still stands. `cache_mb` bounds the prompts kept in memory besides those in the slots.

    `overflow`: "truncate" drops the oldest messages of a conversation that is too long, "error" refuses it.
    Sampling: the defaults keep a very small model short and steady; temperature 0 is greedy. `loop_penalty` (DRY) falls on what would
    repeat a run of more than three tokens, which keeps it out of loops; penalties on single tokens make it avoid the right word.
    """

    model: Path
    context: int = 4096
    slots: int = 2
    threads: int = 1
    batch: int = 64
    cache_mb: int = 256
    max_tokens: int = 160
    temperature: float = 0.2
    top_p: float = 0.9
    top_k: int = 40
    min_p: float = 0.05
    loop_penalty: float = 0.8
    seed: int = 7
    gpu_layers: int = 0
    overflow: str = "truncate"
    abort_seconds: float = 1.5


class _Call:
    """One request on its way through llama.cpp: a thread that computes, a queue to the event loop, and a flag to stop.

    Bound of the queue: the request's `max_tokens` (and a few events of prompt progress); the reader need not keep up.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.stopped = threading.Event()
        self.done = asyncio.Event()

    def on_event(self, event: Any) -> bool:
        """In the request's thread: hand the event over; True tells llama.cpp to stop."""
        if self.stopped.is_set():
            return True
        for part in event if isinstance(event, list) else [event]:
            self._loop.call_soon_threadsafe(self.events.put_nowait, part)
        return False

    def run(self, server: Any, payload: dict[str, Any]) -> None:
        """In the request's thread: the whole request."""
        try:
            if not self.stopped.is_set():
                server.handle_chat_completions(payload, self.on_event)
        except Exception as error:
            self._post({"error": {"code": 500, "message": f"{type(error).__name__}: {error}"}})
        finally:
            self._post(None)
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
                self._loop.call_soon_threadsafe(self.done.set)

    def _post(self, event: dict[str, Any] | None) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.events.put_nowait, event)


class LlamaChat:
    """A GGUF chat model. Raises `InvalidRequestError` for what the model cannot be asked, `EngineError` for the rest."""

    def __init__(self, options: LlamaOptions) -> None:
        if options.overflow not in ("truncate", "error"):
            raise EngineError(f"overflow must be 'truncate' or 'error', not {options.overflow!r}", code="invalid_configuration")
        self.options = options
        self._server: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self._slots = asyncio.Semaphore(options.slots)
        self._calls: set[_Call] = set()
        self._native_tools = False
        self._bytes_per_token = 3.0
        self._last_step: float | None = None
        self._waiting = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(role=Role.CHAT, models=(self.options.model.stem,), slots=self.options.slots)

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load the model in a thread and compute a first token, so that the first caller finds everything warm."""
        if self._server is not None:
            return
        if not self.options.model.is_file():
            raise EngineUnavailableError(f"there is no model file {self.options.model}", code="weights_missing")
        self._threads = ThreadPoolExecutor(max_workers=self.options.slots, thread_name_prefix="antiphon-llama")
        loop = asyncio.get_running_loop()
        try:
            self._server, self._native_tools = await loop.run_in_executor(self._threads, self._load)
        except (RuntimeError, ValueError, OSError, httpx.HTTPError) as error:
            self._threads.shutdown(wait=False)
            raise EngineUnavailableError(f"llama.cpp could not load {self.options.model}: {error}") from error
        warm_up = ChatBody(messages=(ChatMessage(role="user", text="Hello"),), max_tokens=1)
        async with contextlib.aclosing(self._complete(self._payload(warm_up, warm_up.messages))) as events:
            async for _ in events:
                pass

    def _load(self) -> tuple[Any, bool]:
        """The server, and whether the model's own template knows function calls."""
        import xllamacpp

        options = self.options
        params = xllamacpp.CommonParams()
        params.model.path = str(options.model)
        params.n_ctx = options.context * options.slots
        params.n_parallel = options.slots
        params.n_batch = params.n_ubatch = options.batch
        params.n_gpu_layers = options.gpu_layers
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
        params.cache_ram_mib = options.cache_mb
        params.n_cache_reuse = _REUSE
        params.use_jinja = True
        params.fit_params = False
        params.warmup = True
        params.verbosity = 1
        # llama.cpp opens its HTTP server on a loopback port whether or not one wants it: nobody else gets in.
        key = secrets.token_urlsafe(32)
        params.api_keys = [key]
        params.ui = False
        params.endpoint_slots = False
        params.n_threads_http = 2
        server = xllamacpp.Server(params)
        with httpx.Client(
            base_url=server.listening_address, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=10
        ) as client:
            properties = client.get("/props").raise_for_status().json()
        return server, bool(properties.get("chat_template_caps", {}).get("supports_tools"))

    async def close(self) -> None:
        """Abort what runs, then free the model in a thread."""
        server, self._server = self._server, None
        for call in tuple(self._calls):
            call.stopped.set()
        waits = [asyncio.ensure_future(call.done.wait()) for call in self._calls]
        if waits:
            _, pending = await asyncio.wait(waits, timeout=self.options.abort_seconds)
            for wait in pending:
                wait.cancel()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)
        if server is not None:
            holder = [server]
            del server
            await asyncio.to_thread(holder.clear)

    async def health(self) -> EngineHealth:
        age = None if self._last_step is None else time.monotonic() - self._last_step
        detail = "" if self._server is not None else "not open"
        return EngineHealth(ok=self._server is not None, running=len(self._calls), waiting=self._waiting, last_step_age=age, detail=detail)

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """Text and function calls as they come, then `Finished`."""
        body = request.body
        if not isinstance(body, ChatBody):
            raise InvalidRequestError(f"a chat engine takes a ChatBody, not {type(body).__name__}")
        if not body.messages:
            raise InvalidRequestError("the conversation is empty: there is nothing to answer")
        name = named_tool(body)
        if name is not None and not generic_tools.offered(body):
            raise InvalidRequestError(f"tool_choice demands the function {name!r}, which is not among the tools")
        if body.tool_choice == "required" and not body.tools:
            raise InvalidRequestError("tool_choice is 'required', but there are no tools")
        messages = self._fitted(body.messages, body)
        for attempt in range(_CUTS):
            try:
                async with contextlib.aclosing(self._answer(body, messages)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except _TooLong as error:
                if self.options.overflow == "error" or attempt == _CUTS - 1:
                    raise InvalidRequestError(
                        f"the conversation has {error.tokens} tokens, the model's context holds {error.limit}"
                    ) from error
                self._bytes_per_token = min(self._bytes_per_token, contexts.total(messages) / error.tokens)
                budget = int(contexts.total(messages) * self._room(body) * contexts.KEEP / error.tokens)
                messages = contexts.drop_oldest(messages, budget)

    def _room(self, body: ChatBody) -> int:
        """Tokens that the conversation may have if the answer is to have its place too."""
        reserve = min(body.max_tokens or self.options.max_tokens, self.options.context // 4)
        return self.options.context - reserve

    def _fitted(self, messages: tuple[ChatMessage, ...], body: ChatBody) -> tuple[ChatMessage, ...]:
        """The conversation cut beforehand when it is too long by the bytes per token seen so far."""
        allowed = int(self._room(body) * self._bytes_per_token)
        if self.options.overflow == "error" or contexts.total(messages) <= allowed:
            return messages
        with contextlib.suppress(InvalidRequestError):  # an estimate refuses nobody: the model itself will count
            return contexts.drop_oldest(messages, int(allowed * contexts.KEEP))
        return messages

    async def _answer(self, body: ChatBody, messages: tuple[ChatMessage, ...]) -> AsyncGenerator[EngineChunk, None]:
        """One try at the request with this much of its conversation."""
        tools = generic_tools.offered(body)
        if self._native_tools or not tools:
            async with contextlib.aclosing(self._written(self._payload(body, messages))) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        decided = generic_tools.must_call(body)
        if generic_tools.may_decide(body):
            payload = self._payload(body, generic_tools.for_decision(messages, tools))
            head: list[EngineChunk] = []
            text = ""
            async with contextlib.aclosing(self._written(payload)) as chunks:
                async for chunk in chunks:
                    head.append(chunk)
                    if isinstance(chunk, TextChunk):
                        text += chunk.text
                    verdict = generic_tools.wants_call(text)
                    if verdict:
                        decided = True
                        break
                    if verdict is False or isinstance(chunk, Finished):
                        for held in head:
                            yield held
                        head.clear()
            if not decided:
                return
        if not decided:
            async with contextlib.aclosing(self._written(self._payload(body, generic_tools.for_words(messages)))) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        payload = {**self._payload(body, generic_tools.for_call(messages, tools)), "grammar": generic_tools.grammar(tools)}
        async with contextlib.aclosing(self._call(payload)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _call(self, payload: dict[str, Any]) -> AsyncGenerator[EngineChunk, None]:
        """A call written under the grammar in `payload`: given when it is complete."""
        text = ""
        async with contextlib.aclosing(self._written(payload)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    text += chunk.text
                elif isinstance(chunk, Finished):
                    call = generic_tools.parse_call(text)
                    if call is not None:
                        yield call
                    yield Finished(reason="tool_calls" if chunk.reason == "stop" else chunk.reason, usage=chunk.usage)

    async def _written(self, payload: dict[str, Any]) -> AsyncGenerator[EngineChunk, None]:
        """What the model writes for a payload, and `Finished`."""
        deltas = DeltaReader()
        async with contextlib.aclosing(self._complete(payload)) as events:
            async for event in events:
                for chunk in deltas.read(event):
                    yield chunk
        if deltas.usage.input_tokens > 64 and "tools" not in payload:
            sent = sum(16 + len((message["content"] or "").encode()) for message in payload["messages"])
            self._bytes_per_token = 0.8 * self._bytes_per_token + 0.2 * min(4.5, sent / deltas.usage.input_tokens)
        yield deltas.finished()

    def _payload(self, body: ChatBody, messages: tuple[ChatMessage, ...]) -> dict[str, Any]:
        """The request for llama.cpp; with the model's own form of function calls where it has one."""
        options = self.options
        payload: dict[str, Any] = {
            "messages": [message_payload(message) for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
            "cache_prompt": True,
            "max_tokens": min(body.max_tokens or options.max_tokens, options.context),
            "temperature": options.temperature if body.temperature is None else body.temperature,
            "top_p": options.top_p,
            "top_k": options.top_k,
            "min_p": options.min_p,
            "repeat_penalty": 1.0,
            "dry_multiplier": options.loop_penalty,
            "dry_allowed_length": 3,
            "dry_penalty_last_n": 512,
            "seed": options.seed,
        }
        tools = generic_tools.offered(body)
        if self._native_tools and tools:
            payload["tools"] = [tool_payload(tool) for tool in tools]
            payload["tool_choice"] = "auto" if body.tool_choice == "auto" else "required"
            payload["parallel_tool_calls"] = body.parallel_tool_calls
        elif not self._native_tools:
            payload["messages"] = [message_payload(message) for message in generic_tools.for_words(messages)]
        return payload

    async def _complete(self, payload: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Run a payload and yield its events; closing stops it at the next token and waits until its slot is free."""
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        server, threads = self._server, self._threads
        if server is None or threads is None:
            self._slots.release()
            raise EngineUnavailableError("the chat model is not open")
        call = _Call(asyncio.get_running_loop())
        self._calls.add(call)
        future = asyncio.wrap_future(threads.submit(call.run, server, payload))
        future.add_done_callback(lambda _: self._end(call))
        del server
        try:
            while (event := await call.events.get()) is not None:
                self._last_step = time.monotonic()
                if "error" in event:
                    raise _error(event["error"])
                yield event
        finally:
            call.stopped.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.options.abort_seconds):
                    await call.done.wait()

    def _end(self, call: _Call) -> None:
        """The request's thread has left llama.cpp: only now is its slot free."""
        self._calls.discard(call)
        self._slots.release()


class _TooLong(Exception):
    """The conversation does not fit into the context."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"{tokens} tokens > {limit}")
        self.tokens = max(1, tokens)
        self.limit = limit


def _error(error: dict[str, Any]) -> Exception:
    """llama.cpp's error object as an exception."""
    message, code = str(error.get("message", "unknown error")), error.get("code", 500)
    if error.get("type") == "exceed_context_size_error":
        return _TooLong(int(error.get("n_prompt_tokens", 0)), int(error.get("n_ctx", 0)))
    if code == 503:
        return EngineUnavailableError(f"llama.cpp: {message}")
    if 400 <= code < 500:
        return InvalidRequestError(f"llama.cpp refused the request: {message}")
    return EngineError(f"llama.cpp failed: {message}")
