"""Chat on any OpenAI-compatible server by URL (vLLM, llama.cpp, SGLang, Ollama, a hosted API): streamed, aborted by disconnecting."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from ..errors import EngineBusyError, EngineError, EngineTimeoutError, EngineUnavailableError, InvalidRequestError
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..messages import ChatBody, EngineChunk
from .wire import DeltaReader, message_payload, named_tool, tool_payload

MAX_LINE = 4 << 20
"""Longest line of a stream, in bytes; a server that sends a longer one is not followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIChatOptions:
    """`url` is the base, with or without the closing `/v1`. Times in seconds: `connect`, `first_token` (and the longest gap between
    two tokens). `key` goes out as a bearer token; `extra` is merged into every request's body (`{"top_k": 40}`)."""

    url: str
    model: str
    key: str = ""
    slots: int = 32
    connect: float = 5.0
    first_token: float = 30.0
    max_tokens: int | None = 512
    temperature: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    verify: bool = True


class OpenAIChat:
    """See the module's docstring. `open` does not ask the server anything: it may come up later; `health` tells."""

    def __init__(self, options: OpenAIChatOptions) -> None:
        if not options.url.startswith(("http://", "https://")):
            raise EngineError(
                f"the URL of a chat server begins with http:// or https://, not {options.url!r}", code="invalid_configuration"
            )
        self.options = options
        base = options.url.rstrip("/")
        self._base = base if base.endswith("/v1") else base + "/v1"
        self._client: httpx.AsyncClient | None = None
        self._running = 0
        self._last_step: float | None = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(role=Role.CHAT, models=(self.options.model,), slots=self.options.slots)

    async def open(self) -> None:
        """Make the connection pool (bounded by the slots)."""
        options = self.options
        limits = httpx.Limits(max_connections=options.slots + 2, max_keepalive_connections=options.slots)
        timeout = httpx.Timeout(options.first_token, connect=options.connect)
        headers = {"Authorization": f"Bearer {options.key}"} if options.key else {}
        self._client = httpx.AsyncClient(limits=limits, timeout=timeout, headers=headers, verify=options.verify)

    async def close(self) -> None:
        """Drop every connection; running requests end with an error."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def health(self) -> EngineHealth:
        """Whether the server lists its models."""
        age = None if self._last_step is None else time.monotonic() - self._last_step
        ok, detail = False, "not open"
        if self._client is not None:
            try:
                answer = await self._client.get(f"{self._base}/models", timeout=self.options.connect)
                ok, detail = answer.is_success, "" if answer.is_success else f"{self._base}/models answers {answer.status_code}"
            except httpx.HTTPError as error:
                detail = f"{self._base}: {type(error).__name__} {error}"
        return EngineHealth(ok=ok, running=self._running, last_step_age=age, detail=detail)

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """Text and function calls as they come, then `Finished`. Closing drops the connection, which aborts the server's work."""
        body = request.body
        if not isinstance(body, ChatBody):
            raise InvalidRequestError(f"a chat engine takes a ChatBody, not {type(body).__name__}")
        if not body.messages:
            raise InvalidRequestError("the conversation is empty: there is nothing to answer")
        if self._client is None:
            raise EngineUnavailableError("the chat engine is not open")
        deltas = DeltaReader()
        self._running += 1
        try:
            async with self._client.stream("POST", f"{self._base}/chat/completions", json=self._payload(body)) as response:
                if response.status_code != httpx.codes.OK:
                    raise _refusal(response.status_code, (await response.aread()).decode(errors="replace"), self._base)
                async for data in _events(response):
                    self._last_step = time.monotonic()
                    for chunk in deltas.read(data):
                        yield chunk
        except httpx.TimeoutException as error:
            raise EngineTimeoutError(f"{self._base} did not answer in time ({type(error).__name__})") from error
        except httpx.HTTPError as error:
            raise EngineUnavailableError(f"{self._base} cannot be reached: {type(error).__name__} {error}") from error
        finally:
            self._running -= 1
        yield deltas.finished()

    def _payload(self, body: ChatBody) -> dict[str, Any]:
        options = self.options
        payload: dict[str, Any] = {
            "model": options.model,
            "messages": [message_payload(message) for message in body.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        settings = {
            "max_tokens": body.max_tokens or options.max_tokens,
            "temperature": options.temperature if body.temperature is None else body.temperature,
        }
        payload |= {key: value for key, value in settings.items() if value is not None}
        if body.tools and body.tool_choice != "none":
            name = named_tool(body)
            payload["tools"] = [tool_payload(tool) for tool in body.tools]
            payload["tool_choice"] = body.tool_choice if name is None else {"type": "function", "function": {"name": name}}
            payload["parallel_tool_calls"] = body.parallel_tool_calls
        return payload | options.extra


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events. Raises `EngineError` for an error event and for what is no JSON."""
    async for line in _lines(response):
        field_name, _, value = line.partition(b":")
        if field_name != b"data":
            continue
        value = value.strip()
        if value == b"[DONE]":
            return
        try:
            event = json.loads(value)
        except json.JSONDecodeError as error:
            raise EngineError(f"the chat server sent an event that is no JSON: {value[:80]!r}") from error
        if isinstance(event, dict) and event.get("error"):
            detail = event["error"]
            raise EngineError(f"the chat server failed: {detail.get('message', detail) if isinstance(detail, dict) else detail}")
        if isinstance(event, dict):
            yield event


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """The lines of a body. Only a line feed ends one: texts may hold other line separators."""
    buffer = b""
    async for block in response.aiter_bytes():
        buffer += block
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            yield line
        if len(buffer) > MAX_LINE:
            raise EngineError(f"the chat server sent a line of more than {MAX_LINE} bytes")
    if buffer:
        yield buffer


def _refusal(status: int, text: str, base: str) -> EngineError:
    """The error for an answer that is not a stream."""
    try:
        detail = json.loads(text)["error"]
        message = str(detail["message"] if isinstance(detail, dict) else detail)
    except (json.JSONDecodeError, KeyError, TypeError):
        message = text[:200]
    sentence = f"{base} answered {status}: {message}"
    if status in (429, 529):
        return EngineBusyError(sentence)
    if status in (401, 403):
        return EngineError(f"{sentence} (is the engine's key right?)", code="engine_unauthorized")
    if status in (408, 504):
        return EngineTimeoutError(sentence)
    if status in (404, 502, 503):
        return EngineUnavailableError(sentence)
    if 400 <= status < 500:
        return InvalidRequestError(sentence)
    return EngineError(sentence)
