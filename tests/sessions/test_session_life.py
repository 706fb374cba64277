"""Around the conversation: session.update, mistakes, warnings, ends, replay."""

from __future__ import annotations

import json

import pytest
from antiphon.sessions import commands as c
from antiphon.sessions import inbound as i
from antiphon.tests.sessions.driver import HELLO, Call, Driver, End, Engines, Say, Write, flat, replay, sound

# ---- session.update -------------------------------------------------------------------------------------------------


def test_update_merges_and_echoes_the_whole_session() -> None:
    d = Driver(session={"instructions": "Be brief."})
    events = d.client("session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": {"threshold": 0.8}}}})
    assert [event["type"] for event in events] == ["session.updated"]
    session = events[0]["session"]
    assert session["instructions"] == "Be brief."
    assert session["audio"]["input"]["turn_detection"]["type"] == "server_vad"
    assert session["audio"]["input"]["turn_detection"]["threshold"] == 0.8
    assert session["audio"]["input"]["turn_detection"]["interrupt_response"] is True


def test_update_of_something_unknown_is_refused_and_changes_nothing() -> None:
    d = Driver()
    error = d.refused("session.update", session={"type": "realtime", "instructions": "x", "no_such_thing": 1})
    assert error["code"] == "unknown_parameter"
    assert error["param"] == "session.no_such_thing"
    assert d.session.config.instructions == ""


def test_update_that_could_not_be_echoed_is_refused() -> None:
    d = Driver()
    assert d.refused("session.update", session={"type": "realtime", "instructions": "x" * 1_000_000})["param"] == "session"
    assert d.session.config.instructions == ""


def test_update_while_speaking_applies_from_the_next_answer_on() -> None:
    d = Driver(engines=Engines(answer=[Say(3000, HELLO), End()]))
    d.client("response.create")
    d.run(1)
    d.client("session.update", session={"type": "realtime", "output_modalities": ["text"], "instructions": "Write."})
    d.run(3)
    assert d.done()["status"] == "completed"
    assert d.done()["output_modalities"] == ["audio"]
    d.engines.answer = [Write("ok"), End()]
    d.client("response.create")
    d.run(0)
    assert d.done()["output_modalities"] == ["text"]
    assert d.start().messages[0].text == "Write."


def test_the_voice_is_locked_once_it_was_heard() -> None:
    d = Driver()
    voice = {"type": "realtime", "audio": {"output": {"voice": "other"}}}
    d.client("session.update", session=voice)
    assert d.types[-1] == "session.updated"
    d.client("response.create")
    d.settle()
    voice["audio"]["output"]["voice"] = "alloy"  # type: ignore[index]
    assert d.refused("session.update", session=voice)["code"] == "cannot_update_voice"
    assert d.start().voice == "other"


def test_what_stock_agents_send_is_tolerated() -> None:
    d = Driver()
    session = {
        "type": "realtime",
        "model": "gpt-realtime-2.1",
        "tracing": "auto",
        "audio": {
            "input": {"transcription": {"model": "gpt-4o-mini-transcribe"}, "turn_detection": {"type": "semantic_vad"}},
            "output": {"voice": "ash"},
        },
    }
    updated = d.client("session.update", session=session)[0]
    assert updated["type"] == "session.updated"
    assert updated["session"]["model"] == "antiphon-voice"
    assert updated["session"]["audio"]["input"]["turn_detection"]["interrupt_response"] is True


# ---- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{", "invalid_json"),
        (b"\xff", "invalid_json"),
        (b"[]", "invalid_value"),
        (b"{}", "missing_required_parameter"),
        (b'{"type": "session.destroy"}', "invalid_value"),
        (b'{"type": "input_audio_buffer.append"}', "missing_required_parameter"),
        (b'{"type": "response.cancel", "force": true}', "unknown_parameter"),
    ],
)
def test_a_mistake_is_answered_and_the_session_lives(raw: bytes, code: str) -> None:
    d = Driver()
    d.feed(i.ClientMessage(raw))
    assert d.last("error")["error"]["code"] == code
    assert d.client("response.create")[0]["type"] == "response.created"


def test_an_error_names_the_event_that_caused_it() -> None:
    d = Driver()
    d.feed(i.ClientMessage(json.dumps({"type": "response.cancel", "event_id": "evt_7", "force": True}).encode()))
    assert d.last("error")["error"]["event_id"] == "evt_7"


