"""A real server in the test's own event loop, on a free port, with the tone pipeline; and a small client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import websockets
from antiphon.gateway.app import create_app
from antiphon.gateway.server import listen, serve_until
from antiphon.gateway.service import Gateway
from antiphon.gateway.settings import load_settings
from antiphon.scenarios.server import Server
from antiphon.tests.gateway.outside import Outside

PATIENCE = 10.0


@dataclass
class RunningServer:
    """A server that serves until `stop` is set."""

    url: str
    gateway: Gateway
    stop: asyncio.Event
    task: asyncio.Task[None]

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws", 1) + "/v1/realtime"


@dataclass
class Client:
    """A WebSocket and every event that came over it."""

    socket: Any
    events: list[dict[str, Any]] = field(default_factory=list)

    async def send(self, **event: Any) -> None:
        await self.socket.send(json.dumps(event))

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            event: dict[str, Any] = json.loads(await self.socket.recv())
        self.events.append(event)
        return event

    async def until(self, *kinds: str) -> dict[str, Any]:
        """Read on until an event of one of these types."""
        while (event := await self.next())["type"] not in kinds:
            pass
        return event

    async def closed(self) -> int:
        """Read on until the connection closes; its close code."""
        try:
            while True:
                await self.next()
        except websockets.ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else 1006

    async def ask(self, text: str, **response: Any) -> None:
        """Say something in writing and have it answered."""
        content = [{"type": "input_text", "text": text}]
        await self.send(type="conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await self.send(type="response.create", response=response)


@asynccontextmanager
async def serving(*, port: int = 0, **tables: Any) -> AsyncIterator[RunningServer]:
    """Run a server with these tables of settings over the tone pipeline's, without what needs torch. `port` 0: any free one."""
    server = {"port": 0, "pipelines": ("tone",), "media": (), "drain_s": 2.0, **tables.pop("server", {})}
    tables.setdefault("robots", {"policies": ()})
    app = create_app(load_settings(server=server, **tables))
    sock = listen("127.0.0.1", port)
    stop = asyncio.Event()
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_until(stop, app, sock, on_ready=ready.set_result))
    await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED, timeout=3 * PATIENCE)
    if task.done():
        task.result()
    yield RunningServer(ready.result(), app.state.gateway, stop, task)
    stop.set()
    async with asyncio.timeout(PATIENCE + server["drain_s"]):
        await task


@asynccontextmanager
async def connected(server: RunningServer, query: str = "model=tone", **options: Any) -> AsyncIterator[Client]:
    """A connection that has said hello."""
    async with websockets.connect(f"{server.ws}?{query}", compression=None, max_size=None, **options) as socket:
        client = Client(socket)
        assert (await client.next())["type"] == "session.created"
        yield client


async def eventually(true: Callable[[], bool], within: float = 5.0) -> None:
    """Wait until something holds; fail when it does not in time."""
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110 - works for anything
            await asyncio.sleep(0.01)


@pytest.fixture
async def server(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningServer]:
    """A server with the tone pipeline and defaults."""
    monkeypatch.chdir(tmp_path)
    async with serving() as running:
        yield running


CONFIGURATION = """
[server]
pipelines = ["tone"]
log_format = "json"

[registry]
capacity = 8
waiting = 4
waiting_s = 2.0
evict_after_s = 1000.0

[connection]
errors_per_minute = 1000000

[recording]
on = true
folder = "{recordings}"
"""


@pytest.fixture(scope="module")
def tone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    """`antiphon serve` in a process of its own, with the tone pipeline, eight places and recording on. It has to end in order,
    without a fault in its log, whatever the tests did to it."""
    folder = tmp_path_factory.mktemp("tone")
    config = folder / "antiphon.toml"
    config.write_text(CONFIGURATION.format(recordings=folder / "recordings"))
    running = Server(log=folder / "server.log", options=("--config", str(config)))
    asyncio.run(running.__aenter__())
    outside = Outside(running, folder / "recordings")
    try:
        yield outside
        outside.assert_well()
    finally:
        asyncio.run(running.__aexit__(None, None, None))
