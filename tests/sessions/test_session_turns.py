"""Whose turn it is: server_vad with all its fields, semantic_vad with its eagerness, and the order of the events of a turn."""

from __future__ import annotations

from typing import Any

import pytest
from antiphon.sessions import commands as c
from antiphon.sessions import inbound as i
from antiphon.sessions.policy import TurnTakingPolicy
from antiphon.tests.sessions.driver import RATE, Driver, End, Engines, Say

STARTED, STOPPED, COMMITTED = (f"input_audio_buffer.{name}" for name in ("speech_started", "speech_stopped", "committed"))


def driver(detection: dict[str, Any] | None = None, **settings: Any) -> Driver:
    return Driver(session={"audio": {"input": {"turn_detection": detection or {"type": "server_vad"}}}}, **settings)


def semantic(eagerness: str = "auto", **settings: Any) -> Driver:
    return driver({"type": "semantic_vad", "eagerness": eagerness}, **settings)


# ---- the order ------------------------------------------------------------------------------------------------------


def test_a_turn_is_started_stopped_committed_added_done_answered() -> None:
    d = driver()
    d.turn()
    d.run(0)
    turn = [type_ for type_ in d.types[2:] if not type_.startswith("response.") and type_ != "rate_limits.updated"]
    assert turn[:5] == [STARTED, STOPPED, COMMITTED, "conversation.item.added", "conversation.item.done"]
    assert d.types.index("response.created") > d.types.index("conversation.item.done")


def test_one_item_id_runs_through_the_turn() -> None:
    d = driver()
    d.turn()
    item_id = d.of(STARTED)[0]["item_id"]
    assert [event["item_id"] for event in d.of(STOPPED, COMMITTED)] == [item_id, item_id]
    assert d.of("conversation.item.added")[0]["item"]["id"] == item_id


def test_the_answer_stands_after_the_turn() -> None:
    d = driver()
    d.turn()
    d.settle()
    user, assistant = d.of("conversation.item.added")
    assert user["previous_item_id"] is None
    assert assistant["previous_item_id"] == user["item"]["id"]


def test_the_answer_follows_the_order_of_a_spoken_response() -> None:
    d = driver(engines=Engines(answer=[Say(100, "Yes."), End()]))
    d.turn()
    d.settle()
    answer = d.types[d.types.index("response.created") :]
    assert answer == [
        "response.created",
        "rate_limits.updated",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]


# ---- server_vad -----------------------------------------------------------------------------------------------------


def test_positions_count_from_the_first_sample_and_include_prefix_and_silence() -> None:
    d = driver({"type": "server_vad", "prefix_padding_ms": 300, "silence_duration_ms": 500})
    d.hear(960, 0.0)
    d.turn(ms=640)
    assert d.last(STARTED)["audio_start_ms"] == 960 - 300
    assert 960 + 640 + 500 <= d.last(STOPPED)["audio_end_ms"] <= 960 + 640 + 500 + 32
    assert len(d.asked("final")[0].pcm) // 48 >= 300 + 640


def test_the_prefix_does_not_reach_before_the_first_sample() -> None:
    d = driver()
    d.turn()
    assert d.last(STARTED)["audio_start_ms"] == 0


def test_a_long_prefix_is_really_kept() -> None:
    d = driver({"type": "server_vad", "prefix_padding_ms": 5000})
    d.hear(9600, 0.0)
    d.turn(ms=640)
    assert d.last(STARTED)["audio_start_ms"] == 9600 - 5000
    assert len(d.asked("final")[-1].pcm) // 48 >= 5000 + 640


def test_the_prefix_does_not_reach_into_the_turn_before() -> None:
    d = driver({"type": "server_vad", "prefix_padding_ms": 5000, "create_response": False})
    d.turn()
    d.turn()
    stopped, started = d.of(STOPPED)[0], d.of(STARTED)[1]
    assert started["audio_start_ms"] == stopped["audio_end_ms"]


@pytest.mark.parametrize(("threshold", "opens"), [(0.5, True), (0.7, False)])
def test_the_threshold_decides_what_is_speech(threshold: float, opens: bool) -> None:
    d = driver({"type": "server_vad", "threshold": threshold})
    d.hear(640, 0.6)
    assert (STARTED in d.types) is opens


