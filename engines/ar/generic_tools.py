"""Function calls for a chat model whose template knows nothing of them.

Such models are mostly very small, so they are shown, not told: two example calls and two example answers stand before the
conversation. Whether to call is decided first (the answer begins with a brace or it does not); the call itself is then written under
a grammar, with the functions next to the request, so that it is always valid. Measured with SmolLM2-135M on 7 requests
for three functions: the right function with the right argument in 6 when a call is demanded; left to itself it calls for
plain commands ("set a timer ...") and answers most questions in words.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from ..messages import ChatBody, ChatMessage, Tool, ToolCallChunk
from .wire import named_tool

_EXAMPLES = (
    ("Send an email to Anna.", '{"name": "send_email", "arguments": {"to": "Anna"}}'),
    ("How are you?", "I am fine, thank you."),
    ("Turn on the lights in the kitchen.", '{"name": "turn_on_lights", "arguments": {"room": "kitchen"}}'),
    ("What is two plus two?", "Two plus two is four."),
)
_EXAMPLE_FUNCTIONS = "send_email(to): Send an email.\nturn_on_lights(room): Turn on the lights."
_DECIDE = "Functions:\n{functions}\nIf a function fits the request, answer with JSON only."
_CALL = "Functions:\n{functions}\n\n{request}"
_RESULT = "The function returned: {result}\nNow tell me the answer in one short sentence."


def offered(body: ChatBody) -> tuple[Tool, ...]:
    """The functions that the model may call for this request."""
    if body.tool_choice == "none":
        return ()
    name = named_tool(body)
    return tuple(tool for tool in body.tools if name is None or tool.name == name)


def may_decide(body: ChatBody) -> bool:
    """Is it the model's choice whether to call? After a result it is not: a very small model would call for ever."""
    return bool(offered(body)) and body.tool_choice == "auto" and body.messages[-1].role != "tool"


def must_call(body: ChatBody) -> bool:
    """Does the request demand a call?"""
    return bool(offered(body)) and body.tool_choice != "auto"


def for_words(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """The conversation for an answer in words: calls and results as plain text."""
    return tuple(_plain(message) for message in messages)


def for_decision(messages: tuple[ChatMessage, ...], tools: tuple[Tool, ...]) -> tuple[ChatMessage, ...]:
    """The conversation in a form in which the model shows by its first character whether it wants to call."""
    system, rest = _parted(messages)
    functions = f"{_EXAMPLE_FUNCTIONS}\n{_listed(tools)}"
    text = "\n".join(filter(None, (system, _DECIDE.format(functions=functions))))
    return (ChatMessage(role="system", text=text), *_examples(), *rest)


def for_call(messages: tuple[ChatMessage, ...], tools: tuple[Tool, ...]) -> tuple[ChatMessage, ...]:
    """The conversation in a form that makes the model write a call."""
    system, rest = _parted(messages)
    head = (ChatMessage(role="system", text=system),) if system else ()
    last = rest[-1] if rest else ChatMessage(role="user")
    asked = ChatMessage(role="user", text=_CALL.format(functions=_listed(tools), request=last.text))
    return (*head, *_examples(), *rest[:-1], asked)


def wants_call(text: str) -> bool | None:
    """Does an answer that begins like this want to be a call? None: too early to tell."""
    head = text.lstrip()
    return head.startswith(("{", "```")) if head and not "```".startswith(head) else None


def grammar(tools: tuple[Tool, ...]) -> str:
    """One call of one of these functions, in llguidance's Lark form."""
    schemas = [_call_schema(tool) for tool in tools]
    schema: dict[str, Any] = {"anyOf": schemas} if len(schemas) > 1 else schemas[0]
    schema["x-guidance"] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    return f"%llguidance {{}}\nstart: call\ncall: %json {json.dumps(schema)}\n"


def parse_call(text: str) -> ToolCallChunk | None:
    """The call that the model wrote; one that was cut short is given as far as it went. None: no name came through."""
    try:
        call = json.loads(text)
        name, arguments = str(call["name"]), json.dumps(call["arguments"])
    except (json.JSONDecodeError, KeyError, TypeError):
        _, _, rest = text.partition('"name": "')
        name, quote, rest = rest.partition('"')
        _, _, arguments = rest.partition('"arguments": ')
        if not quote:
            return None
    return ToolCallChunk(index=0, call_id=f"call_{secrets.token_hex(8)}", name=name, arguments=arguments)


def _parted(messages: tuple[ChatMessage, ...]) -> tuple[str, tuple[ChatMessage, ...]]:
    """The instructions, and the rest of the conversation as plain text."""
    system = "\n\n".join(message.text for message in messages if message.role == "system")
    return system, tuple(_plain(message) for message in messages if message.role != "system")


def _plain(message: ChatMessage) -> ChatMessage:
    if message.tool_calls:
        calls = "\n".join(f'{{"name": "{call.name}", "arguments": {call.arguments or "{}"}}}' for call in message.tool_calls)
        return ChatMessage(role="assistant", text=f"{message.text}\n{calls}" if message.text else calls)
    if message.role == "tool":
        return ChatMessage(role="user", text=_RESULT.format(result=message.text))
    return message


def _examples() -> list[ChatMessage]:
    return [ChatMessage(role=role, text=text) for pair in _EXAMPLES for role, text in zip(("user", "assistant"), pair, strict=True)]


def _listed(tools: tuple[Tool, ...]) -> str:
    return "\n".join(f"{tool.name}({', '.join(tool.parameters.get('properties', {}))}): {tool.description}" for tool in tools)


def _call_schema(tool: Tool) -> dict[str, Any]:
    arguments = {"type": "object", "properties": {}, "additionalProperties": False, **tool.parameters}
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
