"""A small server that speaks just enough of the protocol for the clients: whatever is loud is speech, every turn gets a tone."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from antiphon.codecs.pcm import SAMPLE_RATE, from_int16, to_int16
from websockets.asyncio.server import ServerConnection, serve

LOUD = 1000
SILENCE_S = 0.2
LEAD_S = 0.3
PIECE_S = 0.1


class FakeSession:
    """One connection. `answer_s` is how long each answer sounds; the caller's speech cuts it after `confirm_s`."""

    def __init__(self, websocket: ServerConnection, answer_s: float, confirm_s: float, transcripts: list[str]) -> None:
        self.websocket = websocket
        self.answer_s, self.confirm_s = answer_s, confirm_s
        self.transcripts = transcripts
        self.numbers = itertools.count(1)
        self.received: list[dict[str, Any]] = []
        self.items: dict[str, dict[str, Any]] = {}
        self.speech_s = self.silent_s = self.heard_s = 0.0
        self.item: str | None = None
        self.answer: asyncio.Task[None] | None = None
        self.playing_until = 0.0

    async def send(self, kind: str, **fields: Any) -> None:
        await self.websocket.send(json.dumps({"type": kind, "event_id": f"event_{next(self.numbers)}", **fields}))

    async def run(self) -> None:
        await self.send("session.created", session={"id": "sess_fake", "type": "realtime"})
        try:
            async for message in self.websocket:
                event = json.loads(message)
                if event["type"] != "input_audio_buffer.append":
                    self.received.append(event)
                await self.take(event)
        finally:
            if self.answer is not None:
                self.answer.cancel()

    async def take(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "session.update" if "bad" in event["session"]:
                await self.send("error", error={"type": "invalid_request_error", "message": "No.", "event_id": event.get("event_id")})
            case "session.update":
                await self.send("session.updated", session={"id": "sess_fake", **event["session"]})
            case "input_audio_buffer.append":
                await self.hear(base64.b64decode(event["audio"]))
            case "input_audio_buffer.commit":
                await self.send(
                    "conversation.item.input_audio_transcription.completed",
                    item_id="item_x",
                    content_index=0,
                    transcript=self.transcripts.pop(0),
                )
            case "conversation.item.truncate":
                item = self.items[event["item_id"]]
                words = item["content"][0]["transcript"].split(" ")
                kept = round(event["audio_end_ms"] / 1000 / self.answer_s * len(words))
                item["content"][0]["transcript"] = " ".join(words[:kept])
                await self.send("conversation.item.truncated", **{key: event[key] for key in ("item_id", "content_index", "audio_end_ms")})
            case "conversation.item.retrieve":
                await self.send("conversation.item.retrieved", item=self.items[event["item_id"]])
            case "response.cancel":
                await self.stop("client_cancelled")

    async def hear(self, pcm: bytes) -> None:
        seconds = len(pcm) / 2 / SAMPLE_RATE
        self.heard_s += seconds
        loud = bool(np.abs(to_int16(pcm).astype(int)).max(initial=0) > LOUD)
        self.speech_s, self.silent_s = (self.speech_s + seconds, 0.0) if loud else (self.speech_s, self.silent_s + seconds)
        speaking = asyncio.get_running_loop().time() < self.playing_until
        if loud and self.item is None and self.speech_s >= (self.confirm_s if speaking else 0.02):
            self.item = f"item_{next(self.numbers)}"
            await self.send("input_audio_buffer.speech_started", item_id=self.item, audio_start_ms=int(self.heard_s * 1000))
            await self.stop("turn_detected")
        elif self.silent_s >= SILENCE_S:
            item, self.item, self.speech_s = self.item, None, 0.0
            if item is not None:
                await self.answer_to(item)

    async def answer_to(self, item: str) -> None:
        await self.send("input_audio_buffer.speech_stopped", item_id=item, audio_end_ms=int(self.heard_s * 1000))
        await self.send("input_audio_buffer.committed", item_id=item)
        text = self.transcripts.pop(0) if self.transcripts else "something"
        await self.send("conversation.item.input_audio_transcription.completed", item_id=item, content_index=0, transcript=text)
        self.answer = asyncio.create_task(self.speak())

    async def speak(self) -> None:
        loop = asyncio.get_running_loop()
        response, item = f"resp_{next(self.numbers)}", f"item_{next(self.numbers)}"
        transcript = "one two three four five six seven eight nine ten"
        place = {"response_id": response, "item_id": item, "output_index": 0, "content_index": 0}
        self.items[item] = {"id": item, "role": "assistant", "content": [{"type": "output_audio", "transcript": transcript}]}
        status, details = "completed", None
        await self.send("response.created", response={"id": response, "status": "in_progress"})
        try:
            await self.send("response.output_audio_transcript.delta", delta=transcript, **place)
            began, sent = loop.time(), 0.0
            self.playing_until = began + self.answer_s
            tone = from_int16(np.full(int(PIECE_S * SAMPLE_RATE), 5000))
            while sent < self.answer_s:
                await asyncio.sleep(max(0.0, began + sent - LEAD_S - loop.time()))
                await self.send("response.output_audio.delta", delta=base64.b64encode(tone).decode(), **place)
                sent += PIECE_S
        except asyncio.CancelledError as error:
            status, details = "cancelled", {"type": "cancelled", "reason": str(error.args[0] if error.args else "")}
        await self.send("response.output_audio.done", **place)
        await self.send("response.done", response={"id": response, "status": status, "status_details": details})

    async def stop(self, reason: str) -> None:
        self.playing_until = 0.0
        answer, self.answer = self.answer, None
        if answer is not None and not answer.done():
            answer.cancel(reason)
            await asyncio.gather(answer, return_exceptions=True)


@contextlib.asynccontextmanager
async def fake_server(
    *, answer_s: float = 1.5, confirm_s: float = 0.2, transcripts: list[str] | None = None
) -> AsyncIterator[tuple[str, list[FakeSession]]]:
    """A running fake: its address and its sessions."""
    sessions: list[FakeSession] = []

    async def handle(websocket: ServerConnection) -> None:
        session = FakeSession(websocket, answer_s, confirm_s, list(transcripts or []))
        sessions.append(session)
        await session.run()

    async with serve(handle, "127.0.0.1", 0, max_size=32 * 1024 * 1024) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}", sessions


def voice(seconds: float) -> bytes:
    """A caller's "speech": a loud tone."""
    return from_int16(np.sin(np.arange(int(seconds * SAMPLE_RATE)) / 20) * 12_000)
