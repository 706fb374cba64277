"""Record and replay: what went into a session, when, and what came out, so that the same can be made to happen again.

A recording is a run of frames, each a 4-byte big-endian length and that many bytes of msgpack. The first frame is the
`RecordingHeader`, every other a `Step`. A process that dies leaves at most a torn last frame, which is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import msgspec

from .commands import Outbound, Send
from .errors import BadRecording
from .ids import Ids
from .inbound import Inbound
from .policy import SessionLimits, TurnTakingPolicy
from .server_events import encode_event
from .session import Session
from .session_config import SessionConfig

FORMAT = "antiphon.recording"
VERSION = 1
_LENGTH = 4


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True):
    """All that a session is made of. `created` and `expires_at` are Unix seconds; `seed` is that of its ids."""

    format: str = FORMAT
    version: int = VERSION
    session_id: str
    seed: int
    epoch: int = 0
    expires_at: int
    input_is_track: bool = False
    config: dict[str, Any]
    policy: dict[str, Any]
    limits: dict[str, Any]
    created: float


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One call of the session: `handle(inbound, now)`, or `open(now)` when `inbound` is None, and the wire events it sent."""

    now: float
    inbound: Inbound | None
    outbound: tuple[bytes, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(RecordingHeader).decode
_decode_step = msgspec.msgpack.Decoder(Step).decode


def header_of(
    *,
    session_id: str,
    seed: int,
    expires_at: int,
    config: SessionConfig,
    policy: TurnTakingPolicy,
    limits: SessionLimits,
    created: float,
    input_is_track: bool = False,
    epoch: int = 0,
) -> RecordingHeader:
    """The header for a session made with these arguments."""
    return RecordingHeader(
        session_id=session_id,
        seed=seed,
        epoch=epoch,
        expires_at=expires_at,
        input_is_track=input_is_track,
        config=config.model_dump(),
        policy=asdict(policy),
        limits=asdict(limits),
        created=created,
    )


def session_of(header: RecordingHeader) -> Session:
    """The session of a recording, as it was before its first event. Raises `BadRecording` if this version has other settings."""
    try:
        return Session(
            session_id=header.session_id,
            config=SessionConfig.model_validate(header.config),
            policy=TurnTakingPolicy(**header.policy),
            limits=SessionLimits(**header.limits),
            ids=Ids(header.seed),
            expires_at=header.expires_at,
            input_is_track=header.input_is_track,
            epoch=header.epoch,
        )
    except (TypeError, ValueError) as error:
        raise BadRecording(f"the recording of session '{header.session_id}' was made with other settings: {error}") from error


# ---- recording ------------------------------------------------------------------------------------------------------


class Recorder:
    """Writes a session's steps through `write`, which gets one whole frame at a time.

    A recording ends quietly when the next frame would make it larger than `max_bytes`, or when `write` raises OSError (a full
    disk): a session never suffers from being recorded. `stopped` says why, empty while all is well.
    """

    def __init__(self, write: Callable[[bytes], object], header: RecordingHeader, *, max_bytes: int | None = None) -> None:
        self._write = write
        self._left = max_bytes
        self.stopped = ""
        self._frame(_encode(header))

    def opened(self, now: float, outbound: Iterable[Outbound]) -> None:
        """`Session.open` gave `outbound`."""
        self._step(now, None, outbound)

    def handled(self, now: float, inbound: Inbound, outbound: Iterable[Outbound]) -> None:
        """`Session.handle` gave `outbound`."""
        self._step(now, inbound, outbound)

    def _step(self, now: float, inbound: Inbound | None, outbound: Iterable[Outbound]) -> None:
        if not self.stopped:
            self._frame(_encode(Step(now, inbound, _sent(outbound))))

    def _frame(self, payload: bytes) -> None:
        size = _LENGTH + len(payload)
        if self._left is not None:
            if size > self._left:
                self.stopped = "the recording has reached its largest size"
                return
            self._left -= size
        try:
            self._write(len(payload).to_bytes(_LENGTH, "big") + payload)
        except OSError as error:
            self.stopped = f"the recording could not be written: {error}"


def _sent(outbound: Iterable[Outbound]) -> tuple[bytes, ...]:
    return tuple(encode_event(out.event) for out in outbound if isinstance(out, Send))


# ---- reading --------------------------------------------------------------------------------------------------------


def read_recording(data: bytes) -> tuple[RecordingHeader, list[Step]]:
    """A recording's header and steps. A torn tail is left out; `BadRecording` if it is none or damaged in the middle."""
    frames = _frames(data)
    try:
        header = _decode_header(frames[0])
    except (IndexError, msgspec.MsgspecError) as error:
        raise BadRecording("this is no recording of a session: it does not begin with a recording's header") from error
    if (header.format, header.version) != (FORMAT, VERSION):
        found = f"{header.format} version {header.version}"
        raise BadRecording(f"this is a recording of the format '{found}'; this program reads {FORMAT} version {VERSION}")
    steps: list[Step] = []
    for number, frame in enumerate(frames[1:], start=1):
        try:
            steps.append(_decode_step(frame))
        except msgspec.MsgspecError as error:
            raise BadRecording(f"frame {number} of the recording is damaged: {error}") from error
    return header, steps


def _frames(data: bytes) -> list[memoryview]:
    view = memoryview(data)
    frames: list[memoryview] = []
    position = 0
    while position + _LENGTH <= len(view):
        end = position + _LENGTH + int.from_bytes(view[position : position + _LENGTH], "big")
        if end > len(view):
            break
        frames.append(view[position + _LENGTH : end])
        position = end
    return frames


# ---- replaying ------------------------------------------------------------------------------------------------------


class SessionLike(Protocol):
    """What can be replayed."""

    def open(self, now: float) -> list[Outbound]: ...

    def handle(self, event: Inbound, now: float) -> list[Outbound]: ...


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay left the recording: the `event`-th wire event (from 0) of the `step`-th step. None: there was none."""

    step: int
    event: int
    recorded: bytes | None
    replayed: bytes | None

    def __str__(self) -> str:
        recorded, replayed = (_excerpt(side, self._apart) for side in (self.recorded, self.replayed))
        return f"step {self.step}, event {self.event}: recorded {recorded}, replayed {replayed}"

    @property
    def _apart(self) -> int:
        """The first byte that differs."""
        pairs = enumerate(zip(self.recorded or b"", self.replayed or b"", strict=False))
        return next((index for index, (a, b) in pairs if a != b), 0)


def _excerpt(event: bytes | None, around: int) -> str:
    if event is None:
        return "nothing"
    start = max(0, around - 60)
    return ("…" if start else "") + event[start : around + 60].decode(errors="replace") + ("…" if around + 60 < len(event) else "")


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Steps replayed, wire events that were equal byte for byte, and where the replay left the recording, if it did."""

    steps: int
    events: int
    first_difference: Difference | None

    @property
    def same(self) -> bool:
        return self.first_difference is None


def replay(
    header: RecordingHeader, steps: Sequence[Step], make_session: Callable[[RecordingHeader], SessionLike] = session_of
) -> ReplayReport:
    """Run a recording through a new session and compare what it sends, byte for byte, up to the first difference."""
    session = make_session(header)
    events = 0
    for number, step in enumerate(steps):
        out = session.open(step.now) if step.inbound is None else session.handle(step.inbound, step.now)
        sent = _sent(out)
        for index in range(max(len(sent), len(step.outbound))):
            recorded = step.outbound[index] if index < len(step.outbound) else None
            replayed = sent[index] if index < len(sent) else None
            if recorded != replayed:
                return ReplayReport(number + 1, events, Difference(number, index, recorded, replayed))
            events += 1
    return ReplayReport(len(steps), events, None)
