"""Fitting a conversation into a model's context: what goes first when it grows too long."""

from __future__ import annotations

from ..errors import InvalidRequestError
from ..messages import ChatMessage

KEEP = 0.75
"""After a cut the conversation fills this part of what is allowed, so that the next turns keep the same beginning (and its cache)."""


def size(message: ChatMessage) -> int:
    """A message's length in bytes, calls included; a few for the template around it."""
    return 16 + len(message.text.encode()) + sum(len(call.name) + len(call.arguments.encode()) for call in message.tool_calls)


def total(messages: tuple[ChatMessage, ...]) -> int:
    return sum(map(size, messages))


def drop_oldest(messages: tuple[ChatMessage, ...], budget: int) -> tuple[ChatMessage, ...]:
    """The conversation cut to about `budget` bytes: system messages and the last message stay, the oldest of the rest go.

    A function's result never stays without its call. Raises `InvalidRequestError` when what must stay is too long by itself.
    """
    system = [message for message in messages if message.role == "system"]
    rest = [message for message in messages if message.role != "system"]
    if not rest:
        raise InvalidRequestError("the instructions alone are longer than the model's context")
    left = total(messages)
    while len(rest) > 1 and (left > budget or rest[0].role == "tool"):
        left -= size(rest.pop(0))
    if rest[0].role == "tool":
        raise InvalidRequestError("the function's result alone is longer than the model's context")
    if left > budget:
        raise InvalidRequestError("the last message and the instructions alone are longer than the model's context")
    return (*system, *rest)
