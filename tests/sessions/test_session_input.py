"""The input buffer's three client events and manual turn taking, as a client sees them."""

from __future__ import annotations

import base64

import pytest
from antiphon.codecs import g711
from antiphon.sessions import commands as c
from antiphon.sessions import inbound as i
from antiphon.sessions.policy import SessionLimits
from antiphon.tests.sessions.driver import RATE, Driver, End, Engines, Say, silence, sound

MANUAL = {"audio": {"input": {"turn_detection": None}}}


def manual(**settings: object) -> Driver:
    return Driver(session=MANUAL, **settings)  # type: ignore[arg-type]


def test_session_created_is_the_first_event_and_carries_the_whole_session() -> None:
    driver = Driver()
    assert driver.types == ["session.created", "conversation.created"]
    session = driver.left[0].event["session"]
    assert session["id"] == "sess_1"
    assert session["audio"]["input"]["turn_detection"]["type"] == "server_vad"


def test_append_is_not_acknowledged() -> None:
    driver = manual()
    assert driver.client("input_audio_buffer.append", audio=base64.b64encode(silence(20)).decode()) == []


def test_append_of_something_that_is_not_base64_is_refused() -> None:
    assert manual().refused("input_audio_buffer.append", audio="?")["code"] == "invalid_value"


def test_append_feeds_the_vad_engine_only_while_turn_detection_is_on() -> None:
    driver = Driver()
    driver.append(silence(20))
    assert driver.fed == 480
    driver.client("session.update", session={"type": "realtime", **MANUAL})
    driver.append(silence(20))
    assert driver.fed == 480


def test_a_full_buffer_refuses_audio_until_it_is_cleared() -> None:
    driver = manual(limits=SessionLimits(input_buffer_ms=1000))
    driver.append(silence(1000))
    error = driver.refused("input_audio_buffer.append", audio=base64.b64encode(silence(20)).decode())
    assert error["code"] == "input_audio_buffer_full"
    driver.client("input_audio_buffer.clear")
    driver.append(silence(1000))
    assert driver.types[-1] == "input_audio_buffer.cleared"


def test_commit_makes_a_user_item_and_no_response() -> None:
    driver = manual()
    driver.append(sound(500))
    types = [event["type"] for event in driver.client("input_audio_buffer.commit")]
    assert types == ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]
    driver.settle()
    added = driver.last("conversation.item.added")["item"]
    assert added["role"] == "user"
    assert added["content"][0]["type"] == "input_audio"
    assert driver.of("response.created") == []
    assert driver.texts() == [("user", "what is the time")]


@pytest.mark.parametrize(("ms", "refused"), [(0, True), (99, True), (100, False)])
def test_commit_needs_100_ms(ms: int, refused: bool) -> None:
    driver = manual()
    driver.append(silence(ms))
    if refused:
        error = driver.refused("input_audio_buffer.commit")
        assert error["code"] == "input_audio_buffer_commit_empty"
        assert "100ms" in error["message"]
    else:
        assert driver.client("input_audio_buffer.commit")[0]["type"] == "input_audio_buffer.committed"


def test_clear_forgets_the_buffer() -> None:
    driver = manual()
    driver.append(sound(500))
    assert [event["type"] for event in driver.client("input_audio_buffer.clear")] == ["input_audio_buffer.cleared"]
    assert driver.refused("input_audio_buffer.commit")["code"] == "input_audio_buffer_commit_empty"


