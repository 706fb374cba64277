"""A chat engine that says what it was told, token by token at a set pace. For load tests and for the tests of everything around it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ..errors import InvalidRequestError
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..messages import ChatBody, EngineChunk, Finished, TextChunk, ToolCallChunk, Usage

_TOKEN = re.compile(r"\s*\S+|\s+")
_CALL = re.compile(r"call (\w+)\s*(\{.*\})?\s*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoChatOptions:
    """`tokens_per_second` 0: as fast as the loop allows. `text`: answer this instead of the user's own words."""

    prefix: str = ""
    text: str | None = None
    first_token_ms: float = 0.0
    tokens_per_second: float = 80.0
    slots: int = 1024


class EchoChat:
    """Answers with the last user message; a word is a token.

    Function calls: with tools, "call NAME {json}" from the user, or a `tool_choice` that demands a call, gives that call; after
    a function's result the answer is the result.
    """

    def __init__(self, options: EchoChatOptions) -> None:
        self.options = options
        self._running = 0
        self._last_step: float | None = None
        self._calls = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(role=Role.CHAT, models=("echo",), slots=self.options.slots)

    async def open(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def health(self) -> EngineHealth:
        age = None if self._last_step is None else time.monotonic() - self._last_step
        return EngineHealth(ok=True, running=self._running, last_step_age=age)

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        """Text or one function call, then `Finished`. Raises `InvalidRequestError`."""
        body = request.body
        if not isinstance(body, ChatBody):
            raise InvalidRequestError(f"a chat engine takes a ChatBody, not {type(body).__name__}")
        self._running += 1
        try:
            await asyncio.sleep(self.options.first_token_ms / 1000)
            input_tokens = sum(len(message.text.split()) for message in body.messages)
            call = self._call(body)
            if call is not None:
                yield call
                yield Finished(reason="tool_calls", usage=Usage(input_tokens=input_tokens, output_tokens=1))
                return
            tokens = _TOKEN.findall(self._answer(body))
            limit = len(tokens) if body.max_tokens is None else min(len(tokens), body.max_tokens)
            began = time.monotonic()
            for index, token in enumerate(tokens[:limit]):
                self._last_step = time.monotonic()
                yield TextChunk(token)
                await asyncio.sleep(self._pause(began, index + 1))
            usage = Usage(input_tokens=input_tokens, output_tokens=limit)
            yield Finished(reason="stop" if limit == len(tokens) else "length", usage=usage)
        finally:
            self._running -= 1

    def _pause(self, began: float, tokens: int) -> float:
        """Seconds until the next token is due; the pace is kept against the clock, not summed up from sleeps."""
        if self.options.tokens_per_second <= 0:
            return 0.0
        return max(0.0, began + tokens / self.options.tokens_per_second - time.monotonic())

    def _answer(self, body: ChatBody) -> str:
        if self.options.text is not None:
            return self.options.text
        for message in reversed(body.messages):
            if message.role in ("user", "tool"):
                return self.options.prefix + message.text
        raise InvalidRequestError("the conversation holds no user message to answer")

    def _call(self, body: ChatBody) -> ToolCallChunk | None:
        """The function call that the conversation asks for, if any."""
        if not body.tools or body.tool_choice == "none" or body.messages[-1:] == () or body.messages[-1].role == "tool":
            return None
        asked = _CALL.fullmatch(body.messages[-1].text)
        name, arguments = (asked[1], asked[2] or "{}") if asked else ("", "{}")
        if body.tool_choice.startswith("function:"):
            name = body.tool_choice.removeprefix("function:")
        elif body.tool_choice == "required" and not name:
            name = body.tools[0].name
        if name not in {tool.name for tool in body.tools}:
            return None
        self._calls += 1
        return ToolCallChunk(index=0, call_id=f"call_echo_{self._calls}", name=name, arguments=arguments)
