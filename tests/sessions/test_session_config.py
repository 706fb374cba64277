"""The session object: defaults, `session.update` as a merge, the echo."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from antiphon.sessions.errors import ClientEventError
from antiphon.sessions.session_config import SemanticVad, ServerVad, SessionConfig, default_config
from hypothesis import given
from openai.types.realtime import RealtimeSessionCreateRequest, RealtimeTranscriptionSessionCreateRequest

CONFIG = default_config("our-model", instructions="Be kind.")


def heard(**fields: Any) -> dict[str, Any]:
    return {"audio": {"input": fields}}


def spoken(**fields: Any) -> dict[str, Any]:
    return {"audio": {"output": fields}}


def vad(**fields: Any) -> dict[str, Any]:
    return heard(turn_detection=fields)


def turn_detection(config: SessionConfig) -> ServerVad | SemanticVad | None:
    return config.audio.input.turn_detection


def refusal(patch: dict[str, Any], config: SessionConfig = CONFIG, **options: Any) -> ClientEventError:
    before = config.model_copy(deep=True)
    with pytest.raises(ClientEventError) as caught:
        config.merge(patch, **options)
    assert config == before
    return caught.value


# ---- defaults -------------------------------------------------------------------------------------------------------


def test_the_defaults_are_the_protocols() -> None:
    detection = turn_detection(CONFIG)
    assert isinstance(detection, ServerVad)
    assert (detection.threshold, detection.prefix_padding_ms, detection.silence_duration_ms) == (0.5, 300, 500)
    assert (detection.create_response, detection.interrupt_response, detection.idle_timeout_ms) == (True, True, None)
    assert CONFIG.output_modalities == ["audio"]
    assert CONFIG.speaks
    assert CONFIG.max_output_tokens == "inf"
    assert CONFIG.audio.input.format.sample_rate == 24_000
    assert CONFIG.audio.output.speed == 1.0


@pytest.mark.parametrize(("eagerness", "ms"), [("low", 8000), ("medium", 4000), ("auto", 4000), ("high", 2000)])
def test_eagerness_is_a_time_out(eagerness: Any, ms: int) -> None:
    assert SemanticVad(eagerness=eagerness).timeout_ms == ms


def test_a_transcription_session_writes_down() -> None:
    config = default_config("whisper-1", "transcription", turn_detection=None)
    assert config.audio.input.transcription is not None
    assert config.audio.input.transcription.model == "whisper-1"
    assert turn_detection(config) is None


# ---- merging --------------------------------------------------------------------------------------------------------


def test_an_empty_patch_changes_nothing() -> None:
    for patch in ({}, {"type": "realtime"}, {"audio": {}}, {"audio": None}, {"audio": {"input": None, "output": {}}}):
        assert CONFIG.merge(patch) == CONFIG


def test_only_present_keys_change() -> None:
    config = CONFIG.merge({"output_modalities": ["text"]}).merge(spoken(voice="ash")).merge(heard(format={"type": "audio/pcmu"}))
    assert config.instructions == "Be kind."
    assert config.output_modalities == ["text"]
    assert config.audio.output.voice == "ash"
    assert config.audio.input.format.type == "audio/pcmu"
    assert config.audio.output.format.type == "audio/pcm"
    assert turn_detection(config) == ServerVad()


def test_null_and_empty_clear() -> None:
    full = CONFIG.merge(
        {
            "tools": [{"type": "function", "name": "f"}],
            "tool_choice": {"type": "function", "name": "f"},
            "max_output_tokens": 10,
            "include": ["item.input_audio_transcription.logprobs"],
            "audio": {"input": {"transcription": {"model": "x"}, "noise_reduction": {"type": "far_field"}}, "output": {"speed": 1.5}},
        }
    )
    assert full.merge({"tools": []}).tools == full.merge({"tools": None}).tools == []
    assert full.merge({"tool_choice": None}).tool_choice == "auto"
    assert full.merge({"max_output_tokens": None}).max_output_tokens == "inf"
    assert full.merge({"instructions": ""}).instructions == full.merge({"instructions": None}).instructions == ""
    assert full.merge({"include": None}).include is None
    assert full.merge(heard(transcription=None)).audio.input.transcription is None
    assert full.merge(heard(noise_reduction=None)).audio.input.noise_reduction is None
    assert full.merge(heard(format=None)).audio.input.format.type == "audio/pcm"
    assert full.merge(spoken(speed=None)).audio.output.speed == 1.0
    assert full.merge(spoken(voice=None)).audio.output.voice == full.audio.output.voice
    assert turn_detection(full.merge(heard(turn_detection=None))) is None


def test_turn_detection_without_a_type_keeps_the_type() -> None:
    config = CONFIG.merge(vad(threshold=0.8))
    assert turn_detection(config) == ServerVad(threshold=0.8)
    semantic = config.merge(vad(type="semantic_vad", eagerness="low"))
    assert turn_detection(semantic) == SemanticVad(eagerness="low")
    assert turn_detection(semantic.merge(vad(create_response=False))) == SemanticVad(eagerness="low", create_response=False)


def test_turn_detection_of_another_type_replaces_the_object() -> None:
    config = CONFIG.merge(vad(threshold=0.8, interrupt_response=False)).merge(vad(type="semantic_vad"))
    assert turn_detection(config) == SemanticVad()
    assert turn_detection(config.merge(vad(type="server_vad"))) == ServerVad()


def test_turn_detection_of_the_same_type_keeps_the_rest() -> None:
    config = CONFIG.merge(vad(threshold=0.8)).merge(vad(type="server_vad", silence_duration_ms=200))
    assert turn_detection(config) == ServerVad(threshold=0.8, silence_duration_ms=200)
    assert turn_detection(config.merge(vad(threshold=None))) == ServerVad(silence_duration_ms=200)


def test_turn_detection_that_is_off_needs_a_type() -> None:
    error = refusal(vad(threshold=0.8), CONFIG.merge(heard(turn_detection=None)))
    assert (error.code, error.param) == ("missing_required_parameter", "session.audio.input.turn_detection.type")


def test_transcription_is_merged_key_by_key() -> None:
    config = CONFIG.merge(heard(transcription={"model": "x", "language": "de"})).merge(heard(transcription={"language": "en"}))
    assert config.audio.input.transcription is not None
    assert (config.audio.input.transcription.model, config.audio.input.transcription.language) == ("x", "en")


def test_formats_without_a_rate_and_g711() -> None:
    assert CONFIG.merge(heard(format={"type": "audio/pcm"})) == CONFIG
    phone = CONFIG.merge(heard(format={"type": "audio/pcma"})).merge(heard(format={"type": "audio/pcm", "rate": 24000}))
    assert phone == CONFIG
    assert CONFIG.merge(spoken(format={"type": "audio/pcmu", "rate": 8000})).audio.output.format.sample_rate == 8_000


def test_what_stock_clients_send_is_accepted() -> None:
    config = CONFIG.merge(
        {
            "type": "realtime",
            "model": "gpt-realtime-2.1",
            "tracing": "auto",
            "tool_choice": "auto",
            "tools": [{"type": "function", "name": "look_up", "description": "d", "parameters": {"type": "object", "properties": {}}}],
            "output_modalities": ["audio"],
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "transcription": {"model": "gpt-4o-mini-transcribe"},
                    "turn_detection": {"type": "semantic_vad", "interrupt_response": True},
                },
                "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "ash", "speed": 1},
            },
        }
    )
    assert config.model == "our-model"
    assert config.tracing == "auto"
    assert config.audio.output.voice_name == "ash"
    assert config.wire("s", 1)["audio"]["input"]["turn_detection"]["interrupt_response"] is True


def test_tracing_stays_once_it_is_on() -> None:
    config = CONFIG.merge({"tracing": {"workflow_name": "w"}})
    assert config.merge({"tracing": "auto"}).merge({"tracing": None}).tracing == config.tracing


def test_the_voice_is_locked_after_the_first_audio() -> None:
    config = CONFIG.merge(spoken(voice="ash"))
    error = refusal(spoken(voice="coral"), config, voice_locked=True)
    assert (error.code, error.param) == ("cannot_update_voice", "session.audio.output.voice")
    assert config.merge(spoken(voice="ash", speed=1.2), voice_locked=True).audio.output.speed == 1.2
    assert config.merge(spoken(voice={"id": "ash"}), voice_locked=True).audio.output.voice_name == "ash"


# ---- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "code", "param"),
    [
        ({"x": 1}, "unknown_parameter", "session.x"),
        ({"x": None}, "unknown_parameter", "session.x"),
        ({"voice": "ash"}, "unknown_parameter", "session.voice"),
        ({"type": "transcription"}, "invalid_value", "session.type"),
        ({"model": 5}, "invalid_value", "session.model"),
        ({"audio": 5}, "invalid_value", "session.audio"),
        ({"audio": {"x": {}}}, "unknown_parameter", "session.audio.x"),
        (heard(x=1), "unknown_parameter", "session.audio.input.x"),
        (vad(type="loud_vad"), "invalid_value", "session.audio.input.turn_detection.type"),
        (vad(threshold=1.5), "invalid_value", "session.audio.input.turn_detection.threshold"),
        (vad(threshold="high"), "invalid_value", "session.audio.input.turn_detection.threshold"),
        (vad(threshold=float("nan")), "invalid_value", "session.audio.input.turn_detection.threshold"),
        (vad(eagerness="low"), "unknown_parameter", "session.audio.input.turn_detection.eagerness"),
        (vad(type="semantic_vad", threshold=0.5), "unknown_parameter", "session.audio.input.turn_detection.threshold"),
        (vad(type="semantic_vad", eagerness="very"), "invalid_value", "session.audio.input.turn_detection.eagerness"),
        (vad(silence_duration_ms=-1), "invalid_value", "session.audio.input.turn_detection.silence_duration_ms"),
        (vad(create_response="yes"), "invalid_value", "session.audio.input.turn_detection.create_response"),
        (vad(idle_timeout_ms=4999), "invalid_value", "session.audio.input.turn_detection.idle_timeout_ms"),
        (vad(idle_timeout_ms=30001), "invalid_value", "session.audio.input.turn_detection.idle_timeout_ms"),
        (heard(turn_detection="server_vad"), "invalid_value", "session.audio.input.turn_detection"),
        (heard(format={"type": "pcm16"}), "invalid_value", "session.audio.input.format.type"),
        (heard(format={"type": "audio/pcm", "rate": 16000}), "invalid_value", "session.audio.input.format.rate"),
        (heard(noise_reduction={}), "missing_required_parameter", "session.audio.input.noise_reduction.type"),
        (heard(transcription={"volume": 11}), "unknown_parameter", "session.audio.input.transcription.volume"),
        (spoken(speed=0.1), "invalid_value", "session.audio.output.speed"),
        (spoken(speed=1.6), "invalid_value", "session.audio.output.speed"),
        (spoken(voice=7), "invalid_value", "session.audio.output.voice"),
        ({"output_modalities": ["audio", "video"]}, "invalid_value", "session.output_modalities"),
        ({"max_output_tokens": 5000}, "invalid_value", "session.max_output_tokens"),
        ({"truncation": "never"}, "invalid_value", "session.truncation"),
        ({"truncation": {"type": "retention_ratio", "retention_ratio": 2}}, "invalid_value", "session.truncation.retention_ratio"),
        ({"tools": [{"type": "mcp", "server_label": "s"}]}, "invalid_value", "session.tools[0].type"),
        ({"tools": [{"type": "function"}]}, "missing_required_parameter", "session.tools[0].name"),
        ({"tools": [{"type": "function", "name": "a.b"}]}, "invalid_value", "session.tools[0].name"),
        ({"tools": [{"type": "function", "name": "f", "parameters": "{}"}]}, "invalid_value", "session.tools[0].parameters"),
        ({"tools": {"name": "f"}}, "invalid_value", "session.tools"),
        ({"tool_choice": "sometimes"}, "invalid_value", "session.tool_choice"),
        ({"tracing": {"colour": 1}}, "unknown_parameter", "session.tracing.colour"),
        ({"include": ["everything"]}, "invalid_value", "session.include[0]"),
    ],
)
def test_each_mistake_gets_its_code_and_path_and_changes_nothing(patch: dict[str, Any], code: str, param: str) -> None:
    error = refusal(patch)
    assert (error.code, error.param) == (code, param)
    assert error.message


def test_an_mcp_tool_is_refused_with_a_sentence() -> None:
    assert "runs no MCP tools" in refusal({"tools": [{"type": "mcp"}]}).message


@pytest.mark.parametrize("patch", [{"instructions": "x"}, {"tools": []}, {"audio": {"output": {"voice": "ash"}}}])
def test_a_transcription_session_has_no_answers(patch: dict[str, Any]) -> None:
    error = refusal(patch, default_config("whisper-1", "transcription"))
    assert error.code == "unknown_parameter"


def test_a_transcription_session_is_updated() -> None:
    config = default_config("whisper-1", "transcription").merge({"type": "transcription", **heard(transcription={"language": "en"})})
    assert config.audio.input.transcription is not None
    assert config.audio.input.transcription.model == "whisper-1"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.sampled_from(["type", "id"]), inner, max_size=3),
    max_leaves=8,
)
PATHS = [
    ("audio", "input", "turn_detection"),
    ("audio", "input", "turn_detection", "threshold"),
    ("audio", "input", "format"),
    ("audio", "output", "voice"),
    ("audio", "input", "noise_reduction", "strength"),
    ("tools",),
    ("tool_choice",),
    ("truncation",),
    ("tracing",),
    ("prompt",),
    ("x",),
]


@given(st.sampled_from(PATHS), JSON, st.booleans())
def test_a_patch_is_applied_or_refused_and_what_is_applied_can_be_echoed(path: tuple[str, ...], value: Any, typed: bool) -> None:
    for key in reversed(path):
        value = {key: value}
    if typed and len(path) == 4 and path[2] == "noise_reduction":
        value["audio"]["input"]["noise_reduction"]["type"] = "near_field"
    config, refused = CONFIG, None
    try:
        config = CONFIG.merge(value)
    except ClientEventError as error:
        refused = error
    if refused is None:
        msgspec.json.encode(config.wire("s", 1))
    else:
        assert refused.code in {"invalid_value", "missing_required_parameter", "unknown_parameter"}
        assert (refused.param or "").startswith("session")


# ---- the echo -------------------------------------------------------------------------------------------------------


def test_the_echo_is_the_whole_session_in_the_sdks_shape() -> None:
    config = CONFIG.merge(
        {
            "tools": [{"type": "function", "name": "f"}],
            "tool_choice": {"type": "function", "name": "f"},
            "truncation": {"type": "retention_ratio", "retention_ratio": 0.5},
            "prompt": {"id": "p"},
            "reasoning": {"effort": "low"},
            **heard(transcription={"model": "x"}, noise_reduction={"type": "near_field"}),
        }
    )
    wire = config.wire("sess_1", 123)
    assert (wire["id"], wire["object"], wire["type"], wire["expires_at"]) == ("sess_1", "realtime.session", "realtime", 123)
    assert wire["tools"] == [{"type": "function", "name": "f", "description": None, "parameters": {}}]
    assert wire["audio"]["input"]["turn_detection"]["idle_timeout_ms"] is None
    assert "temperature" not in wire
    seen = RealtimeSessionCreateRequest.model_validate(wire, strict=True)
    assert seen.audio is not None
    assert seen.audio.output is not None
    assert set(wire) - set(RealtimeSessionCreateRequest.model_fields) == {"id", "object", "expires_at"}


def test_the_echo_of_a_transcription_session() -> None:
    wire = default_config("whisper-1", "transcription").wire("sess_1", 123)
    assert wire["type"] == "transcription"
    assert "output" not in wire["audio"]
    RealtimeTranscriptionSessionCreateRequest.model_validate(wire, strict=True)


def test_an_echo_sent_back_changes_nothing() -> None:
    config = CONFIG.merge({"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "f"}})
    wire = config.wire("s", 1)
    for key in ("id", "object", "expires_at"):
        del wire[key]
    assert config.merge(wire) == config
