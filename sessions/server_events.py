"""The events that a server sends, as frozen structs whose tag is the wire name.

Nested objects (session, item, response, part) are plain dicts that the core has built for the wire. Fields that are None are
left out where the protocol lets them be absent, and sent as null where clients look for them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
import pybase64

Json: TypeAlias = dict[str, Any]


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    event_id: str


# ---- session and conversation ---------------------------------------------------------------------------------------


class SessionCreated(_Event, frozen=True, kw_only=True, tag="session.created"):
    """The first event of every connection."""

    session: Json


class SessionUpdated(_Event, frozen=True, kw_only=True, tag="session.updated"):
    """The answer to a `session.update`: the whole session."""

    session: Json


class SessionExpiring(_Event, frozen=True, kw_only=True, tag="session.expiring"):
    """An extension: the session ends in `seconds` unless something happens (idle) or in any case (lifetime)."""

    message: str
    seconds: float


class SessionDraining(_Event, frozen=True, kw_only=True, tag="session.draining"):
    """An extension: the server shuts down; running responses may finish within `seconds`, then the connection closes with 1012."""

    message: str
    seconds: float


class ConversationCreated(_Event, frozen=True, kw_only=True, tag="conversation.created"):
    """The default conversation: `{id, object}`."""

    conversation: Json


class ConversationItemAdded(_Event, frozen=True, kw_only=True, tag="conversation.item.added"):
    """An item stands in the conversation after `previous_item_id` (null: it is the first)."""

    item: Json
    previous_item_id: str | None = None


class ConversationItemDone(_Event, frozen=True, kw_only=True, tag="conversation.item.done"):
    """An item is complete."""

    item: Json
    previous_item_id: str | None = None


class ConversationItemRetrieved(_Event, frozen=True, kw_only=True, tag="conversation.item.retrieved"):
    """The item as the server has it, audio included."""

    item: Json


class ConversationItemDeleted(_Event, frozen=True, kw_only=True, tag="conversation.item.deleted"):
    """An item was taken out."""

    item_id: str


class ConversationItemTruncated(_Event, frozen=True, kw_only=True, tag="conversation.item.truncated"):
    """An assistant's audio was cut at what was heard."""

    item_id: str
    content_index: int
    audio_end_ms: int


class RateLimitsUpdated(_Event, frozen=True, kw_only=True, tag="rate_limits.updated"):
    """`rate_limits`: `{name: requests|tokens, limit, remaining, reset_seconds}` each."""

    rate_limits: list[Json]


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong. `type`: invalid_request_error or server_error; `event_id` is the client event's."""

    type: str
    code: str | None = None
    message: str
    param: str | None = None
    event_id: str | None = None


class ErrorEvent(_Event, frozen=True, kw_only=True, tag="error"):
    """Something went wrong; the connection stays open unless it is closed explicitly."""

    error: ErrorBody


# ---- input transcription --------------------------------------------------------------------------------------------


class InputTranscriptionDelta(
    _Event, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.delta", omit_defaults=True
):
    """More of a user item's transcript."""

    item_id: str
    content_index: int
    delta: str
    logprobs: list[Json] | None = None


class InputTranscriptionCompleted(
    _Event, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.completed", omit_defaults=True
):
    """A user item's whole transcript. `usage`: `{type: duration, seconds}` or `{type: tokens, …}`."""

    item_id: str
    content_index: int
    transcript: str
    usage: Json
    logprobs: list[Json] | None = None
    languages: list[Json] | None = None