def test_a_bad_frame_is_answered() -> None:
    d = Driver()
    d.feed(i.BadFrame("invalid_frame", "Binary frames are not client events."))
    assert d.last("error")["error"]["code"] == "invalid_frame"


# ---- ends -----------------------------------------------------------------------------------------------------------


def test_warnings_are_told() -> None:
    d = Driver()
    d.feed(i.Warn("expiring", "The session ends in 30 seconds.", 30.0))
    d.feed(i.Warn("draining", "The server shuts down.", 10.0))
    assert d.types[-2:] == ["session.expiring", "session.draining"]
    assert d.left[-1].event["seconds"] == 10.0


def test_the_end_of_a_session_ends_everything_in_it() -> None:
    d = Driver(engines=Engines(answer=[Say(3000, HELLO), Call("f", "{")], asr_delay=None))
    d.client("response.create")
    d.client("response.create", response={"conversation": "none"})
    d.run(1)
    d.say(320)
    d.feed(i.EndSession("session_expired", "Your session reached its maximum duration.", 1000))
    assert [event["response"]["status"] for event in d.of("response.done")] == ["cancelled", "cancelled"]
    assert d.types[-1] == "error"
    assert d.last("error")["error"]["code"] == "session_expired"
    assert d.closed == 1000
    assert set(d.starts) == d.stopped
    assert set(d.questions) <= d.cancelled
    assert d.session.state(d.now) == "closed"
    assert d.session.next_deadline(d.now) is None
    d.grammar.finish()


def test_after_the_end_nothing_is_said() -> None:
    d = Driver()
    d.feed(i.EndSession("server_error", "The server ends.", 1011))
    assert d.session.handle(i.ClientMessage(b"{"), d.now) == []


def test_a_disconnect_stops_all_work_and_says_nothing() -> None:
    d = Driver(engines=Engines(answer=[Say(3000, HELLO)]))
    d.turn()
    d.client("response.create", response={"conversation": "none"})
    d.hear(1504, 0.0)
    d.engines.asr_delay = None
    d.hear(832, 0.9)
    d.hear(192, 0.0)
    mark = len(d.left)
    d.gone = True
    out = d.feed(i.Disconnected())
    assert not any(isinstance(command, c.Send) for command in out)
    assert set(d.starts) == d.stopped
    assert set(d.commands(c.CancelRequest)[-1:]) == {c.CancelRequest(d.asked("final")[-1].request_id)}
    assert d.since(mark) == []
    assert not d.session.busy(d.now)


# ---- states and activity --------------------------------------------------------------------------------------------


def test_the_states_of_a_session() -> None:
    d = Driver(engines=Engines(answer=[Say(1000, HELLO, after=0.5), End()]))
    seen = [d.session.state(d.now)]
    for step in (lambda: d.say(640), lambda: d.hear(640, 0.0), lambda: d.run(0.6), lambda: d.run(5)):
        step()
        seen.append(d.session.state(d.now))
    assert seen == ["idle", "listening", "thinking", "speaking", "idle"]


def test_silence_is_no_activity_but_speech_and_requests_are() -> None:
    d = Driver()
    d.hear(2000, 0.0)
    assert d.session.last_activity == 0.0
    d.say(320)
    spoke = d.session.last_activity
    assert spoke > 2.0
    d.hear(2000, 0.0)
    d.run(1)
    d.client("response.create")
    assert d.session.last_activity == d.now > spoke


# ---- replay ---------------------------------------------------------------------------------------------------------


def test_a_session_replays_byte_for_byte_however_often_it_was_looked_at() -> None:
    settings = {"session": {"audio": {"output": {"format": {"type": "audio/pcmu"}}, "input": {"transcription": {"model": "m"}}}}}
    d = Driver(engines=Engines(answer=[Say(777, "One two three"), Say(1500, " four five."), End()]), **settings)  # type: ignore[arg-type]
    opening = len(d.outbound)
    d.turn()
    for _ in range(97):
        d.run(0.0137)
        d.session.next_deadline(d.now)
        d.session.state(d.now)
        d.session.busy(d.now)
    d.say(900, "hold on a second")
    d.hear(900, 0.0)
    d.append(sound(13))
    d.settle()
    assert replay(d, **settings) == flat(d)[opening:]


def test_two_sessions_share_no_ids() -> None:
    first, second = Driver(seed=1), Driver(seed=2)
    assert not first.grammar._ids & second.grammar._ids
