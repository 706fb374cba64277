"""A real server with the table-top policy, and a robot that speaks openpi's protocol without openpi's client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import websockets
from antiphon.codecs import msgpack_numpy
from antiphon.tests.gateway.conftest import PATIENCE, RunningServer, serving
from antiphon.tests.gateway.robots.pace import Pace

POLICY = Path(__file__).parents[2] / "data" / "tabletop-policy"
PROMPT = "put the red cube on the white pad"
STATE = np.array([0, 0, 0.15, 0, 0, 0, 0, -0.1, -0.1, 0.02, 0, -0.1, 0.02, 0.1, -0.1, 0.02, -0.15, 0.1, 0.15, 0.1], np.float32)


def observation(**more: Any) -> dict[str, Any]:
    """A good observation, and whatever a test adds."""
    return {"observation/state": STATE, "prompt": PROMPT, **more}


class Robot:
    """A connection that has been told the metadata."""

    def __init__(self, socket: Any, metadata: dict[str, Any]) -> None:
        self.socket = socket
        self.metadata = metadata

    async def send(self, message: Any) -> None:
        await self.socket.send(msgpack_numpy.pack(message))

    async def receive(self) -> Any:
        """The next reply; a text frame comes as text."""
        async with asyncio.timeout(PATIENCE):
            frame = await self.socket.recv()
        return frame if isinstance(frame, str) else msgpack_numpy.unpack(frame)

    async def infer(self, **more: Any) -> Any:
        await self.send(observation(**more))
        return await self.receive()

    async def closed(self) -> tuple[int, str]:
        """Wait for the end; its code and reason."""
        async with asyncio.timeout(PATIENCE):
            await self.socket.wait_closed()
        return self.socket.close_code, self.socket.close_reason


@asynccontextmanager
async def robot_at(server: RunningServer, query: str = "", **options: Any) -> AsyncIterator[Robot]:
    """A robot at the endpoint of the server's port."""
    url = server.url.replace("http", "ws", 1) + "/v1/realtime/robot/openpi" + (f"?{query}" if query else "")
    async with websockets.connect(url, compression=None, max_size=None, **options) as socket:
        yield Robot(socket, msgpack_numpy.unpack(await socket.recv()))


def policies(**options: Any) -> dict[str, Any]:
    """The settings' table of engines with the table-top policy, in this process."""
    return {"tabletop": {"kind": "flow-policy", "process": False, "options": {"model": str(POLICY), **options}}}


@asynccontextmanager
async def serving_robots(robots: dict[str, Any] | None = None, **tables: Any) -> AsyncIterator[RunningServer]:
    """A server with the table-top policy."""
    engines = tables.pop("engines", None) or policies()
    async with serving(engines=engines, robots={"policies": ("tabletop",), "openpi_port": 0, **(robots or {})}, **tables) as running:
        yield running


@pytest.fixture
async def server(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningServer]:
    monkeypatch.chdir(tmp_path)
    async with serving_robots() as running:
        yield running


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    """The policy's slowness; asked for before or after the server, it counts from the moment it is set."""
    return Pace(monkeypatch)
