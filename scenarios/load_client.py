"""A client for load: hundreds of realtime sessions in one process at a few microseconds an event.

It speaks just enough of HTTP and WebSocket: events that go out are made once and written as they are (the mask that RFC 6455
demands of a client is zero, so that a frame can be written again and again), and of what comes in only the type is looked at.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import struct
import time
import urllib.parse
from dataclasses import dataclass, field

import numpy as np

from ..codecs.pcm import SAMPLE_RATE

AUDIO_DELTA = b'"type":"response.output_audio.delta"'
RESPONSE_DONE = b'"type":"response.done"'
RESPONSE_CREATED = b'"type":"response.created"'
ERROR = b'"type":"error"'
LOOK = 160
"""Bytes of an event within which its type stands, from either end."""

LEAD_S = 0.5
"""How far ahead of real time the server sends audio (its default): later than this allows is late."""
TOLERANCE_S = 0.005
RETRY_S = 0.25
SPREAD_S = 6.0
"""New sessions ask for their first answer within this, about an answer's length: callers do not speak in step."""
_PING, _PONG, _CLOSE, _TEXT = 0x9, 0xA, 0x8, 0x1


def frame(payload: bytes, opcode: int = _TEXT) -> bytes:
    """A client's WebSocket frame with a mask of zeros."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
    return head + bytes(4) + payload


@dataclass(slots=True)
class Counts:
    """What a load has seen since the last `reset`. Lateness in seconds."""

    sent_frames: int = 0
    deltas: int = 0
    audio_s: float = 0.0
    responses: int = 0
    errors: int = 0
    underruns: int = 0
    lost: int = 0
    lateness: list[float] = field(default_factory=list)
    first_audio: list[float] = field(default_factory=list)
    own_lateness: list[float] = field(default_factory=list)
    last_error: str = ""


class LoadSession(asyncio.Protocol):
    """One session: sends its caller's frames when told to, asks for one answer after another, and times what comes."""

    def __init__(self, host: str, path: str, headers: str, prompt: bytes, counts: Counts) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.counts = counts
        self._request = (host, path, headers)
        self._prompt = prompt
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._open = False
        self._asked_at = 0.0
        self._first_at: float | None = None
        self._dry_at = 0.0

    # ---- asyncio.Protocol ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, path, headers = self._request
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{headers}\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        """Take whole frames off the stream."""
        self._buffer += data
        if not self._open and not self._upgraded():
            return
        buffer, at = self._buffer, 0
        now = time.monotonic()
        while len(buffer) - at >= 2:
            size, start = buffer[at + 1], at + 2
            if size == 126:
                if len(buffer) - at < 4:
                    break
                size, start = struct.unpack_from("!H", buffer, at + 2)[0], at + 4
            elif size == 127:
                if len(buffer) - at < 10:
                    break
                size, start = struct.unpack_from("!Q", buffer, at + 2)[0], at + 10
            if len(buffer) < start + size:
                break
            self._take(buffer[at] & 0x0F, bytes(buffer[start : start + size]), now)
            at = start + size
        del buffer[:at]

    def connection_lost(self, error: Exception | None) -> None:
        """The server hung up, or we did."""
        if self._transport is not None:
            self.counts.lost += 1
            self._transport = None
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("the server closed the connection during the handshake"))

    # ---- what the load does ----

    def write(self, data: bytes) -> None:
        """Write a ready frame."""
        if self._transport is not None:
            self._transport.write(data)

    def ask(self) -> None:
        """Ask for an answer."""
        self._asked_at, self._first_at = time.monotonic(), None
        self.write(self._prompt)

    def hang_up(self) -> None:
        """Close without ceremony."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    # ---- inside ----

    def _upgraded(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        status = bytes(self._buffer[: self._buffer.find(b"\r\n")])
        if b" 101 " not in status:
            if not self.ready.done():
                self.ready.set_exception(ConnectionError(f"the server refused the session: {status.decode(errors='replace')}"))
            return False
        del self._buffer[: end + 4]
        self._open = True
        self.ready.set_result(None)
        return True

    def _take(self, opcode: int, payload: bytes, now: float) -> None:
        if opcode == _PING:
            self.write(frame(payload, _PONG))
            return
        if opcode == _CLOSE:
            self.counts.last_error = payload[2:].decode(errors="replace") or self.counts.last_error
            return
        ends = payload[:LOOK] + payload[-LOOK:]
        if AUDIO_DELTA in ends:
            self._audio(payload, now)
        elif RESPONSE_DONE in ends:
            self.counts.responses += 1
            self.ask()
        elif ERROR in ends:
            self.counts.errors += 1
            self.counts.last_error = payload.decode(errors="replace")[:300]
            asyncio.get_running_loop().call_later(RETRY_S, self.ask)

    def _audio(self, payload: bytes, now: float) -> None:
        start = payload.find(b'"delta":"') + 9
        samples = (payload.find(b'"', start) - start) * 3 // 8
        counts = self.counts
        seconds = samples / SAMPLE_RATE
        if self._first_at is None:
            self._first_at = now
            counts.first_audio.append(now - self._asked_at)
        else:
            counts.underruns += now > self._dry_at + TOLERANCE_S
            # It may leave once no more than the lead is ahead of the listener, who still hears the end of the last answer at first.
            due = max(self._first_at, self._dry_at + seconds - LEAD_S)
            counts.lateness.append(max(0.0, now - due))
        self._dry_at = max(now, self._dry_at) + seconds
        counts.deltas += 1
        counts.audio_s += samples / SAMPLE_RATE


class Load:
    """Many sessions that send and receive audio all the time, at real time.

    `text` is what each answer says (by the tone pipeline: 15 characters are a second of audio).
    """

    def __init__(self, url: str, *, model: str, text: str, frame_ms: int, api_key: str | None) -> None:
        parts = urllib.parse.urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._path = f"/v1/realtime?model={urllib.parse.quote(model)}"
        self._headers = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        item = f'{{"type":"message","role":"user","content":[{{"type":"input_text","text":"{text}"}}]}}'
        self._prompt = frame(f'{{"type":"conversation.item.create","item":{item}}}'.encode()) + frame(b'{"type":"response.create"}')
        self._frame_s = frame_ms / 1000
        noise = np.random.default_rng(1).standard_normal((16, int(SAMPLE_RATE * self._frame_s))) * 10  # a quiet room, 70 dB down
        self._frames = [
            frame(b'{"type":"input_audio_buffer.append","audio":"' + base64.b64encode(row.astype("<i2").tobytes()) + b'"}') for row in noise
        ]
        self._random = random.Random(1)
        self.counts = Counts()
        self.sessions: list[LoadSession] = []

    def reset(self) -> Counts:
        """Begin to count anew; gives what was counted until now."""
        old, self.counts = self.counts, Counts()
        for session in self.sessions:
            session.counts = self.counts
        return old

    async def grow(self, sessions: int, *, spread_s: float = SPREAD_S) -> None:
        """Open sessions until there are so many; each asks for its first answer within `spread_s`.

        Raises ConnectionError, OSError, TimeoutError.
        """
        loop = asyncio.get_running_loop()
        while len(self.sessions) < sessions:
            _, session = await loop.create_connection(
                lambda: LoadSession(f"{self._host}:{self._port}", self._path, self._headers, self._prompt, self.counts),
                self._host,
                self._port,
            )
            async with asyncio.timeout(10):
                await session.ready
            self.sessions.append(session)
            loop.call_later(self._random.uniform(0, spread_s), session.ask)

    def close(self) -> None:
        """Hang up everywhere."""
        for session in self.sessions:
            session.hang_up()

    async def run(self) -> None:
        """Send every session's frames at real time until cancelled. Sessions are spread evenly over the frame's length."""
        slots = 10
        step = self._frame_s / slots
        began, number = time.monotonic(), 0
        while True:
            due = began + number * step
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            else:
                await asyncio.sleep(0)
            self.counts.own_lateness.append(max(0.0, time.monotonic() - due))
            data = self._frames[number // slots % len(self._frames)]
            for session in self.sessions[number % slots :: slots]:
                session.write(data)
                self.counts.sent_frames += 1
            number += 1
