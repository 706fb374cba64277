"""The WebSocket transport: a reader that always reads, a writer that takes an event only when it can leave at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.websockets import WebSocket

from ...codecs.pcm import SAMPLE_RATE
from ...sessions.inbound import AudioDelivered, BadFrame, ClientMessage, Inbound
from ..tasks import both_ways
from .connection import Purged
from .event_gate import EventGate
from .outbox import Outbox, Queued
from .uvicorn_socket import EXTENSION, SocketControl

YIELD_EVERY = 64
"""Events that the reader handles before it lets others have the event loop."""
CROWDED = 0.25
"""Share of the outbox's bounds beyond which nothing more is read: who does not take the answers may not go on asking. Spoken
answers are paced and stay far below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketLimits:
    """The caps of one WebSocket connection."""

    max_event_bytes: int = 21 * 1024 * 1024
    """A larger event is answered with an error: 15 MiB of audio in base64 fit. (The socket itself closes at twice this.)"""
    audio_rate: float = 2.0
    """Seconds of input audio per second, on average."""
    audio_burst_s: float = 60.0
    """Seconds of input audio at once."""
    bytes_per_second: int = 1024 * 1024
    """Bytes of client events per second, on average, audio included."""
    bytes_burst: int = 32 * 1024 * 1024
    """Bytes of client events at once."""
    max_event_values: int = 100_000
    """An event with more values in its JSON is refused: taking it apart would hold up every other session."""
    events_per_second: float = 250.0
    events_burst: int = 4000
    errors_per_minute: int = 600
    """Mistakes are forgiven; a client that makes more is closed with 1008."""
    outbox_audio_ms: int = 4000
    """Audio on its way to the socket. Each response keeps to `undelivered_ms`; this is the wall behind them."""
    outbox_bytes: int = 8 * 1024 * 1024
    outbox_events: int = 4096
    send_timeout_s: float = 5.0
    """A reader that takes nothing for so long is closed with 1013."""


@dataclass(slots=True)
class Closing:
    """How a connection ended. `by`: client, server, slow_reader."""

    code: int = 1005
    by: str = "client"


class WebSocketConnection:
    """A WebSocket attached to a session (see `connection.Connection`). `run` lasts as long as the connection does."""

    def __init__(self, websocket: WebSocket, limits: WebSocketLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._websocket = websocket
        self._limits = limits
        self._clock = clock
        self._socket: SocketControl | None = websocket.scope.get("extensions", {}).get(EXTENSION)
        self.outbox = Outbox(
            max_samples=limits.outbox_audio_ms * SAMPLE_RATE // 1000,
            max_bytes=limits.outbox_bytes,
            max_events=limits.outbox_events,
        )
        self._finish: tuple[int, str] | None = None
        self._overflowed = False
        self._finish_by = 0.0
        self.closing = Closing()
        self._gate = EventGate(limits, clock=clock)
        self._taken = asyncio.Event()

    # ---- what the conductor calls -----------------------------------------------------------------------------------

    def send(self, data: bytes, *, epoch: int | None = None, samples: int = 0, response_id: str | None = None) -> None:
        if self._finish is not None or self._overflowed:
            return
        if not self.outbox.put(data, epoch=epoch, samples=samples, response_id=response_id):
            self._overflowed = True
            self.outbox.wake()

    def purge(self, epoch: int) -> Purged:
        return self.outbox.purge(epoch)

    def expect_audio(self, bytes_per_second: int) -> None:
        self._gate.expect_audio(bytes_per_second)

    def finish(self, code: int, reason: str) -> None:
        if self._finish is None:
            self._finish = (code, reason)
            self._finish_by = self._clock() + self._limits.send_timeout_s
            self.outbox.wake()

    # ---- the two tasks ----------------------------------------------------------------------------------------------

    async def run(self, feed: Callable[[Inbound], None]) -> Closing:
        """Carry events both ways until either side closes. What arrives and what was delivered goes to `feed`."""
        await both_ways(self._read(feed), self._write(feed), name="websocket")
        return self.closing

    async def _read(self, feed: Callable[[Inbound], None]) -> None:
        handled = 0
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                if self._finish is None:
                    self.closing.code = message.get("code") or 1005
                return
            text = message.get("text")
            if text is None:
                feed(BadFrame("invalid_frame", "Binary frames are not client events: send each event as JSON in a text frame."))
            elif (refusal := self._gate.refuse(raw := text.encode())) is None:
                feed(ClientMessage(raw))
            elif refusal.message:
                feed(refusal)
            handled += 1
            if handled % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            while self._crowded():  # the writer ends this wait: it sends, or gives up on the reader
                self._taken.clear()
                await self._taken.wait()

    def _crowded(self) -> bool:
        limits = self._limits
        return self.outbox.size > CROWDED * limits.outbox_bytes or len(self.outbox) > CROWDED * limits.outbox_events

    async def _write(self, feed: Callable[[Inbound], None]) -> None:
        while not self._overflowed:
            if not self.outbox:
                if self._finish is not None:
                    await self._close(*self._finish)
                    return
                await self.outbox.wait()
                continue
            if self._socket is not None and not self._socket.writable and not await self._drained(self._socket):
                break
            # No await between here and the write: a fence raised while the socket was blocked has already been applied.
            item = self.outbox.pop()
            self._taken.set()
            if item is not None:
                try:
                    await self._send(item)
                except TimeoutError:
                    break
                if item.samples and item.response_id is not None:
                    feed(AudioDelivered(item.response_id, item.samples))
        self._give_up()

    async def _drained(self, socket: SocketControl) -> bool:
        """Wait for the kernel to take bytes again; False when the reader has stopped."""
        timeout = self._limits.send_timeout_s
        if self._finish is not None:
            timeout = max(0.0, self._finish_by - self._clock())
        try:
            async with asyncio.timeout(timeout):
                await socket.wait_writable()
        except TimeoutError:
            return False
        return True

    async def _send(self, item: Queued) -> None:
        async with asyncio.timeout(self._limits.send_timeout_s):
            await self._websocket.send({"type": "websocket.send", "text": item.data.decode()})

    async def _close(self, code: int, reason: str) -> None:
        self.closing = Closing(code, "server")
        if self._socket is not None and not self._socket.writable and not await self._drained(self._socket):
            self._socket.fail(code, reason)
            return
        async with asyncio.timeout(self._limits.send_timeout_s):
            await self._websocket.close(code, reason[:120])

    def _give_up(self) -> None:
        """The reader stopped: say so if it can still be said, and cut the connection."""
        if self._finish is not None:
            self.closing = Closing(self._finish[0], "server")
        else:
            self.closing = Closing(1013, "slow_reader")
        if self._socket is not None:
            self._socket.fail(self.closing.code, "The reader does not keep up." if self._finish is None else self._finish[1])
