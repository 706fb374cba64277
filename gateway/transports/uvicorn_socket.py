"""uvicorn's WebSocket protocol, told to buffer nothing: what a slow reader has not taken stays in our purgeable outbox.

By default a transport takes 64 KiB (a second of audio) into its own write buffer before it asks to pause, and an ASGI
`send` says nothing about it. Here the transport pauses as soon as the kernel refuses a byte, and the application can see
that (`SocketControl`), so that it takes an event out of the outbox only when the event can leave at once.
"""

from __future__ import annotations

import asyncio
from asyncio.transports import BaseTransport, Transport
from collections.abc import Generator
from typing import cast

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.streams import StreamReader

EXTENSION = "antiphon.socket"
"""The key in the ASGI scope's extensions under which the application finds its `SocketControl`."""

ABORT_AFTER = 2.0
"""Seconds that the other side has to take our last bytes before its connection is cut: one that stopped reading never would."""
MAX_FRAGMENTS = 16_384
"""Frames of one message. Their sizes are limited by the protocol, their number (they may be empty) is not."""


LARGE_FRAME = 1 << 20
"""Bytes of a frame from which on a copy matters."""
PROBE = b"still there?"


class SocketControl:
    """What the application may ask of the socket under its WebSocket."""

    def __init__(self, protocol: DirectWebSocket) -> None:
        self._protocol = protocol

    @property
    def writable(self) -> bool:
        return self._protocol.writable.is_set()

    async def wait_writable(self) -> None:
        """Wait until the kernel takes bytes again. Returns at once when the connection is lost."""
        await self._protocol.writable.wait()

    def limit_messages(self, max_bytes: int) -> None:
        """From now on messages may be so large; a larger one closes the connection with 1009."""
        connection = self._protocol.conn
        if hasattr(connection, "max_message_size"):
            connection.max_message_size = max_bytes
        else:  # websockets 15
            connection.max_size = max_bytes

    async def answers(self, within: float) -> bool:
        """Does the other side answer a ping within so many seconds? It gets the benefit of the doubt where that cannot be told: while it
        takes nothing, or while we read nothing."""
        return await self._protocol.answers(within)

    def fail(self, code: int, reason: str) -> None:
        """Close without waiting for a reader that stopped: the close frame is queued, and the connection cut soon after."""
        self._protocol.fail(code, reason)


class DirectWebSocket(WebSocketsSansIOProtocol):
    """See the module's docstring. However a connection ends, it is gone in bounded time."""

    _abort_timer: asyncio.TimerHandle | None = None
    _asked: asyncio.Future[bool] | None = None
    """Pending until the other side is heard of, where somebody waits for that."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        cast(Transport, transport).set_write_buffer_limits(high=0)
        take_large_frames_whole(self.conn.reader)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._abort_timer is not None:
            self._abort_timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(True)
        try:
            super().data_received(data)
        except UnicodeError:  # a header that should be ASCII and is not
            self._refuse_handshake()
        else:
            if self.conn.handshake_exc is not None and not self.handshake_initiated:  # websockets could not read the request
                self._refuse_handshake()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            cast(dict[str, object], self.scope["extensions"])[EXTENSION] = SocketControl(self)
        else:
            self._cut_in(ABORT_AFTER)

    async def send(self, message: ASGISendEvent) -> None:
        if self.close_sent and self.handshake_complete:
            raise ClientDisconnected  # the client broke the protocol, or its keepalive ran out: for uvicorn that is our mistake
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # it has been refused; without this uvicorn logs an error

    def handle_ping(self) -> None:
        """Answer, unless the client does not even take what was sent before: pongs must not pile up for it."""
        pong = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(pong)

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) < MAX_FRAGMENTS:
            super().handle_cont(event)
        elif not self.close_sent:
            self.fail(CloseCode.MESSAGE_TOO_BIG, f"A message may have at most {MAX_FRAGMENTS} frames.")

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_text(self.frames):
            self.frames = []
            self.fail(CloseCode.INVALID_DATA, "A text frame must be valid UTF-8.")
        else:
            super().send_receive_event_to_app()

    def handle_close(self, event: Frame) -> None:
        super().handle_close(event)
        self._cut_in(ABORT_AFTER)

    def handle_parser_exception(self) -> None:
        super().handle_parser_exception()
        self._cut_in(ABORT_AFTER)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._cut_in(ABORT_AFTER)

    def shutdown(self) -> None:
        super().shutdown()
        self._cut_in(ABORT_AFTER)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self._cut_in(ABORT_AFTER if self.close_timer is None else self.close_timeout)

    async def answers(self, within: float) -> bool:
        if self.read_paused or not self.writable.is_set():
            return True
        if self.close_sent or self.transport.is_closing():
            return False
        if self._asked is None or self._asked.done():
            self._asked = asyncio.get_running_loop().create_future()
            self.conn.send_ping(PROBE)
            self.transport.write(b"".join(self.conn.data_to_send()))
        try:
            async with asyncio.timeout(within):
                return await asyncio.shield(self._asked)
        except TimeoutError:
            return False

    def fail(self, code: int, reason: str) -> None:
        if self.close_sent or self.disconnected:
            return
        self.conn.send_close(code, reason)
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()
        self._cut_in(ABORT_AFTER)

    def _refuse_handshake(self) -> None:
        """Answer a request that is no WebSocket handshake at all; uvicorn would leave it waiting."""
        if not self.handshake_complete:
            self.handshake_complete = self.close_sent = True
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
            self._cut_in(ABORT_AFTER)

    def _cut_in(self, seconds: float) -> None:
        """Cut the connection after so long, unless it has ended by then. The first call counts."""
        if self._abort_timer is None and not self.disconnected:
            self._abort_timer = asyncio.get_running_loop().call_later(seconds, self.transport.abort)


def take_large_frames_whole(reader: StreamReader) -> None:
    """Spare websockets the copy of a large frame: where the buffer holds nothing else, it is handed over as it is. (A picture of 50 MB
    would hold up everybody's loop for 30 ms more.)"""
    exactly = reader.read_exact

    def read_exact(count: int) -> Generator[None, None, bytearray]:
        if count >= LARGE_FRAME:
            while len(reader.buffer) < count and not reader.eof:
                yield
            if len(reader.buffer) == count:
                whole, reader.buffer = reader.buffer, bytearray()
                return whole
        return (yield from exactly(count))

    reader.read_exact = read_exact  # type: ignore[assignment,method-assign]


def _is_text(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True
