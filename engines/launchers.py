"""Where an engine runs: in this process (`registry.build_engine` alone), or in one of its own that can die without taking anyone along."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from .errors import EngineError, EngineTimeoutError, EngineUnavailableError
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
    FromWorker,
    Health,
    Ready,
    Shutdown,
    Start,
    Stop,
    error_of,
)
from .interface import Capabilities, Engine, EngineHealth, EngineRequest
from .messages import EngineChunk, ListenBody
from .registry import build_engine

log = logging.getLogger(__name__)

ABORT_SECONDS = 2.0
CLOSE_SECONDS = 5.0
_FEED_BLOCK = 4800
_BACKLOG = 1 << 20


class _Inbox:
    """What the worker sends for one stream. Bound: `CREDIT` chunks; the worker waits for credit."""

    def __init__(self) -> None:
        self.chunks: deque[EngineChunk] = deque()
        self.end: End | None = None
        self.changed = asyncio.Event()


class SubprocessEngine:
    """An engine of any kind in a process of its own, over a Unix socket. It is an `Engine` like any other.

    A worker that dies fails its streams with `EngineUnavailableError`, and `health` says so; `close` and `open` start a new one (the pool
    does that, with backoff). One that hangs (no word after an abort) is unavailable to new streams until it is heard of again. `python` may
    be another interpreter, with another environment, that has this package. `nice` (0 to 19) is how far the process steps back for others.
    Its capabilities are what the engine says once it is open; before that, what it says unopened.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        options: Mapping[str, Any],
        *,
        python: str = "",
        nice: int = 0,
        open_seconds: float = 300.0,
    ) -> None:
        self._configure = Configure(kind, name, dict(options))
        self._capabilities = build_engine(kind, name, options).capabilities
        self._python = python or sys.executable
        self._nice = nice
        self._open_seconds = open_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._writer: FrameWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._inboxes: dict[int, _Inbox] = {}
        self._health: asyncio.Future[EngineHealth] | None = None
        self._opened: asyncio.Future[None] | None = None
        self._number = OPENING
        self._heard = 0
        """Frames that came from the worker."""
        self._silent = False
        """It did not answer an abort, and has not been heard of since."""

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def pid(self) -> int | None:
        """The worker's process id."""
        return self._process.pid if self._process is not None else None

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start the worker and have it open the engine. Raises what the engine raised, or `EngineTimeoutError`."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            command = [self._python, "-m", f"{__package__}.worker", str(theirs.fileno()), str(self._nice)]
            try:
                self._process = await asyncio.create_subprocess_exec(*command, pass_fds=(theirs.fileno(),), start_new_session=True)
            except OSError as error:
                ours.close()
                raise EngineUnavailableError(
                    f"the process of engine {self._configure.name!r} cannot be started: {self._python}: {error.strerror}"
                ) from error
        self._silent = False
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        self._writer = FrameWriter(writer)
        self._opened = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(FrameReader(reader, FromWorker)), name=f"engine process {self._configure.name}")
        try:
            async with asyncio.timeout(self._open_seconds):
                await self._writer.send(self._configure)
                await self._opened
        except TimeoutError as error:
            await self.close()
            raise EngineTimeoutError(f"engine {self._configure.name!r} did not open within {self._open_seconds:.0f} s") from error
        except (ConnectionError, EngineError) as error:
            await self.close()
            if isinstance(error, EngineError):
                raise
            raise EngineUnavailableError(f"the process of engine {self._configure.name!r} died while opening") from error

    async def close(self) -> None:
        """Ask the worker to end; kill it and whatever it started when it does not within `CLOSE_SECONDS` (at once, if it hangs)."""
        process, self._process = self._process, None
        writer, self._writer = self._writer, None
        if process is None:
            return
        if writer is not None:
            with contextlib.suppress(ConnectionError):
                writer.post(Shutdown())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if self._silent else CLOSE_SECONDS):
                await process.wait()
        if process.returncode is None:
            log.error("the process of engine %r does not end when asked to: killing it", self._configure.name)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if self._reading is not None:
            await self._reading
        if writer is not None:
            writer.close()

    async def health(self) -> EngineHealth:
        """The engine's own word, asked in its process; the pool bounds the wait."""
        if self._writer is None or self._process is None or self._reading is None or self._reading.done():
            return EngineHealth(ok=False, detail="the engine's process is not running")
        if self._health is None or self._health.done():
            self._health = asyncio.get_running_loop().create_future()
            self._writer.post(AskHealth())
        return await asyncio.shield(self._health)

    # ---- streams ----------------------------------------------------------------------------------------------------

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """The engine's chunks. Closing sends the abort and waits for the worker's word that the slot is free."""
        writer = self._writer
        if writer is None or self._reading is None or self._reading.done():
            raise EngineUnavailableError(f"the process of engine {self._configure.name!r} is not running")
        if self._silent:  # the pool asks after its health, and starts another one if there is no answer
            raise EngineUnavailableError(f"the process of engine {self._configure.name!r} does not answer")
        self._number += 1
        number = self._number
        inbox = self._inboxes[number] = _Inbox()
        feed = request.body.feed if isinstance(request.body, ListenBody) else None
        posted = False
        try:
            writer.post(Start.of(number, request, ListenBody(None) if feed is not None else request.body))
            posted = True
            await writer.drain()
            if feed is not None:
                _forward(feed, writer, number)
            taken = 0
            while True:
                while inbox.chunks:
                    yield inbox.chunks.popleft()
                    taken += 1
                    if taken >= CREDIT // 2:
                        writer.post(Credit(number, taken))
                        taken = 0
                if inbox.end is not None:
                    if inbox.end.kind:
                        raise error_of(inbox.end)
                    return
                inbox.changed.clear()
                await inbox.changed.wait()
        except ConnectionError as error:
            raise EngineUnavailableError(f"the process of engine {self._configure.name!r} died") from error
        finally:
            if feed is not None:
                feed.on_ready = None
            try:
                if posted and inbox.end is None:
                    await self._abort(number, inbox, writer)
            finally:
                self._inboxes.pop(number, None)

    async def _abort(self, number: int, inbox: _Inbox, writer: FrameWriter) -> None:
        writer.post(Stop(number))
        heard = self._heard
        try:
            async with asyncio.timeout(ABORT_SECONDS):
                while inbox.end is None:
                    inbox.changed.clear()
                    await inbox.changed.wait()
        except TimeoutError:
            self._silent = self._heard == heard  # not even about other streams: it hangs, or the machine is asleep
            log.warning("the process of engine %r did not stop a request within %.0f s", self._configure.name, ABORT_SECONDS)

    async def _read(self, reader: FrameReader) -> None:
        """Take the worker's frames until it goes away; then fail whoever still waits for one."""
        reason = "died"
        try:
            while (frame := await reader.receive()) is not None:
                self._take(frame)
        except EngineError as error:
            reason = f"cannot be understood ({error})"
            log.error("the process of engine %r %s", self._configure.name, reason)
        gone = f"the process of engine {self._configure.name!r} {reason}"
        for inbox in self._inboxes.values():
            if inbox.end is None:
                inbox.end = End(OPENING, EngineUnavailableError.__name__, EngineUnavailableError.code, gone)
                inbox.changed.set()
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(EngineUnavailableError(f"{gone} while opening"))
        if self._health is not None and not self._health.done():
            self._health.set_result(EngineHealth(ok=False, detail=gone))

    def _take(self, frame: FromWorker) -> None:
        self._heard += 1
        self._silent = False
        match frame:
            case Ready(capabilities):
                self._capabilities = capabilities
                if self._opened is not None and not self._opened.done():
                    self._opened.set_result(None)
            case Health(fields):
                if self._health is not None and not self._health.done():
                    self._health.set_result(EngineHealth(**fields))
            case End(number) if number == OPENING:
                if self._opened is not None and not self._opened.done():
                    self._opened.set_exception(error_of(frame))
            case Chunk(number, chunk) if number in self._inboxes:
                self._inboxes[number].chunks.append(chunk)
                self._inboxes[number].changed.set()
            case End(number) if number in self._inboxes:
                self._inboxes[number].end = frame
                self._inboxes[number].changed.set()


