"""A connection that does not come to the point is closed, whatever it waits for; so is one that cannot close by itself."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from antiphon.gateway.transports import uvicorn_http
from antiphon.gateway.transports.uvicorn_socket import SocketControl
from antiphon.tests.gateway.conftest import RunningServer, eventually, serving
from antiphon.tests.gateway.test_slow_reader import small_window

PATIENCE = 5.0


async def answer(server: RunningServer, *parts: bytes, pause: float = 0.0) -> tuple[bytes, float]:
    """Send bytes, then read until the server closes; what it said, and after how long."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    began = time.monotonic()
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        async with asyncio.timeout(PATIENCE):
            said = await reader.read()
    except ConnectionError:
        said = b""
    finally:
        writer.close()
    return said, time.monotonic() - began


HEAD = b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        (b"",),
        (b"GET /livez HT",),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n",),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /livez HTTP/1.1\r\n"),
        (HEAD + b"Content-Length: 100\r\n\r\n{",),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",),
    ],
)
async def test_a_request_that_never_ends(server: RunningServer, parts: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_http, "HEAD_SECONDS", 0.4)
    monkeypatch.setattr(uvicorn_http, "BODY_SECONDS", 0.4)
    _, seconds = await answer(server, *parts)
    assert 0.3 < seconds < 3


async def test_headers_that_trickle_in_do_not_buy_more_time(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_http, "HEAD_SECONDS", 0.5)
    lines = [b"GET /livez HTTP/1.1\r\n", *(b"X-%d: y\r\n" % number for number in range(60))]
    _, seconds = await answer(server, *lines, pause=0.05)
    assert seconds < 2


async def test_a_head_or_a_body_beyond_the_bounds(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_http, "HEAD_BYTES", 2000)
    monkeypatch.setattr(uvicorn_http, "BODY_BYTES", 2000)
    said, _ = await answer(server, b"GET /livez HTTP/1.1\r\n" + b"X-Long: yyyyyyyyyy\r\n" * 300 + b"\r\n")
    assert said.startswith(b"HTTP/1.1 400")
    body = json.dumps({"input": "x" * 3000}).encode()
    said, _ = await answer(server, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert said.startswith(b"HTTP/1.1 400")


async def test_a_body_beyond_the_bounds_that_was_answered_already_gets_no_second_answer(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_http, "BODY_BYTES", 2000)
    post = b"POST /v1/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n"
    said, _ = await answer(server, post, b"x" * 3000, pause=0.3)
    assert said.startswith(b"HTTP/1.1 404")
    assert said.count(b"HTTP/1.1") == 1


async def test_requests_on_one_connection_are_still_served(server: RunningServer) -> None:
    get = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    said, _ = await answer(server, get, get, last, pause=0.05)
    assert said.count(b"HTTP/1.1 200 OK") == 3


async def test_a_keepalive_that_runs_out_ends_a_reader_that_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last event does not fit into the kernel any more and nothing else waits: only the keepalive can tell."""
    async with serving(connection={"send_timeout_s": 60.0}) as server, small_window(server) as client:
        client.socket.transport.pause_reading()
        await client.send(type="session.update", session={"type": "realtime", "instructions": "word " * 150_000})
        (live,) = server.gateway.sessions.all()
        socket: SocketControl = live.connection._socket  # type: ignore[attr-defined]
        await eventually(lambda: not socket.writable and len(live.connection.outbox) == 0)
        socket._protocol.keepalive_timeout()
        await eventually(lambda: not server.gateway.sessions.all(), within=5)
        client.socket.transport.abort()
