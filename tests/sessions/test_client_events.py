"""What clients may send, and which error each mistake gets."""

from __future__ import annotations

import base64
import json
import timeit
import typing
from typing import Any

import hypothesis.strategies as st
import pytest
from antiphon.sessions import client_events as ce
from antiphon.sessions.errors import ClientEventError
from antiphon.sessions.item_params import (
    AssistantMessageParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    InputAudioPart,
    InputImagePart,
    InputTextPart,
    ItemReferenceParam,
    OutputAudioPart,
    OutputTextPart,
    SystemMessageParam,
    UserMessageParam,
)
from antiphon.sessions.schema import FunctionChoice, VoiceRef, tool_choice_text, voice_name
from hypothesis import given


def parse(event: Any) -> Any:
    return ce.parse_client_event(json.dumps(event).encode())


def refusal(event: Any) -> ClientEventError:
    raw = event if isinstance(event, bytes) else json.dumps(event).encode()
    with pytest.raises(ClientEventError) as caught:
        ce.parse_client_event(raw)
    return caught.value


def item(**fields: Any) -> dict[str, Any]:
    return {"type": "conversation.item.create", "event_id": "evt_7", "item": fields}


def message(role: str, *content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return item(type="message", role=role, content=list(content), **fields)


def response(**fields: Any) -> dict[str, Any]:
    return {"type": "response.create", "event_id": "evt_7", "response": fields}


VALID: list[tuple[dict[str, Any], type]] = [
    ({"type": "session.update", "session": {"type": "realtime"}}, ce.SessionUpdate),
    ({"type": "input_audio_buffer.append", "audio": "AAAA"}, ce.InputAudioBufferAppend),
    ({"type": "input_audio_buffer.commit"}, ce.InputAudioBufferCommit),
    ({"type": "input_audio_buffer.clear"}, ce.InputAudioBufferClear),
    (message("user", {"type": "input_text", "text": "Hi"}), ce.ConversationItemCreate),
    ({"type": "conversation.item.retrieve", "item_id": "i"}, ce.ConversationItemRetrieve),
    ({"type": "conversation.item.delete", "item_id": "i"}, ce.ConversationItemDelete),
    ({"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": 0}, ce.ConversationItemTruncate),
    ({"type": "response.create"}, ce.ResponseCreate),
    ({"type": "response.cancel"}, ce.ResponseCancel),
    ({"type": "output_audio_buffer.clear"}, ce.OutputAudioBufferClear),
]


def test_every_client_event_is_covered() -> None:
    assert {kind for _, kind in VALID} == set(typing.get_args(ce.ClientEvent))


@pytest.mark.parametrize(("event", "kind"), VALID, ids=[event["type"] for event, _ in VALID])
def test_each_event_is_read_with_and_without_an_id(event: dict[str, Any], kind: type) -> None:
    assert type(parse({**event, "event_id": "evt_1"})) is kind
    assert parse({**event, "event_id": "evt_1"}).event_id == "evt_1"
    assert parse({**event, "event_id": None}).event_id is None


# ---- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b'{"type":"response.create"', b"nonsense", b'{"a":"\\ud800"}', b"[" * 5000])
def test_text_that_is_no_json(raw: bytes) -> None:
    error = refusal(raw)
    assert (error.code, error.param, error.event_id) == ("invalid_json", None, None)


@pytest.mark.parametrize("raw", [b"[]", b"3", b"null", b'"text"'])
def test_json_that_is_no_object(raw: bytes) -> None:
    assert refusal(raw).code == "invalid_value"


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        ({}, "missing_required_parameter", "type"),
        ({"type": "session.destroy"}, "invalid_value", "type"),
        ({"type": 3}, "invalid_value", "type"),
        ({"type": None}, "invalid_value", "type"),
        ({"type": ["response.create"]}, "invalid_value", "type"),
        ({"type": "session.update"}, "missing_required_parameter", "session"),
        ({"type": "session.update", "session": 3}, "invalid_value", "session"),
        ({"type": "input_audio_buffer.append"}, "missing_required_parameter", "audio"),
        ({"type": "input_audio_buffer.append", "audio": 3}, "invalid_value", "audio"),
        ({"type": "input_audio_buffer.commit", "extra": 1}, "unknown_parameter", "extra"),
        ({"type": "input_audio_buffer.commit", "event_id": 3}, "invalid_value", "event_id"),
        ({"type": "conversation.item.delete"}, "missing_required_parameter", "item_id"),
        ({"type": "conversation.item.truncate", "item_id": "i", "content_index": 0}, "missing_required_parameter", "audio_end_ms"),
        (
            {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": -1},
            "invalid_value",
            "audio_end_ms",
        ),
        (
            {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0.5, "audio_end_ms": 1},
            "invalid_value",
            "content_index",
        ),
        (
            {"type": "conversation.item.truncate", "item_id": "i", "content_index": True, "audio_end_ms": 1},
            "invalid_value",
            "content_index",
        ),
        (item(), "missing_required_parameter", "item.type"),
        (item(type="message", content=[]), "missing_required_parameter", "item.role"),
        (item(type="message", role="robot", content=[]), "invalid_value", "item.role"),
        (item(type="message", role="user"), "missing_required_parameter", "item.content"),
        (item(type="item_reference", id="i"), "invalid_value", "item.type"),
        (item(type="mcp_call"), "invalid_value", "item.type"),
        (item(type="function_call_output", call_id="c", output={}), "invalid_value", "item.output"),
        (item(type="function_call_output", output="x"), "missing_required_parameter", "item.call_id"),
        ({**item(), "item": 3}, "invalid_value", "item"),
        (message("user", {"text": "x"}), "missing_required_parameter", "item.content[0].type"),
        (message("user", {"type": "output_text", "text": "x"}), "invalid_value", "item.content[0].type"),
        (message("assistant", {"type": "input_text", "text": "x"}), "invalid_value", "item.content[0].type"),
        (message("system", {"type": "input_audio"}), "invalid_value", "item.content[0].type"),
        (
            message("user", {"type": "text", "text": "x"}, {"type": "text", "text": "x", "shout": 1}),
            "unknown_parameter",
            "item.content[1].shout",
        ),
        (message("user", {"type": "text"}), "missing_required_parameter", "item.content[0].text"),
        (message("user", id="a b"), "invalid_value", "item.id"),
        (message("user", id="a" * 65), "invalid_value", "item.id"),
        (message("user", id=""), "invalid_value", "item.id"),
        (message("user", status="fine"), "invalid_value", "item.status"),
        (response(shout=1), "unknown_parameter", "response.shout"),
        (response(**{"<shout>": 1}), "unknown_parameter", "response.<shout>"),
        (response(conversation="other"), "invalid_value", "response.conversation"),
        (response(output_modalities=[]), "invalid_value", "response.output_modalities"),
        (response(output_modalities=["video"]), "invalid_value", "response.output_modalities"),
        (response(max_output_tokens=0), "invalid_value", "response.max_output_tokens"),
        (response(max_output_tokens=4097), "invalid_value", "response.max_output_tokens"),
        (response(max_output_tokens=True), "invalid_value", "response.max_output_tokens"),
        (response(max_output_tokens="infinite"), "invalid_value", "response.max_output_tokens"),
        (response(metadata={str(n): "x" for n in range(17)}), "invalid_value", "response.metadata"),
        (response(metadata={"topic": "x" * 513}), "invalid_value", "response.metadata.topic"),
        (response(metadata={"k" * 65: "x"}), "invalid_value", "response.metadata." + "k" * 65),
        (response(metadata={"topic": 1}), "invalid_value", "response.metadata.topic"),
        (response(input=[{"type": "item_reference"}]), "missing_required_parameter", "response.input[0].id"),
        (response(tools=[{"type": "function"}]), "missing_required_parameter", "response.tools[0].name"),
        (response(tools=[{"type": "function", "name": "a b"}]), "invalid_value", "response.tools[0].name"),
        (response(tools=[{"type": "mcp", "server_label": "x"}]), "invalid_value", "response.tools[0].type"),
        (response(tools=[{"type": "function", "name": "f", "parameters": {"x": 10**30}}]), "invalid_value", "response.tools[0].parameters"),
        (response(tool_choice="maybe"), "invalid_value", "response.tool_choice"),
        (response(tool_choice={"type": "mcp", "server_label": "x"}), "invalid_value", "response.tool_choice.type"),
        (response(audio={"output": {"format": {"type": "audio/mp3"}}}), "invalid_value", "response.audio.output.format.type"),
        (
            response(audio={"output": {"format": {"type": "audio/pcm", "rate": 16000}}}),
            "invalid_value",
            "response.audio.output.format.rate",
        ),
        (response(audio={"output": {"voice": ""}}), "invalid_value", "response.audio.output.voice"),
        (response(audio={"output": {"voice": {"name": "x"}}}), "missing_required_parameter", "response.audio.output.voice.id"),
    ],
)
def test_each_mistake_gets_its_code_and_the_path_to_it(event: dict[str, Any], code: str, param: str) -> None:
    error = refusal({**event, "event_id": event.get("event_id", "evt_7")})
    assert (error.code, error.param) == (code, param)
    assert error.type == "invalid_request_error"
    assert error.message
    if isinstance(event.get("event_id", ""), str):
        assert error.event_id == "evt_7"