@pytest.mark.parametrize("silence_ms", [0, 200, 500, 1000])
def test_silence_duration_ends_the_turn(silence_ms: int) -> None:
    d = driver({"type": "server_vad", "silence_duration_ms": silence_ms})
    d.say(640)
    d.hear(2000, 0.0)
    ended = next(left.at for left in d if left.type == STOPPED)
    assert 0.64 + silence_ms / 1000 <= ended + 1e-6 <= 0.64 + silence_ms / 1000 + 0.065


def test_a_pause_shorter_than_the_silence_does_not_end_the_turn() -> None:
    d = driver()
    d.say(640)
    d.hear(320, 0.0)
    d.say(640)
    d.hear(640, 0.0)
    assert len(d.of(COMMITTED)) == 1


def test_create_response_false_only_commits() -> None:
    d = driver({"type": "server_vad", "create_response": False})
    d.turn()
    d.settle()
    assert d.of(COMMITTED)
    assert not d.of("response.created")
    d.client("response.create")
    d.settle()
    assert [message.text for message in d.start().messages] == ["what is the time"]


def test_a_client_that_asks_for_the_answer_itself_gets_one_answer() -> None:
    d = driver(engines=Engines(asr_delay=0.3))
    d.turn(pause=512)
    d.client("response.create")
    d.settle()
    assert len(d.of("response.created")) == 1
    assert [message.text for message in d.start().messages] == ["what is the time"]


def test_interrupt_response_false_lets_the_answer_speak_and_answers_afterwards() -> None:
    d = driver({"type": "server_vad", "interrupt_response": False})
    d.turn("what is the time")
    d.run(0.5)
    d.turn("and in Tokyo")
    d.settle()
    assert [event["response"]["status"] for event in d.of("response.done")] == ["completed", "completed"]
    assert d.types.count(STARTED) == 2
    first_done, second = d.types.index("response.done"), len(d.types) - 1 - d.types[::-1].index("response.created")
    assert second == first_done + 1
    assert [message.text for message in d.start().messages][-1] == "and in Tokyo"
    assert not d.commands(c.Fence)


def test_an_answer_that_waits_survives_the_cancelling_of_the_one_before() -> None:
    d = driver({"type": "server_vad", "interrupt_response": False})
    d.turn("what is the time")
    d.run(0.5)
    d.turn("and in Tokyo")
    d.client("response.cancel")
    d.settle()
    assert [event["response"]["status"] for event in d.of("response.done")] == ["cancelled", "completed"]


def test_an_answer_that_waits_survives_the_truncation_of_the_one_before() -> None:
    """Clients without `interrupt_response` interrupt by truncating."""
    d = driver({"type": "server_vad", "interrupt_response": False})
    d.turn("what is the time")
    d.run(0.5)
    d.turn("and in Tokyo")
    d.client("conversation.item.truncate", item_id=d.of("response.output_item.added")[0]["item"]["id"], content_index=0, audio_end_ms=100)
    d.settle()
    assert [event["response"]["status"] for event in d.of("response.done")] == ["cancelled", "completed"]


def test_a_turn_without_words_is_not_answered() -> None:
    d = driver()
    d.turn("")
    d.settle()
    assert d.of(COMMITTED)
    assert not d.of("response.created")


def test_a_turn_without_words_after_an_answer_that_was_heard_is_not_answered_either() -> None:
    d = driver()
    d.turn()
    d.settle()
    d.turn("")
    d.settle()
    assert len(d.of(COMMITTED)) == 2
    assert len(d.of("response.created")) == 1


def test_a_click_opens_no_turn() -> None:
    d = driver()
    d.hear(64, 0.95)
    d.hear(1000, 0.0)
    assert STARTED not in d.types


def test_a_turn_that_never_ends_is_ended() -> None:
    d = driver(policy=TurnTakingPolicy(max_turn_ms=2000))
    d.say(2500)
    assert len(d.of(COMMITTED)) == 1


def test_the_final_transcription_begins_in_the_pause_and_is_forgotten_when_the_caller_speaks_on() -> None:
    d = driver(engines=Engines(asr_delay=0.3))
    d.say(640)
    d.hear(192, 0.0)
    assert len(d.asked("final")) == 1
    assert not d.of(COMMITTED)
    d.say(640)
    assert {request.request_id for request in d.asked("final")} <= d.cancelled
    d.hear(640, 0.0)
    assert len(d.asked("final")) == 2
    assert len(d.of("response.created")) == 1


