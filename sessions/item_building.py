"""From the items that clients send to the conversation's own."""

from __future__ import annotations

from collections.abc import Callable

from .emitter import Emitter
from .errors import ClientEventError
from .item_params import (
    FunctionCallOutputParam,
    FunctionCallParam,
    InputAudioPart,
    InputImagePart,
    InputTextPart,
    ItemParam,
    OutputTextPart,
)
from .items import HeardPart, Item, Part, SpokenPart, TextPart


class ItemBuilder:
    """Builds items; `decode` turns a part's base64 text into 24 kHz PCM."""

    def __init__(self, emitter: Emitter, decode: Callable[[str, str | None], bytes]) -> None:
        self._emit = emitter
        self._decode = decode

    def build(self, param: ItemParam, event_id: str | None, at: str = "item") -> Item:
        """The item. Raises ClientEventError (unsupported_content_type, invalid_value) naming the part."""
        item_id = param.id or self._emit.ids.make("item")
        if isinstance(param, FunctionCallParam):
            call_id = param.call_id or self._emit.ids.make("call")
            return Item(item_id, "function_call", call_id=call_id, name=param.name, arguments=param.arguments)
        if isinstance(param, FunctionCallOutputParam):
            return Item(item_id, "function_call_output", call_id=param.call_id, output=param.output)
        parts: list[Part] = []
        for index, part in enumerate(param.content):
            if isinstance(part, InputImagePart):
                message = "This server's chat models cannot see: content of type 'input_image' is not supported."
                raise ClientEventError("unsupported_content_type", message, f"{at}.content[{index}].type", event_id)
            if isinstance(part, InputTextPart):
                parts.append(TextPart(part.text))
            elif isinstance(part, InputAudioPart):
                if any(isinstance(other, HeardPart) for other in parts):
                    message = "An item holds at most one content part of type 'input_audio'. Send the audio as one part, or as two items."
                    raise ClientEventError("invalid_value", message, f"{at}.content[{index}].type", event_id)
                pcm = self._decode(part.audio, event_id) if part.audio else None
                parts.append(HeardPart(part.transcript if part.transcript is not None or pcm else "", pcm))
            elif isinstance(part, OutputTextPart):
                parts.append(TextPart(part.text, "output_text"))
            else:
                parts.append(SpokenPart(given=part.transcript or ""))
        return Item(item_id, role=param.role, content=parts)