def test_an_unknown_type_lists_the_known_ones() -> None:
    text = refusal({"type": "foo"}).message
    assert all(event["type"] in text for event, _ in VALID)


def test_messages_name_the_parameter_as_the_protocol_does() -> None:
    assert refusal(response(shout=1)).message == "Unknown parameter: 'response.shout'."
    assert refusal({"type": "session.update"}).message == "Missing required parameter: 'session'."


def test_an_endless_event_id_is_cut_in_the_answer() -> None:
    error = refusal({"type": "response.cancel", "event_id": "x" * 100_000})
    assert (error.code, error.param) == ("invalid_value", "event_id")
    assert error.event_id == "x" * 512


def test_error_messages_stay_short_whatever_the_client_sends() -> None:
    for event in ({"type": "y" * 100_000}, {"type": "response.cancel", "z" * 100_000: 1}, response(tool_choice="w" * 100_000)):
        error = refusal(event)
        assert len(error.message) < 1_000
        assert len(error.param or "") <= 512


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.sampled_from(["type", "id"]), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from([event for event, _ in VALID]),
    st.sampled_from(["type", "item", "response", "audio", "item_id", "x", "event_id"]),
    JSON,
)
def test_nothing_but_the_documented_error_comes_out(event: dict[str, Any], key: str, value: Any) -> None:
    code = None
    try:
        parse({**event, key: value})
    except ClientEventError as error:
        code = error.code
    assert code in {None, "invalid_json", "invalid_value", "missing_required_parameter", "unknown_parameter"}


