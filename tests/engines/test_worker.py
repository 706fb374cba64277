"""The process of an engine: it must not outlive the one that started it."""

from __future__ import annotations

import asyncio
import socket
import sys

from antiphon.engines.frames import Configure, FrameWriter
from antiphon.engines.worker import hung_up


def test_a_closed_connection_is_seen_behind_what_is_still_to_be_read() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.send(b"x")
        assert not hung_up(theirs.fileno())
        ours.close()
        assert hung_up(theirs.fileno())


async def test_one_whose_gateway_died_while_it_started_loads_nothing() -> None:
    ours, theirs = socket.socketpair()
    _, writer = await asyncio.open_unix_connection(sock=ours)
    await FrameWriter(writer).send(Configure("energy", "energy", {}))
    writer.close()
    await writer.wait_closed()
    with theirs:
        command = (sys.executable, "-m", "antiphon.engines.worker", str(theirs.fileno()), "0")
        process = await asyncio.create_subprocess_exec(*command, pass_fds=(theirs.fileno(),))
    loaded_nothing = 1 if sys.platform == "linux" else 0  # elsewhere it only sees afterwards that nobody is there
    assert await asyncio.wait_for(process.wait(), 20) == loaded_nothing
