"""A server that is told to stop, or killed, while it speaks: what its clients are told, and that the next one starts at once."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import websockets
from antiphon.scenarios.server import Server
from antiphon.sessions.recording import read_recording, replay
from antiphon.tests.gateway.conftest import CONFIGURATION, Client
from antiphon.tests.gateway.outside import Outside

TEXT = "This answer takes about four seconds to be spoken by the tone."


@asynccontextmanager
async def started(folder: Path, *options: str) -> AsyncIterator[Outside]:
    """`antiphon serve` with two places; it must end with 0, unless it was killed."""
    config = folder / "antiphon.toml"
    table = CONFIGURATION.replace("capacity = 8", "capacity = 2").replace("waiting_s = 2.0", "waiting_s = 30.0")
    config.write_text(table.format(recordings=folder / "recordings"))
    server = Server(log=folder / "server.log", options=("--config", str(config), *options))
    await server.__aenter__()
    try:
        yield Outside(server, folder / "recordings")
    finally:
        process = server._process
        if process is not None and process.poll() is None:
            process.kill()
        if process is not None:
            process.wait()


@asynccontextmanager
async def speaking(server: Outside) -> AsyncIterator[Client]:
    """A client that hears the beginning of an answer."""
    async with websockets.connect(server.ws, compression=None, max_size=None) as socket:
        client = Client(socket)
        await client.ask(TEXT)
        await client.until("response.output_audio.delta")
        yield client


async def test_sigterm_while_it_speaks(tmp_path: Path) -> None:
    async with started(tmp_path) as server, speaking(server) as busy, websockets.connect(server.ws) as socket:
        idle = Client(socket)
        await idle.next()
        waiting = asyncio.create_task(websockets.connect(server.ws).__aenter__())
        await asyncio.sleep(0.3)
        process = server.server._process
        assert process is not None
        process.terminate()
        began = time.monotonic()
        with pytest.raises(websockets.InvalidStatus) as refusal:
            await waiting
        assert refusal.value.response.status_code == 429
        assert "retry-after" in refusal.value.response.headers
        await idle.until("session.draining")
        assert await idle.closed() == 1012
        assert time.monotonic() - began < 2
        with pytest.raises(websockets.InvalidStatus) as refusal:
            await websockets.connect(server.ws)
        assert refusal.value.response.status_code == 503
        await busy.until("session.draining")
        assert (await busy.until("response.done"))["response"]["status"] == "completed"
        assert await busy.closed() == 1012
        assert time.monotonic() - began > 2
        assert await asyncio.to_thread(process.wait, 10) == 0
        assert not server.complaints()
        # The end of each session is in its recording, too: the process waits for its disk.
        for path in server.recordings.iterdir():
            header, steps = read_recording(path.read_bytes())
            last = [json.loads(event) for step in steps for event in step.outbound][-1]
            assert last["error"]["code"] == "server_draining"
            assert replay(header, steps).same


async def test_a_second_sigterm_while_it_speaks(tmp_path: Path) -> None:
    async with started(tmp_path) as server, speaking(server) as client:
        process = server.server._process
        assert process is not None
        process.terminate()
        await client.until("session.draining")
        process.terminate()
        assert await client.closed() == 1006
        assert await asyncio.to_thread(process.wait, 5) == 128 + signal.SIGTERM


async def test_kill_9_while_it_speaks_and_a_restart_on_the_same_port(tmp_path: Path) -> None:
    async with started(tmp_path) as server:
        async with speaking(server) as client:
            process = server.server._process
            assert process is not None
            await asyncio.sleep(0.5)
            process.kill()
            process.wait()
            assert await client.closed() == 1006
        async with started(tmp_path, "--port", str(server.port)) as second, speaking(second) as again:
            assert second.port == server.port
            assert (await again.until("response.done"))["response"]["status"] == "completed"
        # What the killed one had written is a recording up to its last moments.
        reports = [replay(*read_recording(path.read_bytes())) for path in server.recordings.iterdir()]
        assert len(reports) == 2
        assert all(report.same and report.steps > 5 for report in reports), reports
