"""uvicorn's WebSocket protocol, told to buffer nothing: what a slow reader has not taken stays in our purgeable outbox.

By default a transport takes 64 KiB (a second of audio) into its own write buffer before it asks to pause, and an ASGI
`send` says nothing about it. Here the transport pauses as soon as the kernel refuses a byte, and the application can see
that (`SocketControl`), so that it takes an event out of the outbox only when the event can leave at once.
"""

from __future__ import annotations

import asyncio
from asyncio.transports import BaseTransport, Transport
from typing import cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

EXTENSION = "antiphon.socket"
"""The key in the ASGI scope's extensions under which the application finds its `SocketControl`."""

ABORT_AFTER = 2.0
"""Seconds that a reader that stopped has to take the close frame before its connection is cut."""


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

    def fail(self, code: int, reason: str) -> None:
        """Close without waiting for a reader that stopped: the close frame is queued, and the connection cut soon after."""
        self._protocol.fail(code, reason)


class DirectWebSocket(WebSocketsSansIOProtocol):
    """See the module's docstring."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        cast(Transport, transport).set_write_buffer_limits(high=0)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            cast(dict[str, object], self.scope["extensions"])[EXTENSION] = SocketControl(self)

    def fail(self, code: int, reason: str) -> None:
        if self.close_sent or self.disconnected:
            return
        self.conn.send_close(code, reason)
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()
        self.close_timer = asyncio.get_running_loop().call_later(ABORT_AFTER, self.transport.abort)
