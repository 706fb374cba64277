"""The beta shape at the edge: client events in, server events out."""

from __future__ import annotations

import base64
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from antiphon.gateway.beta import BetaShim
from antiphon.sessions import server_events as se
from antiphon.sessions.client_events import ResponseCreate, SessionUpdate, parse_client_event
from antiphon.sessions.errors import ClientEventError
from antiphon.sessions.session_config import SemanticVad, default_config
from hypothesis import given
from openai.types.beta.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

SDK: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
SHIM = BetaShim()
CONFIG = default_config("gpt-4o-realtime-preview")

ITEM = {
    "id": "item_1",
    "object": "realtime.item",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_audio", "transcript": "Hello."}],
}
RESPONSE = {
    "id": "resp_1",
    "object": "realtime.response",
    "status": "completed",
    "status_details": None,
    "output": [ITEM],
    "conversation_id": "conv_1",
    "output_modalities": ["audio"],
    "max_output_tokens": "inf",
    "audio": {"output": {"format": {"type": "audio/pcmu"}, "voice": "alloy"}},
    "metadata": None,
    "usage": None,
}
PART = {"response_id": "resp_1", "item_id": "item_1", "output_index": 0, "content_index": 0}


def inbound(**event: Any) -> Any:
    return parse_client_event(SHIM.inbound(json.dumps(event).encode()))


def outbound(event: se.ServerEvent) -> dict[str, Any]:
    (data,) = SHIM.outbound(event)
    return dict(json.loads(data))


# ---- from the client ------------------------------------------------------------------------------------------------


def test_a_flat_session_is_nested() -> None:
    event = inbound(
        type="session.update",
        event_id="evt_1",
        session={
            "modalities": ["text", "audio"],
            "instructions": "Be kind.",
            "voice": "shimmer",
            "input_audio_format": "g711_ulaw",
            "output_audio_format": "g711_alaw",
            "input_audio_transcription": {"model": "whisper-1"},
            "input_audio_noise_reduction": {"type": "near_field"},
            "turn_detection": {"type": "semantic_vad", "eagerness": "low"},
            "tools": [{"type": "function", "name": "f"}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "temperature": 0.8,
            "speed": 1.1,
            "max_response_output_tokens": 100,
        },
    )
    assert isinstance(event, SessionUpdate)
    assert event.event_id == "evt_1"
    config = CONFIG.merge(event.session)
    assert config.audio.input.format.type == "audio/pcmu"
    assert config.audio.output.format.type == "audio/pcma"
    assert config.audio.output.voice == "shimmer"
    assert config.audio.output.speed == 1.1
    assert config.audio.input.turn_detection == SemanticVad(eagerness="low")
    assert config.audio.input.transcription is not None
    assert config.output_modalities == ["audio"]
    assert (config.max_output_tokens, config.temperature, config.instructions) == (100, 0.8, "Be kind.")


@pytest.mark.parametrize("off", [None, {"type": "none"}])
def test_turn_detection_off(off: Any) -> None:
    assert CONFIG.merge(inbound(type="session.update", session={"turn_detection": off}).session).audio.input.turn_detection is None


def test_a_session_in_todays_shape_passes() -> None:
    session = {"type": "realtime", "audio": {"output": {"voice": "ash"}}, "speed": 1.2}
    config = CONFIG.merge(inbound(type="session.update", session=session).session)
    assert (config.audio.output.voice, config.audio.output.speed) == ("ash", 1.2)


def test_both_shapes_at_once_and_one_is_wrong() -> None:
    session = inbound(type="session.update", session={"audio": 5, "voice": "ash"}).session
    with pytest.raises(ClientEventError):
        CONFIG.merge(session)


def test_a_transcription_session_is_updated() -> None:
    event = inbound(
        type="transcription_session.update",
        session={"modalities": ["text"], "input_audio_format": "pcm16", "input_audio_transcription": {"language": "en"}},
    )
    config = default_config("whisper-1", "transcription").merge(event.session)
    assert config.audio.input.transcription is not None
    assert config.audio.input.transcription.language == "en"


def test_response_parameters() -> None:
    event = inbound(
        type="response.create",
        response={
            "modalities": ["text"],
            "voice": "ash",
            "output_audio_format": "pcm16",
            "max_response_output_tokens": 5,
            "conversation": "none",
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        },
    )
    assert isinstance(event, ResponseCreate)
    assert event.response is not None
    assert event.response.output_modalities == ["text"]
    assert event.response.max_output_tokens == 5
    assert event.response.audio is not None
    assert event.response.audio.output is not None
    assert event.response.audio.output.voice == "ash"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"type":5}',
        b'{"type":"session.update"}',
        b'{"type":"session.update","session":5}',
        b'{"type":"response.create","response":null}',
        b'{"type":"session.update","session":{"tools":[{"parameters":{"x":' + b"9" * 40 + b"}}]}}",
        b'{"type":"session.update","session":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    ],
)
def test_mistakes_are_left_to_the_session(raw: bytes) -> None:
    assert isinstance(SHIM.inbound(raw), bytes)


def test_other_events_are_not_touched() -> None:
    raw = b'{ "type" : "input_audio_buffer.append", "audio":"AAAA" }'
    assert SHIM.inbound(raw) is raw


