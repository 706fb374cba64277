"""Pieces that client events and the session object share, and the way from a validation error to the protocol's error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, PlainValidator, Tag, ValidationError, field_validator
from pydantic_core import ErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ValidationInfo

from .errors import ClientEventError

MAX_OUTPUT_TOKENS = 4096
MAX_PARAM = 512
"""Characters of a path in an error: clients choose the keys."""
MAX_INPUT_ITEMS = 512
MAX_CONTENT_PARTS = 128
"""A list of a client's costs its whole length at once, on the event loop that every session shares."""
NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"


class Strict(BaseModel):
    """A frozen model that neither converts nor ignores anything."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# ---- validators -----------------------------------------------------------------------------------------------------


def invalid(message: str, **context: Any) -> PydanticCustomError:
    """An error whose message is already a sentence for the client."""
    return PydanticCustomError("sentence", "{sentence}", {"sentence": message, **context})


def _whole_number(value: Any) -> Any:
    """JavaScript and some SDKs write whole numbers as 500.0; booleans are no numbers."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


WholeNumber: TypeAlias = Annotated[int, BeforeValidator(_whole_number), Field(ge=0, lt=2**53)]


def _max_output_tokens(value: Any) -> Any:
    value = _whole_number(value)
    if value == "inf" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_OUTPUT_TOKENS):
        return value
    raise invalid(f"Invalid value: {shown(value)}. Expected an integer from 1 to {MAX_OUTPUT_TOKENS} or 'inf'.")


MaxOutputTokens: TypeAlias = Annotated[int | Literal["inf"], PlainValidator(_max_output_tokens)]


def _modalities(value: Any) -> Any:
    """Exactly one of them; both (in either order) means audio, which carries its transcript anyway."""
    if value in (["audio"], ["text"]):
        return value
    if value in (["text", "audio"], ["audio", "text"]):
        return ["audio"]
    raise invalid(f"Invalid modalities: {shown(value)}. Supported combinations are: ['text'] and ['audio'].")


Modalities: TypeAlias = Annotated[list[Literal["audio", "text"]], PlainValidator(_modalities)]


