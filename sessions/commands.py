"""What comes out of a session: wire events to send and commands for the conductor, in the order in which they must take effect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .server_events import ServerEvent


@dataclass(frozen=True, slots=True)
class Send:
    """Send a wire event. `epoch` is set on what a later fence must withhold (audio, transcript and text deltas): a queue that
    still holds the event when the session's epoch has passed it drops it. None: part of the protocol's skeleton, always
    delivered. `samples` is the amount of audio in the event; its delivery is reported with `AudioDelivered`."""

    event: ServerEvent
    epoch: int | None = None
    response_id: str | None = None
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Fence:
    """The epoch is now `epoch`: drop everything queued for an older one, now, without awaiting anything."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the conversation for the chat engine. `role`: system, user, assistant or tool."""

    role: str
    text: str = ""
    tool_calls: tuple[tuple[str, str, str], ...] = ()
    """(call_id, name, arguments) of each call."""
    call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartResponse:
    """Run the response pipeline and report its chunks with this `response_id` and `epoch`."""

    response_id: str
    epoch: int
    messages: tuple[Message, ...]
    audio: bool
    """Speak the answer (True) or only write it."""
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str = "auto"
    """auto, none, required or function:NAME."""
    parallel_tool_calls: bool = True
    max_output_tokens: int | None = None
    voice: str | None = None
    speed: float = 1.0
    model: str = ""
    turn_item_id: str | None = None
    """The user's item that this response answers, for the turn's timings."""


@dataclass(frozen=True, slots=True)
class StopResponse:
    """Abort this response on every stage. Harmless when it has ended."""

    response_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class HoldResponse:
    """Back-pressure: stop (`hold=True`) or go on reading this response's pipeline."""

    response_id: str
    hold: bool


@dataclass(frozen=True, slots=True)
class HearAudio:
    """More of the caller's audio for the VAD engine."""

    pcm: bytes


@dataclass(frozen=True, slots=True)
class JudgeTurnEnd:
    """Ask the turn-end engine about this audio (at most the last 8 s, trailing silence included)."""

    request_id: str
    pcm: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcribe:
    """Write down this audio. `purpose`: "final", "partial" or "overlap" (is it a backchannel?)."""

    request_id: str
    pcm: bytes
    purpose: str
    item_id: str
    language: str | None = None
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A `JudgeTurnEnd` or `Transcribe` command is no longer wanted."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure for the metrics, by the names of docs/metrics.md. `value` is in the unit that the name ends with."""

    name: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnMark:
    """Something happened in a turn: for its timings. `at` is on the session's clock, in seconds.

    `what`: speech_started, speech_stopped (the user's last audible sample), committed, transcript_ready, response_started,
    first_audio (handed to the outbox), barge_in, response_done.
    """

    item_id: str
    what: str
    at: float
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close the connection once everything before this has been sent."""

    code: int
    reason: str


Outbound: TypeAlias = (
    Send
    | Fence
    | StartResponse
    | StopResponse
    | HoldResponse
    | HearAudio
    | JudgeTurnEnd
    | Transcribe
    | CancelRequest
    | Measure
    | TurnMark
    | CloseConnection
)
