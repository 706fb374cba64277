"""Cutting a conversation that is too long."""

from __future__ import annotations

import pytest
from antiphon.engines.ar.context import drop_oldest, total
from antiphon.engines.errors import InvalidRequestError
from antiphon.engines.messages import ChatMessage, ToolCall

SYSTEM = ChatMessage(role="system", text="Be kind.")


def turns(count: int) -> list[ChatMessage]:
    return [ChatMessage(role=("user", "assistant")[number % 2], text=f"{number} " + "x" * 80) for number in range(count)]


def test_the_oldest_go_and_the_instructions_stay() -> None:
    kept = drop_oldest((SYSTEM, *turns(9)), 350)
    assert kept[0] == SYSTEM
    assert kept[-1].text.startswith("8 ")
    assert total(kept) <= 350
    assert [message.text[0] for message in kept[1:]] == ["6", "7", "8"]


def test_a_result_does_not_stay_without_its_call() -> None:
    call = ChatMessage(role="assistant", tool_calls=(ToolCall("c", "f", "{}" + " " * 200),))
    result = ChatMessage(role="tool", call_id="c", text="rain")
    kept = drop_oldest((SYSTEM, *turns(2), call, result, ChatMessage(role="user", text="and now?")), 120)
    assert [message.role for message in kept] == ["system", "user"]


@pytest.mark.parametrize(
    "messages", [(SYSTEM,), (SYSTEM, ChatMessage(role="user", text="x" * 500)), (SYSTEM, *turns(2), ChatMessage(role="tool", text="y"))]
)
def test_what_must_stay_may_be_too_long(messages: tuple[ChatMessage, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="longer than the model's context"):
        drop_oldest(messages, 100)