@given(st.binary(max_size=40), st.sampled_from([b"session.update", b"response.create", b"transcription_session.update"]))
def test_no_bytes_break_the_shim(raw: bytes, kind: bytes) -> None:
    SHIM.inbound(raw)
    SHIM.inbound(b'{"type":"' + kind + b'","session":' + raw + b"}")


# ---- to the client --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (se.SessionCreated(event_id="e", session=CONFIG.wire("sess_1", 1)), "session.created"),
        (se.ConversationItemAdded(event_id="e", item=ITEM), "conversation.item.created"),
        (se.ResponseCreated(event_id="e", response=RESPONSE), "response.created"),
        (se.ResponseDone(event_id="e", response=RESPONSE), "response.done"),
        (se.OutputItemAdded(event_id="e", response_id="resp_1", output_index=0, item=ITEM), "response.output_item.added"),
        (se.ContentPartAdded(event_id="e", part={"type": "audio", "transcript": ""}, **PART), "response.content_part.added"),
        (se.OutputTextDelta(event_id="e", delta='"hé', **PART), "response.text.delta"),
        (se.OutputTextDone(event_id="e", text="hé", **PART), "response.text.done"),
        (se.OutputAudioDelta(event_id="e", pcm=b"\x00\x01", **PART), "response.audio.delta"),
        (se.OutputAudioDone(event_id="e", **PART), "response.audio.done"),
        (se.OutputAudioTranscriptDelta(event_id="e", delta="hi", **PART), "response.audio_transcript.delta"),
        (se.OutputAudioTranscriptDone(event_id="e", transcript="hi", **PART), "response.audio_transcript.done"),
        (se.InputAudioBufferSpeechStarted(event_id="e", item_id="i", audio_start_ms=1), "input_audio_buffer.speech_started"),
    ],
)
def test_the_sdks_beta_types_read_it(event: se.ServerEvent, name: str) -> None:
    data = outbound(event)
    assert data["type"] == name
    assert data["event_id"] == "e"
    seen = SDK.validate_python(data)
    assert seen.type == name


def test_an_audio_delta() -> None:
    data = outbound(se.OutputAudioDelta(event_id="e", pcm=b"\x00\x01", **PART))
    assert data == {"type": "response.audio.delta", "event_id": "e", "delta": base64.b64encode(b"\x00\x01").decode(), **PART}


def test_the_flat_session() -> None:
    config = CONFIG.merge({"tool_choice": {"type": "function", "name": "f"}, "audio": {"output": {"voice": {"id": "v_1"}}}})
    session = outbound(se.SessionUpdated(event_id="e", session=config.wire("sess_1", 1)))["session"]
    assert session["modalities"] == ["audio", "text"]
    assert (session["voice"], session["input_audio_format"]) == ("v_1", "pcm16")
    assert session["turn_detection"]["type"] == "server_vad"
    assert session["max_response_output_tokens"] == "inf"
    assert session["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert "audio" not in session


def test_transcription_sessions_have_their_own_events() -> None:
    wire = default_config("whisper-1", "transcription").wire("sess_1", 1)
    assert outbound(se.SessionCreated(event_id="e", session=wire))["type"] == "transcription_session.created"
    data = outbound(se.SessionUpdated(event_id="e", session=wire))
    assert data["type"] == "transcription_session.updated"
    assert data["session"]["input_audio_transcription"] == {"model": "whisper-1"}
    assert "voice" not in data["session"]


def test_items_are_created_once_and_named_as_then() -> None:
    assert SHIM.outbound(se.ConversationItemDone(event_id="e", item=ITEM)) == []
    assert SHIM.encode(se.ConversationItemDone(event_id="e", item=ITEM)) is None
    item = outbound(se.ConversationItemAdded(event_id="e", item=ITEM))["item"]
    assert item["content"] == [{"type": "audio", "transcript": "Hello."}]
    assert ITEM["content"] == [{"type": "output_audio", "transcript": "Hello."}]
    call = {"id": "i", "type": "function_call", "name": "f", "arguments": "{}"}
    assert outbound(se.OutputItemDone(event_id="e", response_id="r", output_index=0, item=call))["item"] == call


def test_the_flat_response() -> None:
    response = outbound(se.ResponseDone(event_id="e", response=RESPONSE))["response"]
    assert (response["modalities"], response["voice"], response["output_audio_format"]) == (["audio", "text"], "alloy", "g711_ulaw")
    assert response["output"][0]["content"][0]["type"] == "audio"
    assert not {"audio", "output_modalities"} & set(response)


@pytest.mark.parametrize(
    ("param", "beta"),
    [
        ("session.audio.output.voice", "session.voice"),
        ("session.audio.input.turn_detection.threshold", "session.turn_detection.threshold"),
        ("response.output_modalities", "response.modalities"),
        ("session.instructions", "session.instructions"),
        (None, None),
    ],
)
def test_an_errors_path_is_the_clients(param: str | None, beta: str | None) -> None:
    body = se.ErrorBody(type="invalid_request_error", code="invalid_value", message=f"Invalid value for '{param}'.", param=param)
    error = outbound(se.ErrorEvent(event_id="e", error=body))["error"]
    assert error["param"] == beta
    assert error["message"] == f"Invalid value for '{beta}'."