def test_the_words_of_a_pause_are_not_those_of_the_turn_that_went_on() -> None:
    d = driver()
    d.say(640, "I would like")
    d.hear(320, 0.0)
    d.say(640, "I would like a pizza")
    d.client("input_audio_buffer.commit")
    d.settle()
    assert d.texts()[0] == ("user", "I would like a pizza")


# ---- the idle timeout -----------------------------------------------------------------------------------------------

IDLE = {"type": "server_vad", "idle_timeout_ms": 5000}


def test_the_idle_timeout_counts_from_the_end_of_playback() -> None:
    d = driver(IDLE, engines=Engines(answer=[Say(3000, "Hello."), End()]))
    d.turn()
    d.run(0)
    answered = next(left.at for left in d if left.type == "response.created")
    d.run(20)
    asked = next(left.at for left in d if left.type == "input_audio_buffer.timeout_triggered")
    assert asked == pytest.approx(answered + 3.0 + 5.0, abs=0.1)


def test_the_idle_timeout_commits_an_empty_turn_and_answers_it() -> None:
    d = driver(IDLE)
    d.turn()
    d.settle(12)
    at = d.types.index("input_audio_buffer.timeout_triggered")
    assert d.types[at : at + 5] == [
        "input_audio_buffer.timeout_triggered",
        COMMITTED,
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
    ]
    item_id = d.left[at].event["item_id"]
    assert d.left[at + 1].event["item_id"] == item_id
    assert d.start().messages[-1].role == "system"


def test_the_idle_timeout_without_create_response_is_only_told() -> None:
    d = driver({**IDLE, "create_response": False})
    d.client("response.create")
    d.settle()
    assert "input_audio_buffer.timeout_triggered" in d.types
    assert len(d.of("response.created")) == 1


def test_the_assistant_asks_only_so_often_in_a_row() -> None:
    d = driver(IDLE, policy=TurnTakingPolicy(idle_prompts=2))
    d.turn()
    d.settle()
    assert d.types.count("input_audio_buffer.timeout_triggered") == 2
    d.turn()
    d.settle()
    assert d.types.count("input_audio_buffer.timeout_triggered") == 4


def test_speech_stops_the_idle_clock() -> None:
    d = driver(IDLE)
    d.turn()
    d.run(6.5)
    d.turn("I am here")
    d.run(5)
    assert "input_audio_buffer.timeout_triggered" not in d.types


def test_there_is_no_idle_timeout_before_the_first_answer_or_without_the_setting() -> None:
    d = driver(IDLE)
    d.hear(15_000, 0.0)
    assert "input_audio_buffer.timeout_triggered" not in d.types
    d = driver()
    d.turn()
    d.settle()
    d.run(60)
    assert "input_audio_buffer.timeout_triggered" not in d.types


# ---- semantic_vad ---------------------------------------------------------------------------------------------------


def pause_until_committed(d: Driver) -> float:
    """Seconds of silence until the turn was committed."""
    d.say(960)
    spoke = d.now
    d.hear(10_000, 0.0)
    return next(left.at for left in d if left.type == COMMITTED) - spoke


def test_semantic_vad_ends_the_turn_when_the_engine_says_so() -> None:
    assert pause_until_committed(semantic(engines=Engines(turn_over=0.95))) < 0.3


@pytest.mark.parametrize(("eagerness", "seconds"), [("low", 8), ("medium", 4), ("auto", 4), ("high", 2)])
def test_semantic_vad_times_out_when_the_engine_never_answers(eagerness: str, seconds: float) -> None:
    waited = pause_until_committed(semantic(eagerness, engines=Engines(judge_delay=None)))
    assert waited == pytest.approx(seconds, abs=0.07)


@pytest.mark.parametrize(("eagerness", "seconds"), [("low", 8), ("auto", 4), ("high", 2)])
def test_semantic_vad_times_out_when_the_engine_fails(eagerness: str, seconds: float) -> None:
    waited = pause_until_committed(semantic(eagerness, engines=Engines(turn_over=None)))
    assert waited == pytest.approx(seconds, abs=0.07)


