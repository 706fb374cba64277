"""The wire between this process and an engine's own process: msgspec structs in frames with a length before them.

A frame is four bytes (little-endian length) and one MessagePack object, tagged with its type. Chunks flow on credit: the worker sends at
most `CREDIT` chunks of a stream before the reader has taken them.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, TypeAlias, TypeVar

import msgspec

from .errors import (
    EngineBusyError,
    EngineError,
    EngineTimeoutError,
    EngineUnavailableError,
    InvalidRequestError,
    WeightsError,
)
from .interface import Capabilities, EngineHealth, EngineRequest, WorkClass
from .messages import EngineChunk, RequestBody

CREDIT = 64
MAX_FRAME = 64 << 20
ROOM = 64 << 10
"""Bytes that may be on their way before who sends more waits."""

# ---- to the worker --------------------------------------------------------------------------------------------------


class Configure(msgspec.Struct, frozen=True, tag="configure"):
    """Build and open this engine; the first frame."""

    kind: str
    name: str
    options: dict[str, Any]


class Start(msgspec.Struct, frozen=True, tag="start", kw_only=True):
    """Run a request as stream `number`."""

    number: int
    request_id: str
    body: RequestBody
    session_id: str
    epoch: int
    work_class: int
    deadline: float | None
    patience: float | None = None

    @classmethod
    def of(cls, number: int, request: EngineRequest, body: RequestBody) -> Start:
        return cls(
            number=number,
            request_id=request.request_id,
            body=body,
            session_id=request.session_id,
            epoch=request.epoch,
            work_class=int(request.work_class),
            deadline=request.deadline,
            patience=request.patience,
        )

    def request(self, body: RequestBody) -> EngineRequest:
        return EngineRequest(
            request_id=self.request_id,
            body=body,
            session_id=self.session_id,
            epoch=self.epoch,
            work_class=WorkClass(self.work_class),
            deadline=self.deadline,
            patience=self.patience,
        )


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Abort stream `number`; the worker answers with its `End`."""

    number: int


class Credit(msgspec.Struct, frozen=True, tag="credit"):
    """`count` chunks of stream `number` have been taken."""

    number: int
    count: int


class FeedAudio(msgspec.Struct, frozen=True, tag="feed_audio"):
    """More audio of a live feed; `pcm` empty: the feed has ended."""

    number: int
    pcm: bytes


class AskHealth(msgspec.Struct, frozen=True, tag="ask_health"):
    """Answered with `Health`."""


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Close the engine and end."""


ToWorker: TypeAlias = Configure | Start | Stop | Credit | FeedAudio | AskHealth | Shutdown

# ---- from the worker ------------------------------------------------------------------------------------------------


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The engine is open; some know only now what they can do."""

    capabilities: Capabilities


class Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    """The next chunk of stream `number`."""

    number: int
    chunk: EngineChunk


class End(msgspec.Struct, frozen=True, tag="end"):
    """Stream `number` has ended and its slot is free; with `kind`, by an error."""

    number: int
    kind: str = ""
    code: str = ""
    message: str = ""


class Health(msgspec.Struct, frozen=True, tag="health"):
    """The engine's health, as the fields of `EngineHealth`."""

    fields: dict[str, Any]

    @classmethod
    def of(cls, health: EngineHealth) -> Health:
        return cls(asdict(health))


FromWorker: TypeAlias = Ready | Chunk | End | Health

OPENING = 0
"""The number in the `End` that tells that the engine could not be opened."""

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_KINDS: dict[str, type[EngineError]] = {
    kind.__name__: kind
    for kind in (EngineError, EngineBusyError, EngineTimeoutError, EngineUnavailableError, InvalidRequestError, WeightsError)
}


def error_end(number: int, error: Exception) -> End:
    """An error as the wire has it. A fault in the engine (not an `EngineError`) travels as one."""
    code = error.code if isinstance(error, EngineError) else EngineError.code
    text = str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
    kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _KINDS), EngineError.__name__)
    return End(number, kind, code, text)


def error_of(end: End) -> EngineError:
    """The error that an `End` carries."""
    return _KINDS.get(end.kind, EngineError)(end.message, code=end.code or None)


class FrameWriter:
    """Sends frames; what is posted in one turn of the event loop leaves together, in one write. Bound: what is held back beyond
    `ROOM` makes `send` and `drain` wait."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._turn = asyncio.Lock()
        self._pending = bytearray()

    async def send(self, frame: ToWorker | FromWorker) -> None:
        """Send and wait until there is room for more. Raises `ConnectionError`, and what `post` raises."""
        self.post(frame)
        await self.drain()

    async def drain(self) -> None:
        """Wait until there is room for more. Raises `ConnectionError`."""
        if self.backlog <= ROOM and not self._writer.is_closing():
            return
        self._flush()
        async with self._turn:
            await self._writer.drain()

    def post(self, frame: ToWorker | FromWorker) -> None:
        """Send without waiting: for small frames that must not be late. Once the connection is gone nothing is sent; whoever reads from it
        finds out. Raises `InvalidRequestError` for a frame that is too large."""
        data = _encode(frame)
        if len(data) > MAX_FRAME:  # the other side would take it for garbage, and all its streams with it
            raise InvalidRequestError(f"{len(data)} bytes are too many for one message to or from an engine's process ({MAX_FRAME} may be)")
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._flush)
        self._pending += len(data).to_bytes(4, "little")
        if len(data) <= ROOM:
            self._pending += data
        else:  # not copied once more
            self._flush()
            self._write(data)

    def _flush(self) -> None:
        pending, self._pending = self._pending, bytearray()
        if pending:
            self._write(pending)

    def _write(self, data: bytes | bytearray) -> None:
        if not self._writer.is_closing():  # uvloop would raise, asyncio would not
            self._writer.write(data)

    @property
    def backlog(self) -> int:
        """Bytes that the other side has not taken yet."""
        return len(self._pending) + self._writer.transport.get_write_buffer_size()

    def close(self) -> None:
        self._flush()
        self._writer.close()


class FrameReader:
    """Receives frames of one direction."""

    def __init__(self, reader: asyncio.StreamReader, frames: Any) -> None:
        self._reader = reader
        self._decode = msgspec.msgpack.Decoder(frames).decode

    async def receive(self) -> Any | None:
        """The next frame; None at the end of the connection. Raises `EngineError` for what is no frame."""
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "little")
            if size > MAX_FRAME:
                raise EngineError(f"the other process sent a frame of {size} bytes; {MAX_FRAME} are allowed")
            return self._decode(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except msgspec.DecodeError as error:
            raise EngineError(f"the other process sent a frame that cannot be read: {error}") from error
