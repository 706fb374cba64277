"""A small server as openpi's is: metadata first, one request after the other, the traceback as text and 1011 when something fails.
It knows no optional field."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import websockets
from antiphon.codecs import msgpack_numpy

HORIZON = 16

Infer = Callable[[int, dict[str, Any]], Awaitable[Any]]
"""The reply to (number of the request, observation); text or bytes go out as they are."""


def chunk(number: int, observation: dict[str, Any]) -> dict[str, Any]:
    """Each action says the request it answers, its place in the chunk, and the step that the robot had observed."""
    step = float(observation["observation/state"][0])
    actions = [[number, index, step] for index in range(HORIZON)]
    return {"actions": np.array(actions, np.float64), "server_timing": {"infer_ms": 1.0}}


class OpenpiLike:
    """`infer` may be replaced at any time; `requests` has what came, `connections` how many there were."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata
        self.requests: list[dict[str, Any]] = []
        self.connections = 0
        self.infer: Infer = self.at_once
        self.url = ""
        self._server: Any = None

    async def at_once(self, number: int, observation: dict[str, Any]) -> Any:
        return chunk(number, observation)

    async def start(self, port: int = 0) -> None:
        self._server = await websockets.serve(self._talk, "127.0.0.1", port, compression=None, max_size=None)
        self.url = f"ws://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _talk(self, socket: Any) -> None:
        self.connections += 1
        await socket.send(msgpack_numpy.pack(self.metadata))
        try:
            while True:
                self.requests.append(msgpack_numpy.unpack(await socket.recv()))
                reply = await self.infer(len(self.requests), self.requests[-1])
                await socket.send(reply if isinstance(reply, str | bytes) else msgpack_numpy.pack(reply))
        except websockets.ConnectionClosed:
            pass
        except ZeroDivisionError:
            await socket.send(traceback.format_exc())
            await socket.close(1011, "Internal server error. Traceback included in previous frame.")


@asynccontextmanager
async def openpi_like(**metadata: Any) -> AsyncIterator[OpenpiLike]:
    """A running one."""
    server = OpenpiLike(metadata)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Plant:
    """A robot that counts its steps, and notes what it was told to do in each."""

    def __init__(self) -> None:
        self.acted: list[list[float]] = []

    def observe(self) -> dict[str, Any]:
        return {"observation/state": np.array([len(self.acted), 0.0], np.float32), "prompt": "count"}

    def act(self, action: Any) -> None:
        self.acted.append([float(one) for one in action])

    def of_policy(self) -> list[list[float]]:
        """Without holding and stopping."""
        return [action for action in self.acted if action[0] >= 0]


HOLD, STOP = [-1.0, 0.0, 0.0], [-2.0, 0.0, 0.0]


async def until(true: Callable[[], bool]) -> None:
    """Wait for it."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - asked from outside
            await asyncio.sleep(0.005)