def _forward(feed: AudioFeed, writer: FrameWriter, number: int) -> None:
    """Send a feed's audio on as it is written; while the worker does not take it, it stays in the feed, which drops the oldest. What was
    dropped is sent as silence, so that sample positions stay true."""
    sent_dropped = 0

    def forward() -> None:
        nonlocal sent_dropped
        if writer.backlog > _BACKLOG and not feed.closed:
            return
        dropped = feed.dropped_samples - sent_dropped
        sent_dropped += dropped
        pcm = bytes(2 * dropped) + (feed.take(feed.buffered_samples) or b"")
        for start in range(0, len(pcm), 2 * _FEED_BLOCK):
            writer.post(FeedAudio(number, pcm[start : start + 2 * _FEED_BLOCK]))
        if feed.closed:
            writer.post(FeedAudio(number, b""))

    feed.on_ready = forward
    forward()


def launch(kind: str, name: str, options: Mapping[str, Any], launcher: str = "in_process", *, python: str = "", nice: int = 0) -> Engine:
    """An engine of `kind` where `launcher` says: "in_process" or "subprocess" (with its interpreter and niceness). Raises `EngineError`."""
    if launcher == "in_process":
        return build_engine(kind, name, options)
    if launcher == "subprocess":
        return SubprocessEngine(kind, name, options, python=python, nice=nice)
    raise EngineError(
        f"engine {name!r}: there is no launcher {launcher!r}; there are: in_process, subprocess", code="invalid_configuration"
    )
