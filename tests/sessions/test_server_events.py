"""Every server event, as the SDK's own types see it."""

from __future__ import annotations

import base64
import json
import timeit
import typing
from typing import Any

import pytest
from antiphon.sessions import server_events as se
from antiphon.sessions.session_config import default_config
from openai._models import construct_type_unchecked
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

SDK: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)

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
    "conversation_id": None,
    "output_modalities": ["audio"],
    "max_output_tokens": "inf",
    "audio": {"output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "alloy"}},
    "metadata": {"topic": "x"},
    "usage": {"total_tokens": 3, "input_tokens": 1, "output_tokens": 2, "input_token_details": {"text_tokens": 1}},
}
SESSION = default_config("gpt-realtime").wire("sess_1", 1_800_000_000)
PART = {"response_id": "resp_1", "item_id": "item_1", "output_index": 0, "content_index": 0}
CALL = {"response_id": "resp_1", "item_id": "item_1", "output_index": 0, "call_id": "call_1"}
ERROR = {"type": "server_error", "code": "engine_failed", "message": "No.", "param": None}
PCM = bytes(range(256)) * 4

EVENTS: list[se.ServerEvent] = [
    se.SessionCreated(event_id="e", session=SESSION),
    se.SessionUpdated(event_id="e", session=default_config("whisper", "transcription").wire("sess_2", 1)),
    se.ConversationCreated(event_id="e", conversation={"id": "conv_1", "object": "realtime.conversation"}),
    se.ConversationItemAdded(event_id="e", item=ITEM),
    se.ConversationItemDone(event_id="e", item=ITEM, previous_item_id="item_0"),
    se.ConversationItemRetrieved(event_id="e", item=ITEM),
    se.ConversationItemDeleted(event_id="e", item_id="item_1"),
    se.ConversationItemTruncated(event_id="e", item_id="item_1", content_index=0, audio_end_ms=500),
    se.RateLimitsUpdated(event_id="e", rate_limits=[{"name": "requests", "limit": 9, "remaining": 8, "reset_seconds": 1.5}]),
    se.ErrorEvent(event_id="e", error=se.ErrorBody(type="invalid_request_error", message="Wrong.")),
    se.InputTranscriptionDelta(event_id="e", item_id="i", content_index=0, delta="Hel"),
    se.InputTranscriptionCompleted(
        event_id="e", item_id="i", content_index=0, transcript="Hello.", usage={"type": "duration", "seconds": 1.5}
    ),
    se.InputTranscriptionFailed(event_id="e", item_id="i", content_index=0, error=ERROR),
    se.InputTranscriptionSegment(event_id="e", item_id="i", content_index=0, id="seg", text="Hi", speaker="A", start=0.0, end=1.5),
    se.InputAudioBufferCommitted(event_id="e", item_id="i"),
    se.InputAudioBufferCleared(event_id="e"),
    se.InputAudioBufferSpeechStarted(event_id="e", item_id="i", audio_start_ms=10),
    se.InputAudioBufferSpeechStopped(event_id="e", item_id="i", audio_end_ms=900),
    se.InputAudioBufferTimeoutTriggered(event_id="e", item_id="i", audio_start_ms=0, audio_end_ms=900),
    se.ResponseCreated(event_id="e", response={**RESPONSE, "status": "in_progress", "output": []}),
    se.ResponseDone(event_id="e", response=RESPONSE),
    se.OutputItemAdded(event_id="e", response_id="resp_1", output_index=0, item=ITEM),
    se.OutputItemDone(event_id="e", response_id="resp_1", output_index=0, item=ITEM),
    se.ContentPartAdded(event_id="e", part={"type": "audio", "transcript": ""}, **PART),
    se.ContentPartDone(event_id="e", part={"type": "text", "text": "Hello."}, **PART),
    se.OutputTextDelta(event_id="e", delta="Hé", **PART),
    se.OutputTextDone(event_id="e", text="Héllo", **PART),
    se.OutputAudioDelta(event_id="e", pcm=PCM, **PART),
    se.OutputAudioDone(event_id="e", **PART),
    se.OutputAudioTranscriptDelta(event_id="e", delta="Hel", **PART),
    se.OutputAudioTranscriptDone(event_id="e", transcript="Hello.", **PART),
    se.FunctionCallArgumentsDelta(event_id="e", delta='{"a"', **CALL),
    se.FunctionCallArgumentsDone(event_id="e", name="f", arguments='{"a":1}', **CALL),
    se.OutputAudioBufferStarted(event_id="e", response_id="resp_1"),
    se.OutputAudioBufferStopped(event_id="e", response_id="resp_1"),
    se.OutputAudioBufferCleared(event_id="e", response_id="resp_1"),
]

