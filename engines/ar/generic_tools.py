"""Function calls for a chat model whose template knows nothing of them.

Such models are mostly very small. Three things make up for it. They are shown, not told: two example calls and two example answers
stand before the conversation. The call is written under a grammar with the functions next to the request, so that it is
always valid. And words in common help to choose: a request that names a function ("set a timer", `set_timer`) is a call of it.
Without such a word the model decides: its answer begins with a brace or it does not.
"""

from __future__ import annotations

import json
import re
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
_RESULT = "Context: {result}.\n\nQuestion: {request}\nAnswer in one sentence."
_COMMON = frozenset(
    ("get", "set", "do", "make", "the", "for", "and", "of", "to", "in", "an", "is", "my", "me", "with", "current", "data", "call")
)
_WORDS = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}")


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


def named(messages: tuple[ChatMessage, ...], tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """The functions whose name shares a telling word with the request, the most words first; none when no name does."""
    request = _stems(messages[-1].text)
    shared = [len(_stems(tool.name) & request) for tool in tools]
    best = max(shared, default=0)
    return tuple(tool for tool, count in zip(tools, shared, strict=True) if best and count == best)


def _stems(text: str) -> frozenset[str]:
    """The telling words of a text without their endings: `playMusic`, `play_music` and "playing music" have the same."""
    words = {word.lower() for word in _WORDS.findall(text)} - _COMMON
    return frozenset(re.sub(r"(?<=\w{3})(?:ing|ed|es|s)$", "", word) for word in words)


def for_words(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """The conversation for an answer in words: fresh results stand with the question that they answer, earlier calls are left out."""
    kept = list(messages)
    results: list[str] = []
    while kept and kept[-1].role == "tool":
        results.insert(0, _flat(kept.pop().text))
    plain = [message for message in kept if message.role != "tool" and not (message.tool_calls and not message.text)]
    if results:
        request = plain.pop().text if plain and plain[-1].role == "user" else ""
        plain.append(ChatMessage(role="user", text=_RESULT.format(result="; ".join(results), request=request)))
    return tuple(ChatMessage(role=message.role, text=message.text) for message in plain)


def _flat(result: str) -> str:
    """A function's result as words: `{"sky": "light rain"}` as "sky: light rain"."""
    try:
        value = json.loads(result)
    except json.JSONDecodeError:
        return result.strip().rstrip(".")
    return _say(value)


def _say(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{str(key).replace('_', ' ')}: {_say(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_say, value))
    return str(value)


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
    return system, tuple(message for message in for_words(messages) if message.role != "system")


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
