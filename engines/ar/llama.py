"""Chat on llama.cpp in this process: a GGUF file with slots, continuous batching and a prefix cache."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import EngineError, InvalidRequestError
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..messages import ChatBody, ChatMessage, EngineChunk, Finished, TextChunk, Tool
from . import context as contexts
from . import generic_tools
from .llama_server import LlamaServer, ServerOptions, TooLongError
from .wire import DeltaReader, message_payload, named_tool, tool_payload

_LARGE = 1_500_000_000
"""Bytes of a model file from which on the model's own form of function calls is trusted."""

_CUTS = 6
"""How often a conversation is cut anew when the model finds it still too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaOptions:
    """`context` is in tokens for each of the `slots`. `threads`: leave a core free for everything else; threads that must wait for each
    other at every layer are slower than one when the machine is busy. `batch` is how many prompt tokens are computed between two
    looks at whether the request still stands. `cache_mb` bounds the prompts kept in memory besides those in the slots.

    `function_calls`: how functions are offered when the model may choose: "template" (the model's own form), "examples" (see
    `generic_tools`), "auto": examples for files below 1.5 GB, since so small models do not keep to their own form. A call that is
    demanded is always written under a grammar.
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
    max_tokens: int = 120
    temperature: float = 0.2
    top_p: float = 0.9
    top_k: int = 40
    min_p: float = 0.05
    loop_penalty: float = 0.8
    seed: int = 7
    gpu_layers: int = 0
    overflow: str = "truncate"
    function_calls: str = "auto"
    abort_seconds: float = 1.5


class LlamaChat:
    """A GGUF chat model. Raises `InvalidRequestError` for what the model cannot be asked, `EngineError` for the rest."""

    def __init__(self, options: LlamaOptions) -> None:
        if options.overflow not in ("truncate", "error"):
            raise EngineError(f"overflow must be 'truncate' or 'error', not {options.overflow!r}", code="invalid_configuration")
        if options.function_calls not in ("auto", "template", "examples"):
            raise EngineError(
                f"function_calls must be 'auto', 'template' or 'examples', not {options.function_calls!r}", code="invalid_configuration"
            )
        self.options = options
        self._server = LlamaServer(
            ServerOptions(
                model=options.model,
                context=options.context,
                slots=options.slots,
                threads=options.threads,
                batch=options.batch,
                cache_mb=options.cache_mb,
                gpu_layers=options.gpu_layers,
                abort_seconds=options.abort_seconds,
            )
        )
        self._bytes_per_token = 3.0
        self._by_template = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(role=Role.CHAT, models=(self.options.model.stem,), slots=self.options.slots)

    async def open(self) -> None:
        """Load the model in a thread and compute a first token, so that the first caller finds everything warm."""
        await self._server.open()
        large = self.options.model.stat().st_size >= _LARGE
        wanted = self.options.function_calls
        self._by_template = self._server.native_tools and (wanted == "template" or (wanted == "auto" and large))
        warm_up = ChatBody(messages=(ChatMessage(role="user", text="Hello"),), max_tokens=1)
        async with contextlib.aclosing(self._server.complete(self._payload(warm_up, warm_up.messages))) as events:
            async for _ in events:
                pass

    async def close(self) -> None:
        """Abort what runs and free the model."""
        await self._server.close()

    async def health(self) -> EngineHealth:
        server = self._server
        age = None if server.last_step is None else time.monotonic() - server.last_step
        detail = "" if server.is_open else "not open"
        return EngineHealth(ok=server.is_open, running=server.running, waiting=server.waiting, last_step_age=age, detail=detail)

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
            except TooLongError as error:
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
        must_call = generic_tools.must_call(body)
        may_decide = generic_tools.may_decide(body) and not self._by_template
        if not (must_call or may_decide):
            stream = self._written(self._payload(body, messages))
        else:
            named = generic_tools.named(messages, tools)
            stream = self._call(body, messages, named or tools) if must_call or named else self._decide(body, messages, tools)
        async with contextlib.aclosing(stream) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _decide(
        self, body: ChatBody, messages: tuple[ChatMessage, ...], tools: tuple[Tool, ...]
    ) -> AsyncGenerator[EngineChunk, None]:
        """An answer in words, or a call when that is what the model begins to write."""
        held: list[EngineChunk] = []
        text = ""
        wants_call: bool | None = None
        async with contextlib.aclosing(self._written(self._payload(body, generic_tools.for_decision(messages, tools)))) as chunks:
            async for chunk in chunks:
                held.append(chunk)
                text += chunk.text if isinstance(chunk, TextChunk) else ""
                if wants_call is None:
                    wants_call = generic_tools.wants_call(text)
                if wants_call:
                    break
                if wants_call is False or isinstance(chunk, Finished):
                    for part in held:
                        yield part
                    held.clear()
        if wants_call:
            async with contextlib.aclosing(self._call(body, messages, tools)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def _call(self, body: ChatBody, messages: tuple[ChatMessage, ...], tools: tuple[Tool, ...]) -> AsyncGenerator[EngineChunk, None]:
        """A call of one of `tools`, written under a grammar; given when it is complete."""
        payload = self._payload(body, generic_tools.for_call(messages, tools))
        payload |= {"grammar": generic_tools.grammar(tools), "temperature": 0, "dry_multiplier": 0}
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
        async with contextlib.aclosing(self._server.complete(payload)) as events:
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
        if not self._by_template:
            payload["messages"] = [message_payload(message) for message in generic_tools.for_words(messages)]
        elif tools and not generic_tools.must_call(body):
            payload["tools"] = [tool_payload(tool) for tool in tools]
            payload["parallel_tool_calls"] = body.parallel_tool_calls
        return payload
