"""The eleven events that a client may send, typed, and the parser that turns every mistake into the protocol's error."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias

import pybase64
from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from .errors import ClientEventError
from .item_params import InputItemParam, ItemParam
from .schema import (
    MAX_INPUT_ITEMS,
    AudioFormat,
    FunctionTool,
    MaxOutputTokens,
    Modalities,
    PromptRef,
    Reasoning,
    Strict,
    Tool,
    ToolChoice,
    Voice,
    WholeNumber,
    first_error,
)

MAX_APPEND_BYTES = 15 * 1024 * 1024
"""Audio of one `input_audio_buffer.append`, decoded."""
MAX_EVENT_ID = 512

EventId: TypeAlias = Annotated[str, Field(max_length=MAX_EVENT_ID)]
Reference: TypeAlias = Annotated[str, Field(min_length=1, max_length=512)]
"""An id of something that the session may or may not know."""

Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
    Field(max_length=16),
]


class _Event(Strict):
    event_id: EventId | None = None


class SessionUpdate(_Event):
    """Change the session. `session` is validated when `SessionConfig.merge` lays it over the present configuration."""

    type: Literal["session.update"]
    session: dict[str, Any]


class InputAudioBufferAppend(_Event):
    """More of the user's audio: base64 of the session's input format; see `decode_audio`."""

    type: Literal["input_audio_buffer.append"]
    audio: str


class InputAudioBufferCommit(_Event):
    """The input buffer becomes a user item."""

    type: Literal["input_audio_buffer.commit"]


class InputAudioBufferClear(_Event):
    """Forget the input buffer."""

    type: Literal["input_audio_buffer.clear"]


class ConversationItemCreate(_Event):
    """Insert an item after `previous_item_id` (None: at the end; "root": first)."""

    type: Literal["conversation.item.create"]
    item: ItemParam
    previous_item_id: Reference | None = None


class ConversationItemRetrieve(_Event):
    """Send the item as the server has it, audio included."""

    type: Literal["conversation.item.retrieve"]
    item_id: Reference


class ConversationItemDelete(_Event):
    """Take an item out of the conversation."""

    type: Literal["conversation.item.delete"]
    item_id: Reference


class ConversationItemTruncate(_Event):
    """The user heard only `audio_end_ms` of this assistant item."""

    type: Literal["conversation.item.truncate"]
    item_id: Reference
    content_index: WholeNumber
    audio_end_ms: WholeNumber


class ResponseAudioOutput(Strict):
    """Format and voice of one response."""

    format: AudioFormat | None = None
    voice: Voice | None = None


class ResponseAudioParams(Strict):
    """Audio settings of one response."""

    output: ResponseAudioOutput | None = None


class ResponseParams(Strict):
    """Overrides for one response. None everywhere means: as the session says.

    `conversation` "none" makes the response out of band; `input` replaces the conversation as context (`[]`: no context).
    `temperature` is tolerated.
    """

    conversation: Literal["auto", "none"] | None = None
    input: Annotated[list[InputItemParam], Field(max_length=MAX_INPUT_ITEMS)] | None = None
    instructions: str | None = None
    output_modalities: Modalities | None = None
    audio: ResponseAudioParams | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    prompt: PromptRef | None = None
    max_output_tokens: MaxOutputTokens | None = None
    metadata: Metadata | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None

    @property
    def out_of_band(self) -> bool:
        """The response writes nothing to the conversation."""
        return self.conversation == "none"


class ResponseCreate(_Event):
    """Make a response now."""

    type: Literal["response.create"]
    response: ResponseParams | None = None


class ResponseCancel(_Event):
    """Stop a response; without an id the default conversation's."""

    type: Literal["response.cancel"]
    response_id: Reference | None = None


class OutputAudioBufferClear(_Event):
    """Forget what has not been played yet (only where the server owns the playback buffer)."""

    type: Literal["output_audio_buffer.clear"]


