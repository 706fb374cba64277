"""Function calls for models without a template for them."""

from __future__ import annotations

import pytest
from antiphon.engines.ar import generic_tools
from antiphon.engines.messages import ChatBody, ChatMessage, Tool, ToolCall

WEATHER = Tool(name="get_weather", description="The weather.", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
TIMER = Tool(name="setTimer", description="Set a timer.", parameters={"type": "object", "properties": {"minutes": {"type": "integer"}}})


def asked(text: str) -> tuple[ChatMessage, ...]:
    return (ChatMessage(role="user", text=text),)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("How is the weather in Paris?", ["get_weather"]),
        ("Please set two timers for me.", ["setTimer"]),
        ("Get the set for me.", []),
        ("Who wrote Hamlet?", []),
        ("Weather first, then a timer.", ["get_weather", "setTimer"]),
    ],
)
def test_a_request_that_names_a_function_is_a_call_of_it(text: str, names: list[str]) -> None:
    assert [tool.name for tool in generic_tools.named(asked(text), (WEATHER, TIMER))] == names


@pytest.mark.parametrize(
    ("text", "verdict"), [("", None), ("  ", None), ("`", None), ("``", None), ("```json", True), (' {"name"', True), ("Well", False)]
)
def test_the_first_character_tells(text: str, verdict: bool | None) -> None:
    assert generic_tools.wants_call(text) is verdict


def test_which_functions_are_offered() -> None:
    def body(choice: str) -> ChatBody:
        return ChatBody(messages=asked("x"), tools=(WEATHER, TIMER), tool_choice=choice)

    assert generic_tools.offered(body("none")) == ()
    assert generic_tools.offered(body("function:setTimer")) == (TIMER,)
    assert generic_tools.offered(body("auto")) == (WEATHER, TIMER)
    assert generic_tools.must_call(body("required"))
    assert generic_tools.may_decide(body("auto"))
    after_result = ChatBody(messages=(*asked("x"), ChatMessage(role="tool", call_id="c", text="y")), tools=(WEATHER,))
    assert not generic_tools.may_decide(after_result)


def test_a_result_stands_with_the_question_that_it_answers() -> None:
    messages = (
        *asked("How is the weather in Paris?"),
        ChatMessage(role="assistant", tool_calls=(ToolCall("c", "get_weather", '{"city": "Paris"}'),)),
        ChatMessage(role="tool", call_id="c", text='{"sky": "light rain", "high_low": [18, 9]}'),
    )
    (message,) = generic_tools.for_words(messages)
    assert message.role == "user"
    assert message.text.startswith("Context: sky: light rain, high low: 18, 9.\n\nQuestion: How is the weather in Paris?")


def test_a_call_is_read() -> None:
    call = generic_tools.parse_call('{"name": "get_weather", "arguments": {"city": "Paris"}}')
    assert call is not None
    assert (call.name, call.arguments) == ("get_weather", '{"city": "Paris"}')
    assert call.call_id.startswith("call_")


def test_a_call_cut_short_is_given_as_far_as_it_went() -> None:
    call = generic_tools.parse_call('{"name": "get_weather", "arguments": {"city": "Par')
    assert call is not None
    assert (call.name, call.arguments) == ("get_weather", '{"city": "Par')
    assert generic_tools.parse_call('{"name": "get_w') is None
