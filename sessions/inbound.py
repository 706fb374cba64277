"""What goes into a session: everything that happens to it, as plain frozen structs that can be recorded and replayed.

Audio is mono signed 16-bit little-endian PCM at 24 kHz as `bytes` unless said otherwise; positions are sample counts at
24 kHz since the session's first input sample.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from .timeline import TimedWord


class ClientMessage(msgspec.Struct, frozen=True, tag="client"):
    """A client event as it came off the wire: JSON text in UTF-8. The session parses it and answers errors itself."""

    raw: bytes


class BadFrame(msgspec.Struct, frozen=True, tag="bad_frame"):
    """Something that is not a client event at all: a binary frame, an oversized one, a breach of a rate limit. `event_id`: the
    client's own, if it could be made out."""

    code: str
    message: str
    event_id: str | None = None


class TrackAudio(msgspec.Struct, frozen=True, tag="track_audio"):
    """Audio from a media track (WebRTC), already decoded."""

    pcm: bytes


class SpeechScored(msgspec.Struct, frozen=True, tag="speech_scored"):
    """VAD scores of consecutive frames of 768 samples, the first beginning at `start_sample`."""

    start_sample: int
    probabilities: tuple[float, ...]


class VadLost(msgspec.Struct, frozen=True, tag="vad_lost"):
    """The VAD engine failed; the session tells the client and lives on without turn detection until it returns."""

    code: str
    message: str


class VadReady(msgspec.Struct, frozen=True, tag="vad_ready"):
    """The VAD engine listens again, on a new feed: positions count from 0 at the next `HearAudio`."""


class TurnEndJudged(msgspec.Struct, frozen=True, tag="turn_end_judged"):
    """The turn-end engine's answer to `JudgeTurnEnd`; None: it failed, so the silence time-out decides."""

    request_id: str
    probability: float | None


class Transcribed(msgspec.Struct, frozen=True, tag="transcribed", kw_only=True):
    """The answer to a `Transcribe` command."""

    request_id: str
    text: str
    no_speech: float = 0.0
    logprob: float = 0.0


class TranscriptionFailed(msgspec.Struct, frozen=True, tag="transcription_failed"):
    """A `Transcribe` command failed."""

    request_id: str
    code: str
    message: str


class ResponseText(msgspec.Struct, frozen=True, tag="response_text"):
    """Text from the chat model, for a text response."""

    response_id: str
    epoch: int
    text: str


class ResponseAudio(msgspec.Struct, frozen=True, tag="response_audio", kw_only=True):
    """Speech for an audio response. `transcript` and `words` as in the engines' audio chunk: the text that begins to be spoken
    with this audio; word times in ms from its first sample."""

    response_id: str
    epoch: int
    pcm: bytes
    transcript: str = ""
    words: tuple[TimedWord, ...] = ()


class ResponseToolCall(msgspec.Struct, frozen=True, tag="response_tool_call", kw_only=True):
    """A piece of a function call of the chat model; `index` tells parallel calls apart."""

    response_id: str
    epoch: int
    index: int
    call_id: str
    name: str
    arguments: str


class ResponseEnded(msgspec.Struct, frozen=True, tag="response_ended", kw_only=True):
    """The pipeline made everything it will make. `reason`: stop, length, tool_calls or content_filter."""

    response_id: str
    epoch: int
    reason: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class ResponseFailed(msgspec.Struct, frozen=True, tag="response_failed"):
    """An engine failed under this response."""

    response_id: str
    epoch: int
    code: str
    message: str


class AudioDelivered(msgspec.Struct, frozen=True, tag="audio_delivered"):
    """The transport handed `samples` more samples of this response's audio to the socket (or the media track)."""

    response_id: str
    samples: int


class Tick(msgspec.Struct, frozen=True, tag="tick"):
    """Time has passed: sent when `Session.next_deadline` is due."""


class Warn(msgspec.Struct, frozen=True, tag="warn"):
    """Tell the client what is about to happen to the session. `code`: expiring or draining; `seconds`: how soon."""

    code: str
    message: str
    seconds: float


class EndSession(msgspec.Struct, frozen=True, tag="end_session"):
    """End the session: whatever runs is cancelled with its terminal event, the client is told (`code`, `message`) and the
    connection is closed with `close_code`."""

    code: str
    message: str
    close_code: int


class Disconnected(msgspec.Struct, frozen=True, tag="disconnected"):
    """The connection is gone: cancel everything, send nothing."""


Inbound: TypeAlias = (
    ClientMessage
    | BadFrame
    | TrackAudio
    | SpeechScored
    | VadLost
    | VadReady
    | TurnEndJudged
    | Transcribed
    | TranscriptionFailed
    | ResponseText
    | ResponseAudio
    | ResponseToolCall
    | ResponseEnded
    | ResponseFailed
    | AudioDelivered
    | Tick
    | Warn
    | EndSession
    | Disconnected
)