def _plain_json(value: Any) -> Any:
    """Free-form JSON that is echoed: only numbers that survive being written again."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, float) and not math.isfinite(node):
            raise invalid("Invalid value: numbers must be finite.")
        elif isinstance(node, int) and not -(2**63) <= node < 2**64:
            raise invalid("Invalid value: integers must fit in 64 bits.")
    return value


JsonObject: TypeAlias = Annotated[dict[str, Any], BeforeValidator(_plain_json)]

PlainJson: TypeAlias = Annotated[Any, BeforeValidator(_plain_json)]

# ---- unions ---------------------------------------------------------------------------------------------------------


def tagger(names: dict[str, str] | None = None) -> Callable[[Any], str | None]:
    """A discriminator on `type` whose tags stand in angle brackets, so that they can be told from keys in error locations.

    `names` maps old spellings of a type to the present one.
    """
    spelling = names or {}

    def tag(value: Any) -> str | None:
        kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        if kind is None:
            return None
        return f"<{spelling.get(kind, kind)}>" if isinstance(kind, str) else f"<{kind!r}>"

    return tag


def text_or_object(value: Any) -> str:
    """The discriminator of values that are either a word or an object."""
    return "<object>" if isinstance(value, dict | BaseModel) else "<text>"


# ---- shared models --------------------------------------------------------------------------------------------------


class AudioFormat(Strict):
    """How audio is written on the wire: 24 kHz signed 16-bit little-endian mono, or G.711 at 8 kHz."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"] = "audio/pcm"
    rate: int | None = Field(default=None, validate_default=True)

    @field_validator("rate")
    @classmethod
    def _only_rate(cls, value: int | None, info: ValidationInfo) -> int | None:
        if info.data.get("type") == "audio/pcm":
            if value not in (None, 24_000):
                raise invalid(f"Invalid value: {shown(value)}. Only a rate of 24000 is supported for audio/pcm.")
            return 24_000
        if value not in (None, 8_000):
            raise invalid(f"Invalid value: {shown(value)}. G.711 audio has a rate of 8000.")
        return None

    @property
    def sample_rate(self) -> int:
        """Samples per second on the wire."""
        return 24_000 if self.type == "audio/pcm" else 8_000

    def wire(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class VoiceRef(Strict):
    """A voice by its id."""

    id: Annotated[str, Field(min_length=1, max_length=256)]


Voice: TypeAlias = Annotated[
    Annotated[str, Field(min_length=1, max_length=256), Tag("<text>")] | Annotated[VoiceRef, Tag("<object>")],
    Discriminator(text_or_object),
]


def voice_name(voice: str | VoiceRef) -> str:
    """The voice's name or id."""
    return voice if isinstance(voice, str) else voice.id


class FunctionTool(Strict):
    """A function that the model may call. `strict` is tolerated and has no effect."""

    type: Literal["function"] = "function"
    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    description: str | None = None
    parameters: JsonObject = Field(default_factory=dict)
    strict: bool | None = Field(default=None, exclude=True)

    @field_validator("parameters", mode="before")
    @classmethod
    def _null_is_none(cls, value: Any) -> Any:
        return {} if value is None else value

    def wire(self) -> dict[str, Any]:
        return {"type": "function", "name": self.name, "description": self.description, "parameters": self.parameters}


def _no_mcp(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") == "mcp":
        raise invalid("Invalid value: 'mcp'. This server runs no MCP tools; offer the same work as a tool of type 'function'.", at="type")
    return value


Tool: TypeAlias = Annotated[FunctionTool, BeforeValidator(_no_mcp)]


class FunctionChoice(Strict):
    """The model must call this function."""

    type: Literal["function"] = "function"
    name: Annotated[str, Field(pattern=NAME_PATTERN)]


ToolChoice: TypeAlias = Annotated[
    Annotated[Literal["auto", "none", "required"], Tag("<text>")] | Annotated[FunctionChoice, BeforeValidator(_no_mcp), Tag("<object>")],
    Discriminator(text_or_object),
]


def tool_choice_text(choice: str | FunctionChoice) -> str:
    """`auto`, `none`, `required` or `function:NAME`."""
    return choice if isinstance(choice, str) else f"function:{choice.name}"


class Reasoning(Strict):
    """How long a reasoning model may think; accepted and echoed."""

    effort: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None


class PromptRef(Strict):
    """A reusable prompt; accepted and echoed."""

    id: str
    version: str | None = None
    variables: JsonObject | None = None


# ---- validation errors ----------------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """A value as it may stand in an error message: short."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}…"


def dotted(location: Sequence[int | str], prefix: str = "") -> str:
    """`("item", "<message>", "content", 0, "type")` -> `item.content[0].type`. Names in angle brackets are union tags;
    `[key]` is pydantic's mark for a mistake in a key."""
    path = prefix
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]" and not part.startswith("<"):
            path += f".{part}" if path else part
    return path


def _options(error: ErrorDetails, key: str) -> str:
    text = str(error.get("ctx", {}).get(key, ""))
    return text.replace("'<", "'").replace(">'", "'")


_TYPES = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def client_event_error(error: ErrorDetails, *, prefix: str = "", skip: int = 0, event_id: str | None = None) -> ClientEventError:
    """The protocol's error for one of pydantic's. `skip` leading parts of the location are no part of the client's path."""
    kind = error["type"]
    location = error["loc"][skip:]
    param = dotted(location, prefix)[:MAX_PARAM]
    value = error.get("input")
    if kind == "extra_forbidden":
        # The last part is the client's own key, whatever it looks like.
        parent = dotted(location[:-1], prefix)
        param = f"{parent}.{location[-1]}" if parent else str(location[-1])
        return ClientEventError("unknown_parameter", f"Unknown parameter: {shown(param)}.", param[:MAX_PARAM], event_id)
    if kind == "union_tag_not_found" and not isinstance(value, dict):
        kind = "dict_type"
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        tag_key = "role" if error.get("ctx", {}).get("discriminator") == "role()" else "type"
        param = f"{param}.{tag_key}" if param else tag_key
    if kind == "union_tag_not_found":
        return ClientEventError("missing_required_parameter", f"Missing required parameter: '{param}'.", param, event_id)
    if kind == "missing":
        return ClientEventError("missing_required_parameter", f"Missing required parameter: '{param}'.", param, event_id)
    context = error.get("ctx", {})
    if kind == "sentence":
        if "at" in context:
            param = f"{param}.{context['at']}" if param else str(context["at"])
        return ClientEventError("invalid_value", error["msg"], param or None, event_id)
    if kind == "union_tag_invalid":
        tag = str(context.get("tag", ""))
        tag = tag[1:-1] if tag.startswith("<") else tag
        message = f"Invalid value: {shown(tag)}. Supported values are: {_options(error, 'expected_tags')}."
    elif kind == "literal_error":
        message = f"Invalid value: {shown(value)}. Supported values are: {_options(error, 'expected')}."
    elif kind in _TYPES:
        message = f"Invalid type for '{param}': expected {_TYPES[kind]}, but got {shown(value)} instead."
    else:
        message = f"Invalid value for '{param}': {error['msg']}."
    return ClientEventError("invalid_value", message, param or None, event_id)


def first_error(error: ValidationError, *, prefix: str = "", skip: int = 0, event_id: str | None = None) -> ClientEventError:
    """The protocol reports one error an event: the first."""
    return client_event_error(error.errors(include_url=False)[0], prefix=prefix, skip=skip, event_id=event_id)