def test_semantic_vad_waits_longer_the_less_sure_the_engine_is() -> None:
    waits = [pause_until_committed(semantic(engines=Engines(turn_over=p))) for p in (0.45, 0.3, 0.1, 0.01)]
    assert waits == sorted(waits)
    assert waits[-1] > 3.5


def test_semantic_vad_waits_longer_the_less_eager_it_is() -> None:
    waits = [pause_until_committed(semantic(e, engines=Engines(turn_over=0.4))) for e in ("high", "medium", "low")]
    assert waits == sorted(waits)


def test_a_late_judgement_of_a_pause_that_is_over_ends_nothing() -> None:
    d = semantic(engines=Engines(turn_over=0.99, judge_delay=0.4))
    d.say(960)
    d.hear(256, 0.0)
    d.say(640)
    assert COMMITTED not in d.types
    assert {request.request_id for request in d.commands(c.JudgeTurnEnd)} <= d.cancelled


def test_the_engine_is_asked_about_at_most_8_seconds_and_not_twice_at_once() -> None:
    d = semantic(engines=Engines(judge_delay=None))
    d.say(12_000)
    d.hear(3000, 0.0)
    asked = d.commands(c.JudgeTurnEnd)
    assert len(asked) == 1
    assert len(asked[0].pcm) == 8 * RATE * 2


# ---- changes --------------------------------------------------------------------------------------------------------


def update(d: Driver, detection: dict[str, Any] | None) -> None:
    d.client("session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": detection}}})


def test_turn_detection_switched_off_in_a_turn_keeps_its_audio_and_id_for_the_commit() -> None:
    d = driver()
    d.say(960)
    update(d, None)
    d.hear(2000, 0.0)
    assert STOPPED not in d.types
    d.client("input_audio_buffer.commit")
    assert d.last(COMMITTED)["item_id"] == d.last(STARTED)["item_id"]


def test_turn_detection_switched_on_again_hears_new_turns_and_not_old_scores() -> None:
    d = driver()
    d.hear(320, 0.0)
    unscored = d.fed
    update(d, None)
    d.hear(3200, 0.0)
    update(d, {"type": "server_vad"})
    d.append(bytes(480))
    d.feed(i.SpeechScored(unscored - 4 * 768, (0.9, 0.9, 0.9, 0.9)))
    assert STARTED not in d.types
    d.turn()
    assert len(d.of(COMMITTED)) == 1
    assert d.last(STARTED)["audio_start_ms"] >= 3200


def test_server_vad_becomes_semantic_vad_in_the_middle_of_a_turn() -> None:
    d = driver(engines=Engines(turn_over=0.95))
    d.say(640)
    update(d, {"type": "semantic_vad"})
    d.hear(320, 0.0)
    assert len(d.of(COMMITTED)) == 1


def test_scores_that_come_after_a_commit_open_no_second_turn() -> None:
    d = driver()
    d.say(640)
    d.append(bytes(768 * 2 * 8))
    d.client("input_audio_buffer.commit")
    d.score(0.9)
    d.hear(640, 0.0)
    assert len(d.of(STARTED)) == 1


def test_without_the_vad_engine_the_client_can_still_commit() -> None:
    d = driver()
    d.hear(320, 0.0)
    d.feed(i.VadLost("engine_failed", "The VAD engine failed."))
    assert d.last("error")["error"]["code"] == "engine_failed"
    d.feed(i.VadLost("engine_failed", "The VAD engine failed."))
    assert d.types.count("error") == 1
    fed = d.fed
    for _ in range(20):
        d.append(bytes(1536))
    assert d.fed == fed
    d.client("input_audio_buffer.commit")
    assert d.types[-1] == "conversation.item.done"


def test_the_vad_engine_returns_on_a_new_feed() -> None:
    d = driver()
    d.say(320)
    d.feed(i.VadLost("engine_failed", "The VAD engine failed."))
    for _ in range(30):
        d.append(bytes(1536))
    d.feed(i.VadReady())
    d.fed = d.scored = 0
    d.turn()
    d.settle()
    assert d.of("response.done")
    assert d.last(STARTED)["audio_start_ms"] >= 320
