"""A slow network between a client and a server, in user space: whatever is sent arrives as it was, in order, and later."""

from __future__ import annotations

import asyncio
import urllib.parse
from types import TracebackType
from typing import Self

PIECE = 64 * 1024
"""Bytes that are carried at once, at most."""
UNDER_WAY = 64
"""Pieces that may be under way in each direction of a connection; policy: beyond that nothing more is read, and the sender has to wait."""
CONNECT_TIMEOUT_S = 10.0

_Piece = tuple[float, bytes]


class DelayedLink:
    """A TCP relay to the server at `url`, half of the round trip's extra delay in each direction.

    Use as `async with DelayedLink(server.url, 0.1) as link`; `link.url` is where clients go instead. Opening a connection takes no longer
    than without it (the relay answers); all that is said on it does, the handshake of a WebSocket included. With a delay of 0 it only
    relays.
    """

    def __init__(self, url: str, round_trip_s: float) -> None:
        if not 0 <= round_trip_s < 60:
            raise ValueError(f"the extra delay of a round trip must be from 0 to 60 s, not {round_trip_s!r}")
        self.url = ""
        self.carried = {"up": 0, "down": 0}
        """Bytes, to and from the server."""
        self._to = urllib.parse.urlsplit(url)
        self._delay = round_trip_s / 2
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = urllib.parse.urlunsplit(self._to._replace(netloc=f"{host}:{port}"))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, as long as it lasts."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._relay(reader, writer)
        except asyncio.CancelledError:
            pass  # the link is closed; asyncio would log the cancelled handler as a fault
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                back_reader, back_writer = await asyncio.open_connection(self._to.hostname, self._to.port)
        except (OSError, TimeoutError):
            return  # the client finds its connection closed, as it would without a server
        try:
            async with asyncio.TaskGroup() as parts:
                for way, source, sink in (("up", reader, back_writer), ("down", back_reader, writer)):
                    under_way: asyncio.Queue[_Piece] = asyncio.Queue(UNDER_WAY)
                    parts.create_task(self._take(source, under_way), name=f"delayed link: from, {way}")
                    parts.create_task(self._give(way, under_way, sink), name=f"delayed link: to, {way}")
            writer.close()  # both directions have ended: what is written leaves, and then it is over
            await writer.wait_closed()
        except* ConnectionError:
            pass  # one side is gone: so is the other
        finally:
            back_writer.transport.abort()

    async def _take(self, source: asyncio.StreamReader, under_way: asyncio.Queue[_Piece]) -> None:
        """Read to the end, marked by an empty piece. Raises `ConnectionError`."""
        now = asyncio.get_running_loop().time
        piece = b"-"
        while piece:
            piece = await source.read(PIECE)
            await under_way.put((now() + self._delay, piece))

    async def _give(self, way: str, under_way: asyncio.Queue[_Piece], sink: asyncio.StreamWriter) -> None:
        """Write each piece when it is due. Raises `ConnectionError`."""
        now = asyncio.get_running_loop().time
        while True:
            due, piece = await under_way.get()
            if (left := due - now()) > 0:
                await asyncio.sleep(left)
            if not piece:
                if sink.can_write_eof():
                    sink.write_eof()
                return
            self.carried[way] += len(piece)
            sink.write(piece)
            await sink.drain()
