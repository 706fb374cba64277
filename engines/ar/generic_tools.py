"""Function calls for a chat model whose template knows nothing of them.

The functions are described in the system message; a grammar lets the model write either one call as JSON or plain text (with
`required` or a named function: a call and nothing else), so that whatever it writes is a valid call or valid text. Text streams on
as it comes; a call is given once it is complete.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from ..messages import ChatBody, ChatMessage, EngineChunk, TextChunk, Tool, ToolCallChunk
from .wire import named_tool

_INSTRUCTIONS = """You can call these functions:
{functions}
To call one, answer with JSON only: {{"name": "<function>", "arguments": {{...}}}}. Call a function only when the user asks for what it does; \
otherwise answer in words."""

_RESULT = "The function returned: {result}\nNow tell me the answer in one short sentence."


def offered(body: ChatBody) -> tuple[Tool, ...]:
    """The functions that the model may call for this request."""
    if body.tool_choice == "none":
        return ()
    name = named_tool(body)
    return tuple(tool for tool in body.tools if name is None or tool.name == name)


def with_instructions(body: ChatBody) -> tuple[ChatMessage, ...]:
    """The conversation in words that a model without a tool template understands."""
    messages = [_plain(message) for message in body.messages]
    tools = offered(body)
    if tools:
        lines = "\n".join(f"- {tool.name}: {tool.description} Arguments: {json.dumps(_properties(tool))}" for tool in tools)
        text = _INSTRUCTIONS.format(functions=lines)
        if messages and messages[0].role == "system":
            messages[0] = ChatMessage(role="system", text=f"{messages[0].text}\n\n{text}")
        else:
            messages.insert(0, ChatMessage(role="system", text=text))
    return tuple(messages)


def _plain(message: ChatMessage) -> ChatMessage:
    if message.tool_calls:
        calls = "\n".join(f'{{"name": "{call.name}", "arguments": {call.arguments or "{}"}}}' for call in message.tool_calls)
        return ChatMessage(role="assistant", text=f"{message.text}\n{calls}" if message.text else calls)
    if message.role == "tool":
        return ChatMessage(role="user", text=_RESULT.format(result=message.text))
    return message


def _properties(tool: Tool) -> Any:
    return tool.parameters.get("properties", {})


def grammar(body: ChatBody) -> str | None:
    """What the model may write, in llguidance's Lark form; None: anything."""
    tools = offered(body)
    if not tools:
        return None
    schema = {"anyOf": [_call_schema(tool) for tool in tools]} if len(tools) > 1 else _call_schema(tools[0])
    call = f"call: %json {json.dumps(schema)}"
    if body.tool_choice == "auto":
        return f"%llguidance {{}}\nstart: call | text\ntext: /[^{{\\s](.|\\n)*/\n{call}\n"
    return f"%llguidance {{}}\nstart: call\n{call}\n"


def _call_schema(tool: Tool) -> dict[str, Any]:
    arguments = tool.parameters or {"type": "object", "properties": {}}
    if "type" not in arguments:
        arguments = {"type": "object", **arguments}
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
        "x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    }


class CallReader:
    """Tells a call from text at the first character, passes text on and holds a call back until `finish`."""

    def __init__(self) -> None:
        self._head = ""
        self._is_call: bool | None = None

    def read(self, text: str) -> list[EngineChunk]:
        """More of what the model wrote."""
        if self._is_call is False:
            return [TextChunk(text)]
        self._head += text
        if self._is_call is None and self._head.strip():
            self._is_call = self._head.lstrip().startswith("{")
            if not self._is_call:
                return [TextChunk(self._head)]
        return []

    def finish(self) -> list[EngineChunk]:
        """The call, if it was one. A call cut short by `max_tokens` is given as far as it went."""
        if not self._is_call:
            return []
        text = self._head.strip()
        try:
            call = json.loads(text)
            name, arguments = str(call["name"]), json.dumps(call["arguments"])
        except (json.JSONDecodeError, KeyError, TypeError):
            name, arguments = _torn(text)
        return [ToolCallChunk(index=0, call_id=f"call_{secrets.token_hex(8)}", name=name, arguments=arguments)] if name else []


def _torn(text: str) -> tuple[str, str]:
    """Name and arguments of an incomplete call."""
    _, _, rest = text.partition('"name": "')
    name, quote, rest = rest.partition('"')
    _, _, arguments = rest.partition('"arguments": ')
    return (name if quote else ""), arguments