EXTENSIONS: list[se.ServerEvent] = [
    se.SessionExpiring(event_id="e", message="Soon.", seconds=60.0),
    se.SessionDraining(event_id="e", message="Soon.", seconds=30.0),
]


def test_there_is_an_instance_of_each_event() -> None:
    assert {type(event) for event in EVENTS + EXTENSIONS} == set(typing.get_args(se.ServerEvent))


@pytest.mark.parametrize("event", EXTENSIONS, ids=se.event_type)
def test_the_sdks_parsing_lets_our_extensions_through(event: se.ServerEvent) -> None:
    """The SDK reads events from the wire leniently: a name that it does not know must not break it."""
    data = json.loads(se.encode_event(event))
    seen = construct_type_unchecked(value=data, type_=RealtimeServerEvent)
    assert seen.type == se.event_type(event)


@pytest.mark.parametrize("event", EVENTS, ids=se.event_type)
def test_the_sdk_reads_every_event(event: se.ServerEvent) -> None:
    raw = se.encode_event(event)
    seen = SDK.validate_json(raw)
    assert seen.type == se.event_type(event)
    assert seen.event_id == "e"
    # The union falls back to other members unless the right class was chosen.
    assert type(seen).model_fields["type"].annotation.__args__ == (se.event_type(event),)
    assert set(type(seen).model_fields) >= set(json.loads(raw))


def test_all_names_are_distinct() -> None:
    assert len({se.event_type(event) for event in EVENTS + EXTENSIONS}) == len(EVENTS + EXTENSIONS)


@pytest.mark.parametrize(
    ("event", "nulls"),
    [
        (se.ConversationItemAdded(event_id="e", item=ITEM), ["previous_item_id"]),
        (se.InputAudioBufferCommitted(event_id="e", item_id="i"), ["previous_item_id"]),
    ],
)
def test_nulls_that_clients_look_for_are_sent(event: se.ServerEvent, nulls: list[str]) -> None:
    data = json.loads(se.encode_event(event))
    assert all(data[name] is None for name in nulls)


def test_an_error_has_all_its_fields() -> None:
    event = se.ErrorEvent(event_id="e", error=se.ErrorBody(type="server_error", message="Wrong."))
    assert json.loads(se.encode_event(event))["error"] == {
        "type": "server_error",
        "code": None,
        "message": "Wrong.",
        "param": None,
        "event_id": None,
    }


def test_absent_log_probabilities_are_left_out() -> None:
    event = se.InputTranscriptionDelta(event_id="e", item_id="i", content_index=0, delta="x")
    assert json.loads(se.encode_event(event)) == {
        "type": "conversation.item.input_audio_transcription.delta",
        "event_id": "e",
        "item_id": "i",
        "content_index": 0,
        "delta": "x",
    }


@pytest.mark.parametrize("pcm", [b"", b"\x00", b"\x00\x01", PCM])
def test_an_audio_delta_is_the_json_of_its_fields(pcm: bytes) -> None:
    event = se.OutputAudioDelta(event_id="event_1", response_id="resp_1", item_id="item_1", output_index=2, content_index=1, pcm=pcm)
    assert json.loads(se.encode_event(event)) == {
        "type": "response.output_audio.delta",
        "event_id": "event_1",
        "response_id": "resp_1",
        "item_id": "item_1",
        "output_index": 2,
        "content_index": 1,
        "delta": base64.b64encode(pcm).decode(),
    }


def test_encoding_20_ms_of_audio_is_cheap() -> None:
    event = se.OutputAudioDelta(event_id="event_1" * 3, pcm=bytes(960), **PART)
    seconds = min(timeit.repeat(lambda: se.encode_event(event), number=2_000, repeat=5)) / 2_000
    assert seconds < 20e-6  # about 1 us on a quiet core
