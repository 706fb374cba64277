"""Speech over the assistant: what interrupts, what does not, and what everybody remembers afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from antiphon.sessions import commands as c
from antiphon.sessions.policy import TurnTakingPolicy
from antiphon.tests.sessions.driver import HELLO, Driver, End, Engines, Say

POLICY = TurnTakingPolicy(confirm_ms=512, opener_ms=256, backchannel_ms=1408, overlap_end_ms=256, resume_ms=800)
STARTED = "input_audio_buffer.speech_started"
DONES = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
]


def speaking(policy: TurnTakingPolicy = POLICY, **settings: Any) -> Driver:
    """The assistant has been speaking for 1.2 s."""
    settings.setdefault("engines", Engines(answer=[Say(6000, " ".join(f"word{n}" for n in range(60))), End()]))
    d = Driver(policy=policy, **settings)
    d.turn()
    d.hear(1216, 0.0)
    assert d.session.state(d.now) == "speaking"
    return d


def test_barge_in_starts_the_turn_then_ends_the_response() -> None:
    d = speaking()
    mark = len(d.left)
    d.say(640, "hold on a second")
    told = [type_ for type_ in d.since(mark) if type_ != "response.output_audio.delta"]
    assert told == [STARTED, *DONES]
    assert d.done()["status"] == "cancelled"
    assert d.done()["status_details"]["reason"] == "turn_detected"


def test_barge_in_raises_the_fence_before_anything_else_leaves() -> None:
    d = speaking()
    d.say(640, "hold on a second")
    at = next(index for index, (_, command) in enumerate(d.outbound) if isinstance(command, c.Fence))
    after = [command for _, command in d.outbound[at:]]
    assert isinstance(after[1], c.StopResponse)
    assert isinstance(after[2], c.Send)
    assert d.commands(c.Fence)[0].epoch == d.session.epoch == 1


def test_no_byte_of_the_old_answer_leaves_after_the_fence_even_from_a_slow_transport() -> None:
    d = Driver(policy=POLICY, speed=1.0, late_chunks=True, engines=Engines(answer=[Say(500, f"w{n} ", after=0.2) for n in range(20)]))
    d.turn()
    d.hear(1504, 0.0)
    d.say(640, "hold on a second")
    fenced = next(at for at, command in d.outbound if isinstance(command, c.Fence))
    old = next(iter(d.starts))
    assert [left for left in d if left.at > fenced and left.type.endswith("audio.delta") and left.send.response_id == old] == []
    d.run(5)
    assert d.measured("dropped_by_epoch")


def test_what_is_remembered_is_what_was_heard() -> None:
    d = speaking()
    response_id = d.start().response_id
    d.say(640, "hold on a second")
    heard_ms = d.at_fence[0][1][response_id]
    said = next(text for role, text in d.texts() if role == "assistant")
    words = int(heard_ms // 100)
    assert abs(len(said.split()) - words) <= 1
    assert d.done()["output"][0]["content"][0]["transcript"].strip() == said
    assert d.done()["output"][0]["status"] == "incomplete"


def test_the_next_answer_is_told_only_what_was_heard() -> None:
    d = speaking()
    d.say(640, "hold on a second")
    d.hear(960, 0.0)
    said = next(message.text for message in d.start().messages if message.role == "assistant")
    assert 5 <= len(said.split()) < 30
    assert d.start().messages[-1].text == "hold on a second"


def test_a_confirmed_interruption_keeps_its_first_syllable() -> None:
    d = speaking()
    begun = d.now
    d.say(960, "hold on a second")
    d.hear(640, 0.0)
    started = d.last(STARTED)["audio_start_ms"]
    assert started == pytest.approx(begun * 1000 - 300, abs=32)
    assert len(d.asked("final")[-1].pcm) // 48 >= 300 + 960


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        pytest.param(64, "", id="a click"),
        pytest.param(128, "", id="a cough"),
        pytest.param(384, "mm-hm", id="a short hum"),
        pytest.param(700, "mm-hm", id="a long hum"),
        pytest.param(640, "yeah right", id="agreement"),
        pytest.param(640, "", id="noise"),
    ],
)
def test_it_is_no_interruption(ms: int, words: str) -> None:
    d = speaking()
    started = d.types.count(STARTED)
    d.say(ms, words)
    d.hear(960, 0.0)
    assert d.types.count(STARTED) == started
    assert not d.commands(c.Fence)
    d.settle()
    assert d.done()["status"] == "completed"
    assert len(d.of("response.created")) == 1
    assert not d.session.busy(d.now)


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        pytest.param(320, "stop", id="a short command"),
        pytest.param(640, "the other one", id="a sentence"),
        pytest.param(1500, "mm-hm", id="a hum that does not end"),
        pytest.param(1500, "", id="speech without words that does not end"),
    ],
)
def test_it_is_an_interruption(ms: int, words: str) -> None:
    d = speaking()
    d.say(ms, words)
    d.hear(320, 0.0)
    assert len(d.commands(c.Fence)) == 1


def test_it_takes_the_confirm_window() -> None:
    d = speaking()
    begun = d.now
    d.say(960, "the other one")
    fenced = next(at for at, command in d.outbound if isinstance(command, c.Fence))
    assert fenced - begun == pytest.approx(0.512, abs=0.07)


def test_without_a_confirm_window_the_first_edge_stops_the_assistant() -> None:
    d = speaking(TurnTakingPolicy(confirm_ms=0))
    begun = d.now
    d.say(128, "mm-hm")
    fenced = next(at for at, command in d.outbound if isinstance(command, c.Fence))
    assert fenced - begun <= 0.1


def test_words_that_do_not_come_leave_the_decision_to_the_clock() -> None:
    d = speaking(engines=Engines(answer=[Say(6000, HELLO), End()]))
    d.engines.asr_delay = None
    begun = d.now
    d.hear(1408, 0.9)
    fenced = next(at for at, command in d.outbound if isinstance(command, c.Fence))
    assert fenced - begun == pytest.approx(0.512 + 0.2, abs=0.1)


def test_words_that_fail_are_not_asked_for_again_and_again() -> None:
    d = speaking(engines=Engines(answer=[Say(6000, HELLO), End()]))
    d.engines.asr_failure = "engine_failed"
    d.hear(1408, 0.9)
    assert len(d.asked("overlap")) == 1
    assert len(d.commands(c.Fence)) == 1


def test_late_words_of_one_overlap_do_not_decide_the_next() -> None:
    d = speaking()
    d.engines.asr_delay = 0.9
    d.say(320, "stop everything now")
    d.hear(832, 0.0)
    assert not d.commands(c.Fence)
    d.engines.asr_delay = None
    d.hear(320, 0.9)
    assert not d.commands(c.Fence)
    assert {request.request_id for request in d.asked("overlap")[:-1]} <= d.cancelled


def test_words_that_are_not_needed_any_more_are_cancelled() -> None:
    d = speaking()
    d.engines.asr_delay = None
    d.hear(1408, 0.9)
    assert len(d.commands(c.Fence)) == 1
    assert {request.request_id for request in d.asked("overlap")} <= d.cancelled


def test_without_overlap_words_only_the_length_counts() -> None:
    policy = TurnTakingPolicy(confirm_ms=512, overlap_words=False)
    d = speaking(policy)
    d.say(384, "stop")
    d.hear(640, 0.0)
    assert not d.commands(c.Fence)
    d.say(640, "mm-hm")
    assert len(d.commands(c.Fence)) == 1
    assert not d.asked("overlap")


# ---- while the assistant thinks -------------------------------------------------------------------------------------


def thinking(**settings: Any) -> Driver:
    """The caller has finished, the answer is being made, nothing of it was heard."""
    settings.setdefault("engines", Engines(answer=[Say(3000, HELLO, after=3.0), End()]))
    d = Driver(policy=POLICY, **settings)
    d.turn("I would like to")
    d.run(0)
    assert d.session.state(d.now) == "thinking"
    return d


def test_speaking_on_while_the_answer_is_made_joins_the_turn() -> None:
    d = thinking()
    d.say(640, "order a pizza")
    assert d.done()["status"] == "cancelled"
    assert d.done()["status_details"]["reason"] == "turn_detected"
    assert d.done()["output"] == []
    d.hear(640, 0.0)
    assert [(message.role, message.text) for message in d.start().messages] == [("user", "I would like to order a pizza")]
    d.settle()
    assert [event["response"]["status"] for event in d.of("response.done")] == ["cancelled", "completed"]


def test_joining_the_turn_takes_less_than_the_confirm_window() -> None:
    d = thinking()
    begun = d.now
    d.say(640, "order a pizza")
    fenced = next(at for at, command in d.outbound if isinstance(command, c.Fence))
    assert fenced - begun < 0.25


def test_speaking_on_when_the_answer_has_just_begun_joins_the_turn_too() -> None:
    d = Driver(policy=TurnTakingPolicy(resume_ms=1200))
    d.turn("I would like to", pause=512)
    d.run(0.1)
    assert d.session.state(d.now) == "speaking"
    begun = d.now
    d.say(640, "order a pizza")
    fenced = next(at for at, command in d.outbound if isinstance(command, c.Fence))
    assert fenced - begun < 0.25


def test_speaking_on_between_commit_and_transcript_joins_the_turn() -> None:
    d = Driver(policy=POLICY, engines=Engines(asr_delay=0.6))
    d.turn("I would like to", pause=512)
    assert d.of("input_audio_buffer.committed")
    assert not d.of("response.created")
    d.engines.asr_delay = 0.1
    d.say(640, "order a pizza")
    d.hear(960, 0.0)
    assert len(d.of("response.created")) == 1
    assert [message.text for message in d.start().messages] == ["I would like to order a pizza"]


def test_a_cough_between_commit_and_transcript_does_not_cost_the_answer() -> None:
    d = Driver(policy=POLICY, engines=Engines(asr_delay=0.6))
    d.turn("what is the time", pause=512)
    d.engines.asr_delay = 0.1
    d.say(160, "")
    d.hear(960, 0.0)
    d.settle()
    assert [message.text for message in d.start().messages] == ["what is the time"]
    assert d.done()["status"] == "completed"


def test_a_cough_while_the_assistant_thinks_does_not_cost_the_answer() -> None:
    d = thinking()
    d.say(256, "")
    d.hear(960, 0.0)
    d.settle()
    assert d.done()["status"] == "completed"
    assert d.texts() == [("user", "I would like to"), ("user", ""), ("assistant", HELLO)]


def test_a_click_while_the_assistant_thinks_changes_nothing() -> None:
    d = thinking()
    d.say(64, "")
    d.hear(960, 0.0)
    d.settle()
    assert len(d.of("response.created")) == 1


# ---- in the tail: the answer is made and sent, and still being heard ------------------------------------------------


def in_the_tail() -> Driver:
    d = Driver(policy=TurnTakingPolicy(confirm_ms=0, resume_ms=0), engines=Engines(answer=[Say(1500, HELLO), End()]))
    d.turn()
    d.run(1.05)
    assert d.types[-1] == "response.done"
    assert d.session.state(d.now) == "speaking"
    return d


def test_barge_in_in_the_tail_cuts_the_history_without_a_second_terminal() -> None:
    d = in_the_tail()
    mark = len(d.left)
    d.say(320, "hold on")
    assert d.since(mark) == [STARTED]
    assert len(d.commands(c.Fence)) == 1
    said = next(text for role, text in d.texts() if role == "assistant")
    assert said
    assert HELLO.startswith(said)
    assert said != HELLO


def test_after_the_tail_speech_is_no_interruption() -> None:
    d = in_the_tail()
    d.run(1.0)
    assert d.session.state(d.now) == "idle"
    d.say(320, "hold on")
    assert not d.commands(c.Fence)
    assert next(text for role, text in d.texts() if role == "assistant") == HELLO


def test_two_answers_in_a_row_are_both_cut_where_the_listener_was() -> None:
    """A second answer begins while the tail of the first is still heard; the caller interrupts in that tail."""
    d = in_the_tail()
    d.engines.answer = [Say(3000, "And another thing altogether."), End()]
    d.client("response.create")
    d.run(0.02)
    d.say(96, "stop")
    first, second = [item for item in d.session.conversation if item.role == "assistant"]
    assert HELLO.startswith(first.text)
    assert first.text != HELLO
    assert second.text == ""
    assert d.done()["status_details"]["reason"] == "turn_detected"


# ---- the caller and the client at once ------------------------------------------------------------------------------


def test_an_out_of_band_response_survives_a_barge_in() -> None:
    d = speaking()
    d.engines.answer = [Say(500, "Aside.", after=2.0), End()]
    d.client("response.create", response={"conversation": "none", "metadata": {"topic": "aside"}})
    d.say(640, "hold on a second")
    d.settle()
    assert [event["response"]["status"] for event in d.of("response.done") if event["response"]["metadata"]] == ["completed"]


def test_a_response_that_the_client_asked_for_and_the_caller_talked_away_is_refused_not_forgotten() -> None:
    """It waited for the last words of the answer before; livekit would wait 10 s for it."""
    d = speaking()
    d.client("response.create", event_id="evt_wait")
    assert d.types[-1] != "error"
    d.say(640, "hold on a second")
    errors = [event["error"] for event in d.of("error")]
    assert [(error["code"], error["event_id"]) for error in errors] == [("conversation_already_has_active_response", "evt_wait")]


def test_speech_of_a_caller_who_already_speaks_does_not_interrupt_a_new_answer() -> None:
    d = Driver(policy=POLICY)
    d.say(640)
    d.client("response.create")
    d.say(640)
    assert not d.commands(c.Fence)
    d.hear(640, 0.0)
    d.settle()
    assert [event["response"]["status"] for event in d.of("response.done")] == ["completed", "completed"]


def test_a_caller_whose_audio_stops_in_the_middle_is_not_busy_for_ever() -> None:
    d = Driver()
    d.say(640)
    assert d.session.busy(d.now)
    d.run(60)
    assert d.session.state(d.now) == "listening"
    assert not d.session.busy(d.now)
