"""A client that stops reading: what waits for it in the process stays below half a second, it is closed, and nobody else notices.

The client's receive buffer is small, so that the kernel holds little and the process soon has to.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import websockets
from antiphon.codecs.pcm import SAMPLE_RATE
from antiphon.gateway.transports.outbox import Outbox
from antiphon.tests.gateway.conftest import Client, RunningServer, eventually, serving

LONG = "This is a rather long sentence, so that the tone goes on for a good while, longer than the lead. " * 4
"""26 s of it."""


@asynccontextmanager
async def small_window(server: RunningServer) -> AsyncIterator[Client]:
    """A connection whose kernel takes only a few KiB."""
    port = int(server.url.rsplit(":", 1)[1])
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    async with websockets.connect(f"{server.ws}?model=tone", sock=sock, compression=None, max_size=None, ping_interval=None) as peer:
        client = Client(peer)
        assert (await client.next())["type"] == "session.created"
        yield client


class Peak:
    """The most audio that any outbox ever held, in seconds, looked at after every event put in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        put = Outbox.put

        def measured(box: Outbox, *arguments: object, **options: object) -> bool:
            taken: bool = put(box, *arguments, **options)  # type: ignore[arg-type]
            self.seconds = max(self.seconds, box.samples / SAMPLE_RATE)
            return taken

        monkeypatch.setattr(Outbox, "put", measured)


async def listen(client: Client) -> tuple[float, float]:
    """Have an answer spoken and take it: seconds of its audio, and by how much the latest piece came too late for a player with a
    buffer of 0.2 s."""
    await client.ask(LONG[:70])
    heard, late, began = 0.0, 0.0, 0.0
    while (event := await client.next())["type"] != "response.done":
        if event["type"] == "response.output_audio.delta":
            began = began or time.monotonic()
            late = max(late, time.monotonic() - began - heard - 0.2)
            heard += len(base64.b64decode(event["delta"])) / 2 / SAMPLE_RATE
    return heard, late


async def stop_reading(client: Client, responses: int) -> None:
    """Ask for so many spoken answers at once, and read no more once the first of them speaks."""
    for _ in range(responses):
        await client.ask(LONG, conversation="auto" if responses == 1 else "none")
    await client.until("response.output_audio.delta")
    client.socket.transport.pause_reading()


@pytest.mark.parametrize("responses", [1, 4])
async def test_little_waits_for_who_stopped_and_the_others_keep_their_pace(responses: int, monkeypatch: pytest.MonkeyPatch) -> None:
    peak = Peak(monkeypatch)
    async with serving(connection={"send_timeout_s": 1.5}) as server, small_window(server) as stopped:
        async with small_window(server) as first, small_window(server) as second:
            others = [asyncio.create_task(listen(client)) for client in (first, second)]
            await asyncio.sleep(0.3)
            await stop_reading(stopped, responses)
            began = time.monotonic()
            await eventually(lambda: server.gateway.metrics.value("antiphon_slow_reader_closes_total") == 1, within=8)
            assert 1.2 < time.monotonic() - began < 6.0
            assert 0.3 < peak.seconds <= 0.5
            stopped.socket.transport.resume_reading()
            assert await stopped.closed() == 1013
            for heard, late in await asyncio.gather(*others):
                assert heard > 4
                assert late < 0.3
        await eventually(lambda: not server.gateway.sessions.all())
        assert server.gateway.metrics.value("antiphon_sessions_ended_total", {"reason": "slow_reader"}) == 1
        assert not server.gateway.pool.running()


async def test_a_reader_that_comes_back_in_time_loses_nothing() -> None:
    async with serving(connection={"send_timeout_s": 2.0}) as server, small_window(server) as client:
        await client.ask(LONG[:60])
        heard, stops = 0.0, 0
        while (event := await client.next())["type"] != "response.done":
            if event["type"] == "response.output_audio.delta":
                heard += len(base64.b64decode(event["delta"])) / 2 / SAMPLE_RATE
                if heard > stops + 1:
                    stops += 1
                    client.socket.transport.pause_reading()
                    await asyncio.sleep(1.0)
                    client.socket.transport.resume_reading()
        assert event["response"]["status"] == "completed"
        assert heard == pytest.approx(4, abs=0.1)
        assert stops >= 3
        assert server.gateway.metrics.value("antiphon_slow_reader_closes_total") == 0


async def test_a_reader_that_stops_in_the_middle_of_a_drain_does_not_hold_it_up() -> None:
    async with serving(connection={"send_timeout_s": 1.0}, server={"drain_s": 1.0}) as server, small_window(server) as client:
        await stop_reading(client, 1)
        await asyncio.sleep(0.5)
        server.stop.set()
        began = time.monotonic()
        await asyncio.wait_for(asyncio.shield(server.task), 8)
        assert time.monotonic() - began < 6
        client.socket.transport.abort()
