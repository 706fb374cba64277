"""An engine in a process of its own: `python -m antiphon.engines.worker FD NICE`, started by `launchers.SubprocessEngine`.

It serves one connection, the socket whose descriptor it was given, and ends with it. NICE is its niceness above that of who started it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import socket
import sys
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from . import heap
from .errors import EngineError
from .feed import AudioFeed
from .frames import (
    CREDIT,
    OPENING,
    AskHealth,
    Chunk,
    Configure,
    Credit,
    End,
    FeedAudio,
    FrameReader,
    FrameWriter,
    Health,
    Ready,
    Shutdown,
    Start,
    Stop,
    ToWorker,
    error_end,
)
from .interface import Engine
from .messages import ListenBody
from .registry import build_engine


class _Stream:
    """A running request: its task, its credit, and the feed that it listens to."""

    def __init__(self) -> None:
        self.credit = CREDIT
        self.credited = asyncio.Event()
        self.feed = AudioFeed()
        self.task: asyncio.Task[None] | None = None
        self.stopped = False


class Worker:
    """The engine's side of the connection."""

    def __init__(self, reader: FrameReader, writer: FrameWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._engine: Engine | None = None
        self._streams: dict[int, _Stream] = {}

    async def run(self) -> None:
        """Serve until the other side says so or goes away."""
        try:
            async with asyncio.TaskGroup() as group:
                while (frame := await self._reader.receive()) is not None and not isinstance(frame, Shutdown):
                    await self._handle(frame, group)
                for stream in self._streams.values():
                    self._stop(stream)
        finally:
            if self._engine is not None:
                await self._engine.close()

    async def _handle(self, frame: ToWorker, group: asyncio.TaskGroup) -> None:
        match frame:
            case Configure(kind, name, options):
                await self._open(kind, name, options)
            case Start():
                stream = self._streams[frame.number] = _Stream()
                stream.task = group.create_task(self._serve(frame, stream))
            case Stop(number) if number in self._streams:
                self._stop(self._streams[number])
            case Credit(number, count) if number in self._streams:
                self._streams[number].credit += count
                self._streams[number].credited.set()
            case FeedAudio(number, pcm) if number in self._streams:
                feed = self._streams[number].feed
                feed.put(pcm) if pcm else feed.close()
            case AskHealth() if self._engine is not None:
                group.create_task(self._tell_health(self._engine))

    async def _tell_health(self, engine: Engine) -> None:
        await self._writer.send(Health.of(await engine.health()))

    async def _open(self, kind: str, name: str, options: dict[str, Any]) -> None:
        try:
            self._engine = await asyncio.to_thread(build_engine, kind, name, options)
            await self._engine.open()
        except Exception as error:
            await self._writer.send(error_end(OPENING, error))
            return
        heap.settle()
        await self._writer.send(Ready(self._engine.capabilities))

    def _stop(self, stream: _Stream) -> None:
        if stream.task is not None and not stream.stopped:
            stream.stopped = True
            stream.task.cancel()

    async def _serve(self, start: Start, stream: _Stream) -> None:
        """Run one request and send what comes, as far as the credit goes."""
        end = End(start.number)
        try:
            if self._engine is None:
                raise EngineError("the engine is not open")
            body = ListenBody(stream.feed) if isinstance(start.body, ListenBody) else start.body
            async with aclosing(self._engine.stream(start.request(body))) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    while stream.credit <= 0:
                        stream.credited.clear()
                        await stream.credited.wait()
                    stream.credit -= 1
                    await self._writer.send(Chunk(start.number, chunk))
        except asyncio.CancelledError:
            if not stream.stopped:
                raise
        except ConnectionError:
            return
        except Exception as error:
            end = error_end(start.number, error)
        finally:
            self._streams.pop(start.number, None)
        with suppress(ConnectionError):
            await self._writer.send(end)


def die_with_parent(descriptor: int) -> None:
    """On Linux: have the kernel kill this process when the one that started it dies, and end at once when that has died already (the
    engine would be loaded for nobody first). Elsewhere the closed socket ends it."""
    if sys.platform == "linux":
        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL, 0, 0, 0)
        if hung_up(descriptor):
            os._exit(1)


def hung_up(descriptor: int) -> bool:
    """Whether the other end of a socket is closed, also while there is still something to read."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def step_back(niceness: int) -> None:
    """Let others go first. Where Linux groups processes by their session (this one has its own), it weighs the groups against each other
    and niceness only counts within one, so the group steps back too (sched(7), "The autogroup feature")."""
    os.nice(niceness)
    with suppress(OSError):  # no such feature here
        Path("/proc/self/autogroup").write_text(str(niceness))


async def main(descriptor: int) -> None:
    """Serve the connection on `descriptor`."""
    connection = socket.socket(fileno=descriptor)
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    await Worker(FrameReader(reader, ToWorker), FrameWriter(writer)).run()


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    if len(sys.argv) > 2:
        step_back(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the gateway, which then closes its engines
    asyncio.run(main(int(sys.argv[1])))
    sys.stderr.flush()
    os._exit(0)  # the engine is closed; taking large libraries down in good order would only make the gateway wait