@given(st.binary(max_size=60))
def test_no_bytes_break_the_parser(raw: bytes) -> None:
    refusal(raw)


# ---- items ----------------------------------------------------------------------------------------------------------


def test_content_by_role_with_beta_names() -> None:
    user = parse(
        message(
            "user",
            {"type": "text", "text": "a"},
            {"type": "input_text", "text": "b"},
            {"type": "audio", "audio": "AAAA"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
        )
    ).item
    assert isinstance(user, UserMessageParam)
    assert [type(part) for part in user.content] == [InputTextPart, InputTextPart, InputAudioPart, InputImagePart]
    assert [part.type for part in user.content] == ["input_text", "input_text", "input_audio", "input_image"]
    assistant = parse(message("assistant", {"type": "text", "text": "a"}, {"type": "audio", "transcript": "b"})).item
    assert isinstance(assistant, AssistantMessageParam)
    assert [type(part) for part in assistant.content] == [OutputTextPart, OutputAudioPart]
    system = parse(message("system", {"type": "text", "text": "a"})).item
    assert isinstance(system, SystemMessageParam)
    assert system.content[0].type == "input_text"


def test_items_of_functions_and_their_ids() -> None:
    call = parse(item(id="call-item_1", object="realtime.item", status="completed", type="function_call", name="f", arguments="{}")).item
    assert isinstance(call, FunctionCallParam)
    assert (call.id, call.call_id) == ("call-item_1", None)
    output = parse(item(type="function_call_output", call_id="c", output="")).item
    assert isinstance(output, FunctionCallOutputParam)


def test_previous_item_id() -> None:
    assert parse({**message("user"), "previous_item_id": "root"}).previous_item_id == "root"
    assert parse(message("user")).previous_item_id is None


def test_whole_numbers_may_be_written_as_floats() -> None:
    event = parse({"type": "conversation.item.truncate", "item_id": "i", "content_index": 0.0, "audio_end_ms": 1500.0})
    assert (event.content_index, event.audio_end_ms) == (0, 1500)
    assert isinstance(event.audio_end_ms, int)


# ---- responses ------------------------------------------------------------------------------------------------------


def test_a_response_with_everything() -> None:
    params = parse(
        response(
            conversation="none",
            input=[{"type": "item_reference", "id": "i_1"}, message("user", {"type": "input_text", "text": "x"})["item"]],
            instructions="Be brief.",
            output_modalities=["text"],
            audio={"output": {"format": {"type": "audio/pcmu"}, "voice": {"id": "v_1"}}},
            tools=[{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}],
            tool_choice={"type": "function", "name": "f"},
            parallel_tool_calls=False,
            reasoning={"effort": "low"},
            prompt={"id": "p", "variables": {"city": "Bern"}},
            max_output_tokens=100,
            metadata={"topic": "x"},
            temperature=0.8,
        )
    ).response
    assert params.out_of_band
    assert isinstance(params.input[0], ItemReferenceParam)
    assert params.audio.output.format.sample_rate == 8000
    assert params.audio.output.voice == VoiceRef(id="v_1")
    assert voice_name(params.audio.output.voice) == "v_1"
    assert params.tool_choice == FunctionChoice(name="f")
    assert tool_choice_text(params.tool_choice) == "function:f"
    assert params.tools[0].wire() == {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("given_", "read"),
    [(["audio"], ["audio"]), (["text"], ["text"]), (["text", "audio"], ["audio"]), (["audio", "text"], ["audio"])],
)
def test_both_modalities_mean_audio(given_: list[str], read: list[str]) -> None:
    assert parse(response(output_modalities=given_)).response.output_modalities == read


def test_an_empty_input_is_not_an_absent_one() -> None:
    assert parse(response(input=[])).response.input == []
    assert parse(response()).response.input is None
    assert parse({"type": "response.create", "response": None}).response is None


# ---- audio ----------------------------------------------------------------------------------------------------------


def test_audio_comes_back_as_it_was() -> None:
    pcm = bytes(range(256))
    assert ce.decode_audio(base64.b64encode(pcm).decode(), None) == pcm
    assert ce.decode_audio("", None) == b""


@pytest.mark.parametrize("text", ["AAA", "A A=", "AAAA\n", "AA==AA==", "é", "-_-_", "=", "!!!!"])
def test_text_that_is_no_base64(text: str) -> None:
    with pytest.raises(ClientEventError) as caught:
        ce.decode_audio(text, "evt_1")
    error = caught.value
    assert (error.code, error.param, error.event_id) == ("invalid_value", "audio", "evt_1")


def test_too_much_audio_at_once() -> None:
    with pytest.raises(ClientEventError, match="15 MiB"):
        ce.decode_audio("A" * (21 * 1024 * 1024), None)


def test_reading_20_ms_of_audio_is_cheap() -> None:
    raw = json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(960)).decode()}).encode()
    seconds = min(timeit.repeat(lambda: ce.parse_client_event(raw), number=2_000, repeat=5)) / 2_000
    assert seconds < 40e-6  # about 1.5 us on a quiet core
