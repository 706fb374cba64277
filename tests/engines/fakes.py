"""Engines for the tests of what stands around engines: slow, failing, stuck, counting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from antiphon.engines.errors import EngineError
from antiphon.engines.interface import Capabilities, EngineHealth, EngineRequest, Role
from antiphon.engines.messages import AudioChunk, ChatBody, ChatMessage, EngineChunk, Finished, TextChunk, TurnEndBody


class FakeEngine:
    """Gives `chunks`, one each `pause` seconds; an exception among them is raised. `unwind` seconds pass before it stops."""

    def __init__(self, role: Role, chunks: list[Any], *, slots: int = 1, pause: float = 0.0, unwind: float = 0.0) -> None:
        self.role = role
        self.chunks = chunks
        self.pause = pause
        self.unwind = unwind
        self.slots = slots
        self.running = 0
        self.most = 0
        self.started = 0
        self.ended = 0
        self.opened = 0
        self.closed = 0
        self.well = True
        self.requests: list[EngineRequest] = []

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(role=self.role, models=("fake",), slots=self.slots)

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1

    async def health(self) -> EngineHealth:
        return EngineHealth(ok=self.well, running=self.running)

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        self.requests.append(request)
        self.started += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for chunk in self.chunks:
                await asyncio.sleep(self.pause)
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
        finally:
            try:
                if self.unwind:
                    await asyncio.sleep(self.unwind)
            finally:
                self.running -= 1
                self.ended += 1


def chat(text: str, **keywords: Any) -> FakeEngine:
    """A chat engine that says `text` word by word."""
    words = [TextChunk(word if index == 0 else " " + word) for index, word in enumerate(text.split(" "))]
    return FakeEngine(Role.CHAT, [*words, Finished()], **keywords)


def speech(chunks: int = 4, **keywords: Any) -> FakeEngine:
    """A speech engine that gives 100 ms of silence `chunks` times for any text, and never tells the text."""
    return FakeEngine(Role.SPEECH, [AudioChunk(pcm=bytes(4800))] * chunks, **keywords)


def failing(role: Role, message: str = "broken") -> FakeEngine:
    return FakeEngine(role, [EngineError(message)])


def request(name: str = "r", **keywords: Any) -> EngineRequest:
    return EngineRequest(request_id=name, body=TurnEndBody(b""), **keywords)


def ask(text: str, **keywords: Any) -> ChatBody:
    return ChatBody(messages=(ChatMessage(role="user", text=text),), **keywords)