ClientEvent: TypeAlias = (
    SessionUpdate
    | InputAudioBufferAppend
    | InputAudioBufferCommit
    | InputAudioBufferClear
    | ConversationItemCreate
    | ConversationItemRetrieve
    | ConversationItemDelete
    | ConversationItemTruncate
    | ResponseCreate
    | ResponseCancel
    | OutputAudioBufferClear
)

_ADAPTER: TypeAdapter[ClientEvent] = TypeAdapter(Annotated[ClientEvent, Field(discriminator="type")])


_SCALAR = rb'(?:"[^"\\]*+"|[-+.\w]++)'
_EVENT_ID_FIRST = re.compile(rb'\s*\{\s*(?:"(?!event_id")[^"\\]*+"\s*:\s*' + _SCALAR + rb'\s*,\s*)*+"event_id"\s*:\s*"([^"\\]*+)"')
_EVENT_ID_LAST = re.compile(rb',\s*"event_id"\s*:\s*"([^"\\]*+)"\s*\}\s*\Z')
_GLIMPSE = 2048


def glimpse_event_id(raw: bytes) -> str | None:
    """The `event_id` of an event that is not read (too large, or no JSON), if it stands among its first scalars or at its end."""
    found = _EVENT_ID_FIRST.match(raw[:_GLIMPSE]) or _EVENT_ID_LAST.search(raw[-_GLIMPSE:])
    return found[1].decode(errors="replace")[:MAX_EVENT_ID] if found is not None else None


def parse_client_event(raw: bytes) -> ClientEvent:
    """Read one client event from JSON text.

    Raises `ClientEventError` with code invalid_json, missing_required_parameter, invalid_value or unknown_parameter; its
    `event_id` is the offending event's whenever that can be read.
    """
    try:
        return _ADAPTER.validate_json(raw)
    except ValidationError as error:
        raise _refusal(raw, error) from None


def _refusal(raw: bytes, error: ValidationError) -> ClientEventError:
    detail = error.errors(include_url=False)[0]
    if detail["type"] == "json_invalid":
        reason = detail.get("ctx", {}).get("error", "it cannot be parsed")
        return ClientEventError("invalid_json", f"The event is not valid JSON: {reason}.", event_id=glimpse_event_id(raw))
    data = from_json(raw)
    if not isinstance(data, dict):
        return ClientEventError("invalid_value", "A client event must be a JSON object with a 'type'.")
    event_id = data.get("event_id")
    # The location starts with the event's type, unless the type itself was the mistake.
    skip = 1 if detail["loc"] else 0
    return first_error(error, skip=skip, event_id=event_id[:MAX_EVENT_ID] if isinstance(event_id, str) else None)


def decode_audio(text: str, event_id: str | None) -> bytes:
    """The bytes of an append's base64 text. Raises `ClientEventError` (invalid_value, param "audio")."""
    if len(text) > (MAX_APPEND_BYTES * 4) // 3 + 4:
        raise ClientEventError("invalid_value", "Invalid 'audio': at most 15 MiB of audio may be appended at once.", "audio", event_id)
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is one, and so is non-ASCII text
        message = "Invalid 'audio'. Expected base64-encoded audio bytes in the session's input audio format."
        raise ClientEventError("invalid_value", message, "audio", event_id) from None


__all__ = [
    "ClientEvent",
    "ConversationItemCreate",
    "ConversationItemDelete",
    "ConversationItemRetrieve",
    "ConversationItemTruncate",
    "FunctionTool",
    "InputAudioBufferAppend",
    "InputAudioBufferClear",
    "InputAudioBufferCommit",
    "InputItemParam",
    "ItemParam",
    "OutputAudioBufferClear",
    "ResponseAudioOutput",
    "ResponseAudioParams",
    "ResponseCancel",
    "ResponseCreate",
    "ResponseParams",
    "SessionUpdate",
    "decode_audio",
    "glimpse_event_id",
    "parse_client_event",
]