class InputTranscriptionFailed(_Event, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.failed"):
    """A user item has no transcript. `error`: `{type, code, message, param}`."""

    item_id: str
    content_index: int
    error: Json


class InputTranscriptionSegment(_Event, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.segment"):
    """A piece of a user item's transcript with its times in seconds."""

    item_id: str
    content_index: int
    id: str
    text: str
    speaker: str
    start: float
    end: float


# ---- input buffer ---------------------------------------------------------------------------------------------------


class InputAudioBufferCommitted(_Event, frozen=True, kw_only=True, tag="input_audio_buffer.committed"):
    """The input buffer becomes the user item `item_id`, after `previous_item_id`."""

    item_id: str
    previous_item_id: str | None = None


class InputAudioBufferCleared(_Event, frozen=True, kw_only=True, tag="input_audio_buffer.cleared"):
    """The input buffer is empty."""


class InputAudioBufferSpeechStarted(_Event, frozen=True, kw_only=True, tag="input_audio_buffer.speech_started"):
    """The user speaks. `audio_start_ms` counts from the session's first input audio, prefix padding included."""

    item_id: str
    audio_start_ms: int


class InputAudioBufferSpeechStopped(_Event, frozen=True, kw_only=True, tag="input_audio_buffer.speech_stopped"):
    """The user has stopped. `audio_end_ms` includes the silence that was waited for."""

    item_id: str
    audio_end_ms: int


class InputAudioBufferTimeoutTriggered(_Event, frozen=True, kw_only=True, tag="input_audio_buffer.timeout_triggered"):
    """The user stayed silent for the idle time-out."""

    item_id: str
    audio_start_ms: int
    audio_end_ms: int


# ---- response -------------------------------------------------------------------------------------------------------


class ResponseCreated(_Event, frozen=True, kw_only=True, tag="response.created"):
    """A response begins, `in_progress`."""

    response: Json


class ResponseDone(_Event, frozen=True, kw_only=True, tag="response.done"):
    """A response's only terminal; nothing of it follows."""

    response: Json


class OutputItemAdded(_Event, frozen=True, kw_only=True, tag="response.output_item.added"):
    """A response makes an item."""

    response_id: str
    output_index: int
    item: Json


class OutputItemDone(_Event, frozen=True, kw_only=True, tag="response.output_item.done"):
    """An item of a response is complete (or as complete as it will be)."""

    response_id: str
    output_index: int
    item: Json


class ContentPartAdded(_Event, frozen=True, kw_only=True, tag="response.content_part.added"):
    """A message gets a part. `part`: `{type: text|audio, text?, transcript?}`."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int
    part: Json


class ContentPartDone(_Event, frozen=True, kw_only=True, tag="response.content_part.done"):
    """A part is complete."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int
    part: Json


class OutputTextDelta(_Event, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """More text of a text response."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int
    delta: str


class OutputTextDone(_Event, frozen=True, kw_only=True, tag="response.output_text.done"):
    """The whole text."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int
    text: str


class OutputAudioDelta(_Event, frozen=True, kw_only=True, tag="response.output_audio.delta"):
    """More audio: `pcm` holds bytes of the output format (PCM or G.711), written as base64 `delta` when encoded.

    The ids are the server's own, so they need no escaping.
    """

    response_id: str
    item_id: str
    output_index: int
    content_index: int
    pcm: bytes


class OutputAudioDone(_Event, frozen=True, kw_only=True, tag="response.output_audio.done"):
    """No more audio in this part."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int


class OutputAudioTranscriptDelta(_Event, frozen=True, kw_only=True, tag="response.output_audio_transcript.delta"):
    """More of the words that the audio speaks."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int
    delta: str


class OutputAudioTranscriptDone(_Event, frozen=True, kw_only=True, tag="response.output_audio_transcript.done"):
    """All the words that the audio speaks."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int
    transcript: str


class FunctionCallArgumentsDelta(_Event, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    """More of a call's arguments (JSON text)."""

    response_id: str
    item_id: str
    output_index: int
    call_id: str
    delta: str


class FunctionCallArgumentsDone(_Event, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    """A call's whole arguments."""

    response_id: str
    item_id: str
    output_index: int
    call_id: str
    name: str
    arguments: str


# ---- output buffer (where the server owns playback) -----------------------------------------------------------------


class OutputAudioBufferStarted(_Event, frozen=True, kw_only=True, tag="output_audio_buffer.started"):
    """The response's audio begins to play."""

    response_id: str


class OutputAudioBufferStopped(_Event, frozen=True, kw_only=True, tag="output_audio_buffer.stopped"):
    """The response's audio has been played."""

    response_id: str


class OutputAudioBufferCleared(_Event, frozen=True, kw_only=True, tag="output_audio_buffer.cleared"):
    """The rest of the response's audio will not be played."""

    response_id: str


ServerEvent: TypeAlias = (
    SessionCreated
    | SessionExpiring
    | SessionDraining
    | SessionUpdated
    | ConversationCreated
    | ConversationItemAdded
    | ConversationItemDone
    | ConversationItemRetrieved
    | ConversationItemDeleted
    | ConversationItemTruncated
    | RateLimitsUpdated
    | ErrorEvent
    | InputTranscriptionDelta
    | InputTranscriptionCompleted
    | InputTranscriptionFailed
    | InputTranscriptionSegment
    | InputAudioBufferCommitted
    | InputAudioBufferCleared
    | InputAudioBufferSpeechStarted
    | InputAudioBufferSpeechStopped
    | InputAudioBufferTimeoutTriggered
    | ResponseCreated
    | ResponseDone
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | OutputAudioDelta
    | OutputAudioDone
    | OutputAudioTranscriptDelta
    | OutputAudioTranscriptDone
    | FunctionCallArgumentsDelta
    | FunctionCallArgumentsDone
    | OutputAudioBufferStarted
    | OutputAudioBufferStopped
    | OutputAudioBufferCleared
)

_encode = msgspec.json.Encoder().encode

_AUDIO_DELTA = (
    b'{"type":"%b","event_id":"%b","response_id":"%b","item_id":"%b",'
    b'"output_index":%d,"content_index":%d,"delta":"%b"}'
)  # fmt: skip


def encode_audio_delta(event: OutputAudioDelta, wire_type: bytes = b"response.output_audio.delta") -> bytes:
    """An audio delta as JSON text, by a template: base64 needs no escaping and our ids none either."""
    return _AUDIO_DELTA % (
        wire_type,
        event.event_id.encode(),
        event.response_id.encode(),
        event.item_id.encode(),
        event.output_index,
        event.content_index,
        pybase64.b64encode(event.pcm),
    )


def encode_event(event: ServerEvent) -> bytes:
    """The event as it goes over the wire: JSON text in UTF-8."""
    return encode_audio_delta(event) if type(event) is OutputAudioDelta else _encode(event)


def event_type(event: ServerEvent) -> str:
    """The event's name on the wire."""
    return str(type(event).__struct_config__.tag)
