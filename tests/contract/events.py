"""Reading a realtime connection as a strict client would: each event is checked by the SDK's own types."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

STRICT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
FRAME_MS = 40


class Listener:
    """Collects events from an SDK connection; `until` waits for a kind of event and gives everything up to it."""

    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        self.connection = connection
        self.log: list[Any] = []

    async def next(self, timeout: float = 30) -> Any:
        raw = await asyncio.wait_for(self.connection.recv_bytes(), timeout)
        event = STRICT.validate_json(raw)
        assert self.connection.parse_event(raw).type == event.type
        self.log.append(event)
        return event

    async def until(self, kind: str, timeout: float = 60) -> list[Any]:
        """Events up to and with the first of this kind."""
        seen: list[Any] = []
        deadline = time.monotonic() + timeout
        while True:
            event = await self.next(max(0.1, deadline - time.monotonic()))
            seen.append(event)
            assert event.type != "error" or kind == "error", event
            if event.type == kind:
                return seen

    async def quiet(self, seconds: float) -> list[Any]:
        """Everything that arrives within the time."""
        seen: list[Any] = []
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                seen.append(await self.next(left))
            except TimeoutError:
                break
        return seen


async def say(connection: AsyncRealtimeConnection, pcm: bytes, silence_ms: int = 1500) -> None:
    """Send speech and the silence after it in real time, as a microphone does."""
    audio = pcm + bytes(48 * silence_ms)
    start = time.monotonic()
    for index, position in enumerate(range(0, len(audio), 48 * FRAME_MS)):
        block = audio[position : position + 48 * FRAME_MS]
        await connection.input_audio_buffer.append(audio=base64.b64encode(block).decode())
        await asyncio.sleep(max(0.0, start + (index + 1) * FRAME_MS / 1000 - time.monotonic()))


def kinds(events: list[Any]) -> list[str]:
    """Their types, runs of the same type folded."""
    folded: list[str] = []
    for event in events:
        if not folded or folded[-1] != event.type:
            folded.append(event.type)
    return folded
