"""What a stranger sees of a running server: its metrics, its footprint in the system, its log; and a socket without any manners."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
from antiphon.codecs.pcm import silence
from antiphon.scenarios.server import Server

TONE = base64.b64encode(b"\x00\x40\x00\xc0" * 1200).decode()
QUIET = base64.b64encode(silence(100)).decode()
"""100 ms of the loudest and of the quietest speech, as base64."""

Event = dict[str, Any]

_BAD_LINES = re.compile(r'Traceback|"level": "(?:error|critical)"|crashed|Fatal error|never awaited|was destroyed')


def append(audio: str, **more: Any) -> Event:
    """An event with 100 ms of audio."""
    return {"type": "input_audio_buffer.append", "audio": audio, **more}


def ask(text: str, **response: Any) -> list[Event]:
    """Events that ask something in writing."""
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    return [{"type": "conversation.item.create", "item": item}, {"type": "response.create", "response": response}]


@dataclass
class Outside:
    """A server in a process of its own."""

    server: Server
    recordings: Path

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws", 1) + "/v1/realtime?model=tone"

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def metrics(self) -> dict[str, float]:
        """Every sample by its name with labels, as it stands in the text."""
        text = httpx.get(f"{self.url}/metrics", timeout=30, trust_env=False).text
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def total(self, prefix: str) -> float:
        """The sum of the samples whose name begins so."""
        return sum(value for name, value in self.metrics().items() if name.startswith(prefix))

    def footprint(self) -> Footprint:
        process = psutil.Process(self.server.pid)
        return Footprint(
            descriptors=process.num_fds(),
            threads=process.num_threads(),
            rss_mb=process.memory_info().rss / 1e6,
            tasks=int(self.total("antiphon_tasks")),
            running=int(self.total("antiphon_engine_running") + self.total("antiphon_engine_waiting")),
            sessions=int(self.total("antiphon_sessions{") + self.total("antiphon_sessions_waiting")),
        )

    def complaints(self) -> list[str]:
        """Lines of the log that tell of a fault in the server."""
        return [line for line in self.server.log.read_text(errors="replace").splitlines() if _BAD_LINES.search(line)]

    def assert_well(self) -> None:
        """Nothing crashed so far."""
        assert self.total("antiphon_crashes_total") == 0
        complaints = self.complaints()
        assert not complaints, f"{len(complaints)} complaints, such as {complaints[0][:300]} ... {complaints[0][-1200:]}"

    def raw(self, **options: Any) -> RawSocket:
        return RawSocket(self.port, **options)


@dataclass(frozen=True)
class Footprint:
    """What a server takes of the system. `running`: requests at the engines; `tasks`: of the event loop."""

    descriptors: int
    threads: int
    rss_mb: float
    tasks: int
    running: int
    sessions: int


def eventually(true: Callable[[], bool], within: float = 10.0) -> None:
    """Wait until something holds; fail when it does not in time."""
    ends = time.monotonic() + within
    while not true():
        assert time.monotonic() < ends, "it did not come about in time"
        time.sleep(0.05)


class RawSocket:
    """A TCP connection that writes what it is told, valid or not."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.sock = socket.socket()
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(10)
        self.sock.connect(("127.0.0.1", port))

    def handshake(self, query: str = "model=tone", *headers: str) -> bytes:
        """Upgrade, and give the head of the answer."""
        self.sock.sendall(handshake(query, *headers))
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.sock.recv(1)
            if not part:
                break
            head += part
        return head

    def send(self, event: Any) -> None:
        self.sock.sendall(frame(json.dumps(event).encode()))

    def reset(self) -> None:
        """Vanish with a TCP RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def drain(self, limit: float = 10.0) -> bytes:
        """Read until the server closes."""
        data = b""
        ends = time.monotonic() + limit
        try:
            while time.monotonic() < ends and (part := self.sock.recv(65536)):
                data += part
        except OSError:
            pass
        return data


def handshake(query: str = "model=tone", *headers: str) -> bytes:
    """A WebSocket handshake's request."""
    lines = [
        f"GET /v1/realtime?{query} HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        "Sec-WebSocket-Version: 13",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def frame(payload: bytes, opcode: int = 1, *, fin: bool = True, masked: bool = True) -> bytes:
    """A client's WebSocket frame."""
    length = len(payload)
    mask_bit = 0x80 if masked else 0
    head = bytes([(0x80 if fin else 0) | opcode])
    if length < 126:
        head += bytes([mask_bit | length])
    elif length < 65536:
        head += bytes([mask_bit | 126]) + struct.pack("!H", length)
    else:
        head += bytes([mask_bit | 127]) + struct.pack("!Q", length)
    return head + (b"\0\0\0\0" if masked else b"") + payload


async def speak(send: Callable[[Event], Any], pattern: list[tuple[str, int]]) -> None:
    """Send audio in real time: (TONE or QUIET, units of 100 ms), one after the other."""
    for audio, count in pattern:
        for _ in range(count):
            await send(append(audio))
            await asyncio.sleep(0.1)