def test_each_commit_takes_what_came_since_the_one_before() -> None:
    driver = manual()
    for ms in (200, 300):
        driver.append(sound(ms))
        driver.client("input_audio_buffer.commit")
    assert [len(asked.pcm) // 2 * 1000 // RATE for asked in driver.asked("final")] == [200, 300]


def test_manual_mode_push_to_talk_round_trip() -> None:
    driver = manual()
    driver.append(sound(800))
    driver.client("input_audio_buffer.commit")
    driver.client("response.create")
    driver.settle()
    assert [message.text for message in driver.start().messages] == ["what is the time"]
    assert driver.done()["status"] == "completed"
    assert "input_audio_buffer.speech_started" not in driver.types


def test_manual_mode_hears_no_interruption() -> None:
    driver = manual()
    driver.client("response.create")
    driver.hear(1000, 0.9)
    driver.settle()
    assert driver.done()["status"] == "completed"


def test_a_response_waits_for_the_words_of_the_turn_it_answers() -> None:
    driver = manual(engines=Engines(asr_delay=0.7))
    driver.append(sound(800))
    driver.client("input_audio_buffer.commit")
    driver.client("response.create")
    assert driver.of("response.created")
    assert not driver.commands(c.StartResponse)
    driver.run(0.8)
    assert [message.text for message in driver.start().messages] == ["what is the time"]


def test_words_that_never_come_fail_the_response_and_the_next_one_does_not_wait_for_them_again() -> None:
    driver = manual(engines=Engines(asr_delay=None))
    driver.append(sound(800))
    driver.client("input_audio_buffer.commit")
    driver.client("response.create")
    driver.run(20)
    assert driver.done()["status"] == "failed"
    assert driver.done()["status_details"]["error"]["code"] == "transcription_timeout"
    assert driver.commands(c.CancelRequest)
    assert not driver.session.busy(driver.now)
    driver.client("response.create")
    driver.settle()
    assert driver.done()["status"] == "completed"


def test_g711_in_is_24_khz_inside() -> None:
    driver = Driver(session={"audio": {"input": {"turn_detection": None, "format": {"type": "audio/pcmu"}}}})
    for _ in range(50):
        driver.append(g711.encode_mu_law(bytes(320)))  # 20 ms
    driver.client("input_audio_buffer.commit")
    assert 990 <= len(driver.asked("final")[0].pcm) / 48 <= 1000


def test_a_sample_cut_in_two_by_the_client_is_put_together_again() -> None:
    driver = manual()
    pcm = sound(300, value=-3)
    for at in range(0, len(pcm), 333):
        driver.append(pcm[at : at + 333])
    driver.client("input_audio_buffer.commit")
    assert driver.asked("final")[0].pcm == pcm


def test_a_session_that_listened_for_minutes_can_switch_to_manual() -> None:
    """What turn detection has thrown away does not count as buffered."""
    driver = Driver(limits=SessionLimits(input_buffer_ms=5000))
    driver.hear(8000, 0.0)
    driver.client("session.update", session={"type": "realtime", **MANUAL})
    driver.append(sound(500))
    assert driver.types[-1] == "session.updated"
    driver.client("input_audio_buffer.commit")
    assert driver.types[-1] == "conversation.item.done"


def test_transcription_deltas_and_completion_name_the_item() -> None:
    driver = Driver(session={"audio": {"input": {"transcription": {"model": "m"}}}})
    driver.engines.words = "what is"
    driver.hear(700, 0.9)
    driver.engines.words = "what is the time"
    driver.hear(700, 0.9)
    driver.hear(700, 0.0)
    item_id = driver.of("input_audio_buffer.speech_started")[0]["item_id"]
    deltas = driver.of("conversation.item.input_audio_transcription.delta")
    completed = driver.of("conversation.item.input_audio_transcription.completed")
    assert {event["item_id"] for event in (*deltas, *completed)} == {item_id}
    assert "".join(event["delta"] for event in deltas) == "what is the time"
    assert completed[0]["transcript"] == "what is the time"
    assert completed[0]["usage"]["type"] == "duration"
    assert deltas[0] in [left.event for left in driver.left[: driver.types.index("input_audio_buffer.committed")]]


def test_without_input_transcription_nothing_of_it_is_told() -> None:
    driver = Driver()
    driver.turn()
    driver.settle()
    assert not [type_ for type_ in driver.types if "transcription" in type_]
    assert driver.texts()[0] == ("user", "what is the time")


def test_a_failed_transcription_is_told_and_the_session_lives() -> None:
    driver = Driver(session={"audio": {"input": {"transcription": {"model": "m"}}}}, engines=Engines(asr_failure="engine_failed"))
    driver.turn()
    driver.settle()
    failed = driver.last("conversation.item.input_audio_transcription.failed")
    assert failed["error"]["code"] == "engine_failed"
    assert driver.done()["status"] == "failed"
    driver.engines.asr_failure = ""
    driver.turn()
    driver.settle()
    assert driver.done()["status"] == "completed"


def test_a_transcription_session_writes_down_and_answers_nothing() -> None:
    driver = Driver(kind="transcription")
    assert driver.types == ["session.created"]
    driver.turn()
    driver.settle()
    assert driver.last("conversation.item.input_audio_transcription.completed")["transcript"] == "what is the time"
    assert driver.of("response.created") == []
    assert driver.refused("response.create")["code"] == "invalid_value"


def test_audio_of_a_media_track_is_heard_like_appended_audio() -> None:
    driver = Driver(engines=Engines(answer=[Say(100, "Yes."), End()]))
    for probability in [0.9] * 20 + [0.0] * 20:
        driver.run(0.032)
        driver.feed(i.TrackAudio(silence(32)))
        driver.score(probability)
    driver.settle()
    assert driver.done()["status"] == "completed"
