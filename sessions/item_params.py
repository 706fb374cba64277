"""Conversation items as clients send them. Beta's content names `text` and `audio` are read as the GA names of the role."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag

from .schema import MAX_CONTENT_PARTS, Strict, invalid, tagger

ItemId: TypeAlias = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]+$", max_length=64)]
Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]


def _renamed(old: str, new: str) -> BeforeValidator:
    return BeforeValidator(lambda value: new if value == old else value)


# ---- content parts --------------------------------------------------------------------------------------------------


class InputTextPart(Strict):
    """Text of the user or the system."""

    type: Annotated[Literal["input_text"], _renamed("text", "input_text")]
    text: str


class InputAudioPart(Strict):
    """Speech of the user: base64 of the session's input format, a transcript, or both."""

    type: Annotated[Literal["input_audio"], _renamed("audio", "input_audio")]
    audio: str | None = None
    transcript: str | None = None


class InputImagePart(Strict):
    """A picture as a data URI."""

    type: Literal["input_image"]
    image_url: Annotated[str, Field(min_length=1)]
    detail: Literal["auto", "low", "high"] | None = None


class OutputTextPart(Strict):
    """Text that the assistant wrote."""

    type: Annotated[Literal["output_text"], _renamed("text", "output_text")]
    text: str


class OutputAudioPart(Strict):
    """Speech of the assistant; what counts is its transcript."""

    type: Annotated[Literal["output_audio"], _renamed("audio", "output_audio")]
    audio: str | None = None
    transcript: str | None = None


UserPart: TypeAlias = Annotated[
    Annotated[InputTextPart, Tag("<input_text>")]
    | Annotated[InputAudioPart, Tag("<input_audio>")]
    | Annotated[InputImagePart, Tag("<input_image>")],
    Discriminator(tagger({"text": "input_text", "audio": "input_audio"})),
]
AssistantPart: TypeAlias = Annotated[
    Annotated[OutputTextPart, Tag("<output_text>")] | Annotated[OutputAudioPart, Tag("<output_audio>")],
    Discriminator(tagger({"text": "output_text", "audio": "output_audio"})),
]

# ---- items ----------------------------------------------------------------------------------------------------------


class _Item(Strict):
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None
    status: Status | None = None


class SystemMessageParam(_Item):
    """What the application says to the model."""

    type: Literal["message"]
    role: Literal["system"]
    content: Annotated[list[InputTextPart], Field(max_length=MAX_CONTENT_PARTS)]


class UserMessageParam(_Item):
    """What the user says."""

    type: Literal["message"]
    role: Literal["user"]
    content: Annotated[list[UserPart], Field(max_length=MAX_CONTENT_PARTS)]


class AssistantMessageParam(_Item):
    """What the assistant said before."""

    type: Literal["message"]
    role: Literal["assistant"]
    content: Annotated[list[AssistantPart], Field(max_length=MAX_CONTENT_PARTS)]


class FunctionCallParam(_Item):
    """A call that the model made before; `arguments` is JSON text."""

    type: Literal["function_call"]
    call_id: str | None = None
    name: Annotated[str, Field(min_length=1, max_length=64)]
    arguments: str


class FunctionCallOutputParam(_Item):
    """What a function call gave."""

    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(min_length=1, max_length=512)]
    output: str


class ItemReferenceParam(Strict):
    """An item of the conversation, by id; only in the input of a response."""

    type: Literal["item_reference"]
    id: ItemId


def role(value: Any) -> str | None:
    """The discriminator of messages; error messages know it by its name."""
    name = value.get("role") if isinstance(value, dict) else getattr(value, "role", None)
    return None if name is None else f"<{name}>"


MessageParam: TypeAlias = Annotated[
    Annotated[SystemMessageParam, Tag("<system>")]
    | Annotated[UserMessageParam, Tag("<user>")]
    | Annotated[AssistantMessageParam, Tag("<assistant>")],
    Discriminator(role),
]

_MCP = ("mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response")


def _no_mcp_items(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") in _MCP:
        raise invalid(f"Invalid value: '{value['type']}'. This server keeps no MCP items; use function calls.", at="type")
    return value


ItemParam: TypeAlias = Annotated[
    Annotated[MessageParam, Tag("<message>")]
    | Annotated[FunctionCallParam, Tag("<function_call>")]
    | Annotated[FunctionCallOutputParam, Tag("<function_call_output>")],
    Discriminator(tagger()),
    BeforeValidator(_no_mcp_items),
]
"""An item for `conversation.item.create`."""

InputItemParam: TypeAlias = Annotated[
    Annotated[MessageParam, Tag("<message>")]
    | Annotated[FunctionCallParam, Tag("<function_call>")]
    | Annotated[FunctionCallOutputParam, Tag("<function_call_output>")]
    | Annotated[ItemReferenceParam, Tag("<item_reference>")],
    Discriminator(tagger()),
    BeforeValidator(_no_mcp_items),
]
"""An item or a reference to one, for the input of a response."""
