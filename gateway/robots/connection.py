"""The robot's WebSocket: binary frames in, and out through an outbox whose entries are rendered only when they can leave."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from starlette.websockets import WebSocket

from ...sessions.rates import TokenBucket
from ..tasks import both_ways
from ..transports.uvicorn_socket import EXTENSION, SocketControl
from ..transports.websocket import Closing
from .replies import Failure

Render = Callable[[], bytes | Failure]
CUT = 1011
"""Close code of a connection whose robot is silent while another asks for its session."""
CROWDED = 64
"""Entries of the outbox above which nothing more is read: who does not take the answers may not go on asking."""


class RobotConnection:
    """See the module's docstring. `run` lasts as long as the connection does. The outbox is bounded by `CROWDED`, and what comes in by
    `budget` (bytes; None: unbounded), both by not reading on."""

    def __init__(
        self,
        websocket: WebSocket,
        *,
        max_frame_bytes: int,
        send_timeout_s: float,
        budget: TokenBucket | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._websocket = websocket
        self._send_timeout = send_timeout_s
        self._budget = budget
        self._clock = clock
        self._socket: SocketControl | None = websocket.scope.get("extensions", {}).get(EXTENSION)
        self._max_frame_bytes = max_frame_bytes
        self._outbox: deque[Render] = deque()
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._failure: Failure | None = None
        self.closing = Closing()

    def __len__(self) -> int:
        return len(self._outbox)

    async def accept(self) -> None:
        """Finish the handshake; frames may be as large as the settings say."""
        if self._socket is not None:
            self._socket.limit_messages(self._max_frame_bytes)
        await self._websocket.accept()

    def post(self, render: Render) -> None:
        """Queue an answer. `render` is called when it can leave at once, and has the last word on what leaves."""
        if self._failure is None:
            self._outbox.append(render)
            self._changed.set()

    def finish(self, failure: Failure) -> None:
        """Send what is queued, then tell why and close."""
        if self._failure is None:
            self._failure = failure
            self._changed.set()

    async def answers(self, within: float) -> bool:
        """Is the robot still there, as far as can be told within so many seconds? (See `SocketControl.answers`.)"""
        return self._socket is None or await self._socket.answers(within)

    def cut(self) -> None:
        """It is not there any more: the connection ends now."""
        if self._socket is not None:
            self._socket.fail(CUT, "Nothing was heard of the robot, and another connection asked for its session.")

    async def run(self, hear: Callable[[bytes | str], Awaitable[None]]) -> Closing:
        """Hand on what arrives, and send what is posted, until either side closes."""
        await both_ways(self._read(hear), self._write(), name="robot")
        return self.closing

    async def _read(self, hear: Callable[[bytes | str], Awaitable[None]]) -> None:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                if self._failure is None:
                    self.closing.code = message.get("code") or 1005
                return
            frame = message["text"] if message.get("bytes") is None else message["bytes"]
            pause = 0.0 if self._budget is None else self._budget.borrow(self._clock(), len(frame))
            if self._failure is None:
                await hear(frame)
            del message, frame  # it may be large, and the next one may be long in coming
            await asyncio.sleep(pause)  # also 0: a frame a turn of the loop, so that who floods shares it with the others
            while len(self._outbox) > CROWDED:
                self._taken.clear()
                await self._taken.wait()

    async def _write(self) -> None:
        while True:
            while not self._outbox:
                if self._failure is not None:
                    await self._close(self._failure)
                    return
                self._changed.clear()
                await self._changed.wait()
            if not await self._writable():
                self._give_up()
                return
            # No await between here and the write: a fence raised while the socket was blocked has already been applied.
            message = self._outbox.popleft()()
            self._taken.set()
            if isinstance(message, Failure):
                self._failure = message
                await self._close(message)
                return
            if not await self._send(message):
                self._give_up()
                return

    async def _send(self, message: bytes) -> bool:
        """False when the reader has stopped."""
        frame = {"type": "websocket.send", "bytes": message}
        if self._socket is not None and self._socket.writable:
            await self._websocket.send(frame)  # does not wait
            return True
        try:
            async with asyncio.timeout(self._send_timeout):
                await self._websocket.send(frame)
        except TimeoutError:
            return False
        return True

    async def _writable(self) -> bool:
        """Wait for the kernel to take bytes; False when the reader has stopped."""
        if self._socket is None or self._socket.writable:
            return True
        try:
            async with asyncio.timeout(self._send_timeout):
                await self._socket.wait_writable()
        except TimeoutError:
            return False
        return True

    async def _close(self, failure: Failure) -> None:
        self.closing = Closing(failure.close_code, "server")
        self._outbox.clear()
        if not await self._writable():
            self._give_up()
            return
        try:
            async with asyncio.timeout(self._send_timeout):
                await self._websocket.send({"type": "websocket.send", "text": failure.text})
                await self._websocket.close(failure.close_code, failure.reason)
        except TimeoutError:
            self._give_up()

    def _give_up(self) -> None:
        """The robot stopped reading: cut the connection."""
        if self._failure is None:
            self.closing = Closing(1013, "slow_reader")
        if self._socket is not None:
            self._socket.fail(self.closing.code, "The reader does not keep up." if self._failure is None else self._failure.reason)
