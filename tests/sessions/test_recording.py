"""Record and replay: a session's steps in a file, and the same events again from them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from antiphon.sessions import inbound as events
from antiphon.sessions import recording
from antiphon.sessions.commands import Fence, Outbound, Send, StartResponse
from antiphon.sessions.errors import BadRecording
from antiphon.sessions.inbound import Inbound
from antiphon.sessions.policy import SessionLimits, TurnTakingPolicy
from antiphon.sessions.recording import Recorder, RecordingHeader, Step, header_of, read_recording, replay, session_of
from antiphon.sessions.server_events import InputAudioBufferCleared, OutputAudioDelta
from antiphon.sessions.session_config import default_config
from antiphon.sessions.timeline import TimedWord
from hypothesis import given, settings


def header(**changes: Any) -> RecordingHeader:
    config = default_config("our-model", instructions="Be kind.").merge(
        {
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "x": [1, 2.5, None]}}],
            "tool_choice": {"type": "function", "name": "f"},
            "audio": {"input": {"turn_detection": {"type": "semantic_vad"}}, "output": {"voice": {"id": "v"}, "speed": 1.2}},
        }
    )
    fields: dict[str, Any] = {
        "session_id": "sess_1",
        "seed": 2**64 - 1,
        "expires_at": 1_900_000_000,
        "config": config,
        "policy": TurnTakingPolicy(),
        "limits": SessionLimits(),
        "created": 1_800_000_000.5,
    }
    return header_of(**{**fields, **changes})


class Parrot:
    """Sends what it is told, numbered."""

    def __init__(self) -> None:
        self.count = 0

    def open(self, now: float) -> list[Outbound]:
        return self.handle(events.Tick(), now)

    def handle(self, event: Inbound, now: float) -> list[Outbound]:
        self.count += 1
        audio = event.pcm if isinstance(event, events.ResponseAudio) else b""
        delta = OutputAudioDelta(event_id=f"event_{self.count}", response_id="r", item_id="i", output_index=0, content_index=0, pcm=audio)
        return [Send(delta), Fence(self.count, "barge_in"), Send(InputAudioBufferCleared(event_id=f"now_{now}"))]


INBOUND: list[Inbound] = [
    events.ClientMessage(b'{"type":"response.create"}'),
    events.BadFrame("binary", "no"),
    events.TrackAudio(b"\x00\x01"),
    events.SpeechScored(768, (0.1, 0.9)),
    events.VadLost("gone", "x"),
    events.VadReady(),
    events.TurnEndJudged("q", None),
    events.Transcribed(request_id="q", text="Grüezi"),
    events.TranscriptionFailed("q", "c", "m"),
    events.ResponseText("r", 1, "t"),
    events.ResponseAudio(response_id="r", epoch=1, pcm=b"\xff" * 100, transcript="a b", words=(TimedWord("a", 0.0, 1.5),)),
    events.ResponseToolCall(response_id="r", epoch=1, index=0, call_id="c", name="f", arguments="{}"),
    events.ResponseEnded(response_id="r", epoch=1),
    events.ResponseFailed("r", 1, "c", "m"),
    events.AudioDelivered("r", 480),
    events.Tick(),
    events.Warn("draining", "m", 5.0),
    events.EndSession("c", "m", 1012),
    events.Disconnected(),
]


def record(session: Any, inbound: list[tuple[float, Inbound]], head: RecordingHeader, **options: Any) -> bytes:
    written: list[bytes] = []
    recorder = Recorder(written.append, head, **options)
    recorder.opened(1.0, session.open(1.0))
    for now, event in inbound:
        recorder.handled(now, event, session.handle(event, now))
    return b"".join(written)


def parrot_recording() -> bytes:
    return record(Parrot(), [(1.0 + index / 3, event) for index, event in enumerate(INBOUND)], header())


def test_every_inbound_event_is_covered() -> None:
    assert {type(event) for event in INBOUND} == set(Inbound.__args__)


def test_what_was_written_is_read_again() -> None:
    head, steps = read_recording(parrot_recording())
    assert head == header()
    assert [step.inbound for step in steps] == [None, *INBOUND]
    assert steps[2].now == 1.0 + 1 / 3
    assert [json.loads(event)["event_id"] for event in steps[0].outbound] == ["event_1", "now_1.0"]


def test_a_replay_of_the_same_session_is_the_same() -> None:
    head, steps = read_recording(parrot_recording())
    report = replay(head, steps, lambda _: Parrot())
    assert (report.steps, report.events, report.first_difference) == (1 + len(INBOUND), 2 + 2 * len(INBOUND), None)
    assert report.same


@pytest.mark.parametrize("missing", [1, 3, 100])
def test_a_torn_tail_is_left_out(missing: int) -> None:
    data = parrot_recording()
    assert len(read_recording(data[:-missing])[1]) == len(INBOUND)


@given(st.integers(0, len(parrot_recording())))
def test_any_cut_leaves_a_prefix(size: int) -> None:
    data = parrot_recording()
    whole = read_recording(data)[1]
    try:
        steps = read_recording(data[:size])[1]
    except BadRecording:
        assert size < 2_500  # within the header
    else:
        assert steps == whole[: len(steps)]


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x01", b"RIFF....WAVE", b"\x00\x00\x00\x01\xc0", b"\x00" * 64])
def test_what_is_no_recording_is_refused(data: bytes) -> None:
    with pytest.raises(BadRecording, match="no recording"):
        read_recording(data)


def test_another_version_is_refused() -> None:
    data = record(Parrot(), [], changed(header(), version=99))
    with pytest.raises(BadRecording, match="version 99"):
        read_recording(data)


def changed(head: RecordingHeader, **changes: Any) -> RecordingHeader:
    return msgspec.structs.replace(head, **changes)


def test_damage_in_the_middle_is_named() -> None:
    written: list[bytes] = []
    Recorder(written.append, header())
    with pytest.raises(BadRecording, match="frame 1"):
        read_recording(written[0] + b"\x00\x00\x00\x02\x00\x00" + written[0])


def test_the_first_difference_is_shown() -> None:
    head, steps = read_recording(parrot_recording())
    steps[3] = Step(steps[3].now, events.Tick(), (steps[3].outbound[0], b'{"type":"input_audio_buffer.cleared","event_id":"other"}'))
    report = replay(head, steps, lambda _: Parrot())
    difference = report.first_difference
    assert difference is not None
    assert (difference.step, difference.event, report.events) == (3, 1, 7)
    assert "other" in str(difference)
    assert "now_1.66" in str(difference)


@pytest.mark.parametrize(("outbound", "side"), [((), "recorded"), ((b"a", b"b", b"c"), "replayed")])
def test_more_or_fewer_events_are_a_difference(outbound: tuple[bytes, ...], side: str) -> None:
    good = tuple(out.event for out in Parrot().open(1.0) if isinstance(out, Send))
    sent = tuple(recording.encode_event(event) for event in good)
    step = Step(1.0, None, (*sent, *outbound) if side == "replayed" else outbound)
    difference = replay(header(), [step], lambda _: Parrot()).first_difference
    assert difference is not None
    assert getattr(difference, side) is None
    assert "nothing" in str(difference)


def test_a_recording_stops_at_its_largest_size() -> None:
    full = record(Parrot(), [(1.0, event) for event in INBOUND], header())
    cut = record(Parrot(), [(1.0, event) for event in INBOUND], header(), max_bytes=len(full) - 1)
    assert len(cut) < len(full)
    assert len(read_recording(cut)[1]) == len(INBOUND)


def test_a_full_disk_stops_the_recording_not_the_session() -> None:
    def write(_: bytes) -> None:
        raise OSError("No space left on device")

    recorder = Recorder(write, header())
    recorder.handled(1.0, events.Tick(), [])
    assert "No space left" in recorder.stopped


# ---- with the real session ------------------------------------------------------------------------------------------


def message(**event: Any) -> events.ClientMessage:
    return events.ClientMessage(json.dumps(event).encode())


SAID = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}
MOVES: list[Inbound] = [
    message(type="session.update", session={"type": "realtime", "audio": {"output": {"voice": "ash"}}}),
    message(type="session.update", session={"type": "realtime", "output_modalities": ["text"]}),
    message(type="conversation.item.create", item=SAID, event_id="evt_1"),
    message(type="response.create"),
    message(type="response.cancel"),
    message(type="input_audio_buffer.append", audio="AAAA" * 1200),
    message(type="input_audio_buffer.commit"),
    message(type="nonsense"),
    events.SpeechScored(0, (0.9,) * 30),
    events.Tick(),
    events.BadFrame("binary", "Binary frames are not part of the protocol."),
]


ENGINE_MOVES = ("audio", "text", "end", "fail", "delivered")


def from_engine(move: str, start: StartResponse | None) -> Inbound:
    """What the pipeline of the latest response reports."""
    response_id, epoch = (start.response_id, start.epoch) if start is not None else ("resp_unknown", 0)
    match move:
        case "audio":
            return events.ResponseAudio(response_id=response_id, epoch=epoch, pcm=bytes(9600), transcript=" One two three.")
        case "text":
            return events.ResponseText(response_id, epoch, "One two three.")
        case "end":
            return events.ResponseEnded(response_id=response_id, epoch=epoch, output_tokens=3)
        case "fail":
            return events.ResponseFailed(response_id, epoch, "engine_failed", "The engine failed.")
        case _:
            return events.AudioDelivered(response_id, 2400)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.sampled_from(MOVES) | st.sampled_from(ENGINE_MOVES)), max_size=30))
def test_a_real_session_replays_byte_for_byte(moves: list[tuple[int, Inbound | str]]) -> None:
    session = session_of(header())
    written: list[bytes] = []
    recorder = Recorder(written.append, header())
    now = 5.0
    recorder.opened(now, session.open(now))
    start: StartResponse | None = None
    for milliseconds, move in moves:
        now += milliseconds / 1000
        event = from_engine(move, start) if isinstance(move, str) else move
        out = session.handle(event, now)
        recorder.handled(now, event, out)
        start = next((command for command in reversed(out) if isinstance(command, StartResponse)), start)
    head, steps = read_recording(b"".join(written))
    report = replay(head, steps)
    assert report.first_difference is None
    assert report.events > 0
    assert report.steps == 1 + len(moves)


def test_the_session_of_a_header_is_as_it_was() -> None:
    head = read_recording(parrot_recording())[0]
    session = session_of(head)
    assert session.config.audio.output.voice_name == "v"
    assert session.id == "sess_1"
    policy = dataclasses.asdict(TurnTakingPolicy())
    assert head.policy == policy


def test_settings_that_this_version_does_not_know_are_refused() -> None:
    with pytest.raises(BadRecording, match="other settings"):
        session_of(changed(header(), policy={"telepathy": True}))
