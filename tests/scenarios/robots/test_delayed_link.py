"""A link that only delays: nothing is lost, changed or reordered, and whoever goes is gone on the other side too."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from antiphon.scenarios.robots.delayed_link import PIECE, UNDER_WAY, DelayedLink

DELAY = 0.1


class Echo:
    """A server that sends back what it gets, and keeps count of who is there."""

    def __init__(self) -> None:
        self.url = ""
        self.heard = 0
        self.here = 0
        self.reads = True
        self.gone = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.here += 1
        try:
            while self.reads and (data := await reader.read(PIECE)):
                self.heard += len(data)
                writer.write(data)
                await writer.drain()
            if not self.reads:
                await self.gone.wait()
        except ConnectionError:
            pass
        finally:
            self.here -= 1
            writer.close()


@asynccontextmanager
async def echo() -> AsyncIterator[Echo]:
    server = Echo()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/place?query=1"
    yield server
    server.gone.set()
    listening.close()


async def opened(link: DelayedLink) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    place = link.url.removeprefix("http://").partition("/")[0]
    host, port = place.split(":")
    return await asyncio.open_connection(host, int(port))


async def until(true: object) -> None:
    async with asyncio.timeout(10):
        while not true():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_round_trip_takes_so_much_longer() -> None:
    async with echo() as server, DelayedLink(server.url, DELAY) as link:
        assert link.url.endswith("/place?query=1")
        reader, writer = await opened(link)
        took = []
        for _ in range(5):
            begun = time.monotonic()
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            took.append(time.monotonic() - begun)
        writer.close()
    assert min(took) >= DELAY
    assert min(took) < 10 * DELAY
    assert link.carried == {"up": 20, "down": 20}


async def test_everything_arrives_as_it_was_and_in_order() -> None:
    sent = random.Random(1).randbytes(3_000_000)
    async with echo() as server, DelayedLink(server.url, 0.02) as link:
        reader, writer = await opened(link)

        async def send() -> None:
            for at in range(0, len(sent), 77_777):
                writer.write(sent[at : at + 77_777])
                await writer.drain()
            writer.write_eof()

        async with asyncio.TaskGroup() as both:
            both.create_task(send())
            heard = both.create_task(reader.read(-1))
    assert heard.result() == sent, "and the end of what was sent came through, and came back"


async def test_messages_under_way_do_not_wait_for_each_other() -> None:
    """Ten in a row take one delay, not ten."""
    async with echo() as server, DelayedLink(server.url, 0.4) as link:
        reader, writer = await opened(link)
        begun = time.monotonic()
        for _ in range(10):
            writer.write(b"x" * 100)
            await asyncio.sleep(0.01)
        await reader.readexactly(1000)
        assert time.monotonic() - begun < 10 * 0.4 / 2
        writer.close()


async def test_what_is_under_way_is_bounded() -> None:
    async with echo() as server:
        server.reads = False
        async with DelayedLink(server.url, 0.0) as link:
            _, writer = await opened(link)
            writer.transport.set_write_buffer_limits(high=PIECE)

            async def send() -> None:
                while True:
                    writer.write(bytes(PIECE))
                    await writer.drain()

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(send(), 1)
            assert link.carried["up"] < 2 * UNDER_WAY * PIECE, "beyond what it and the kernel hold, the sender waits"
            writer.transport.abort()


async def test_a_client_that_vanishes_is_gone_at_the_server() -> None:
    async with echo() as server, DelayedLink(server.url, 0.02) as link:
        _, writer = await opened(link)
        writer.write(b"hello")
        await until(lambda: server.here == 1 and server.heard)
        writer.transport.abort()
        await until(lambda: server.here == 0)


async def test_a_server_that_is_not_there_looks_like_one_that_hung_up() -> None:
    async with echo() as server:
        url = server.url
    async with DelayedLink(url, DELAY) as link:
        reader, writer = await opened(link)
        assert await reader.read() == b""
        writer.close()


async def test_closing_the_link_ends_its_connections() -> None:
    async with echo() as server:
        async with DelayedLink(server.url, 5.0) as link:
            reader, writer = await opened(link)
            writer.write(b"still under way")
            await until(lambda: server.here == 1)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        await until(lambda: server.here == 0)


@pytest.mark.parametrize("delay", [-0.1, 60.0, float("nan")])
def test_delays_that_make_no_sense_are_refused(delay: float) -> None:
    with pytest.raises(ValueError, match="extra delay"):
        DelayedLink("http://127.0.0.1:1", delay)
