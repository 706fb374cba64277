"""Audio leaves in real time: short first slice, bounded lead, bounded wait for a slow reader, back-pressure to the pipeline."""

from __future__ import annotations

from typing import Any

import pytest
from antiphon.sessions import commands as c
from antiphon.sessions.input_audio import to_samples
from antiphon.sessions.policy import SessionLimits
from antiphon.tests.sessions.driver import HELLO, RATE, Driver, End, Engines, Left, Say


def audio(d: Driver) -> list[Left]:
    return [left for left in d if left.send.samples]


def started(answer: list[Any] | None = None, **settings: Any) -> Driver:
    d = Driver(engines=Engines(answer=answer or [Say(10_000, HELLO), End()]), **settings)
    d.client("response.create")
    d.run(0)
    return d


def test_the_first_slice_is_40_ms_and_the_others_160() -> None:
    d = started()
    d.settle()
    sizes = [left.send.samples * 1000 / RATE for left in audio(d)]
    assert sizes[0] == 40
    assert set(sizes[1:-1]) == {160}


def test_the_lead_is_filled_at_once() -> None:
    d = started()
    assert sum(left.send.samples for left in audio(d)) * 1000 / RATE == 360


def test_audio_is_never_more_than_the_lead_ahead_of_real_time() -> None:
    d = started(limits=SessionLimits(lead_ms=300))
    d.settle()
    sent = 0.0
    for left in audio(d):
        sent += left.send.samples / RATE
        assert sent - left.at <= 0.300 + 0.001
    assert d.speaker.most_ahead * 1000 / RATE <= 300.1


def test_the_lead_holds_across_two_answers() -> None:
    """The second answer is heard after the first, so its lead begins where the first one's ends."""
    d = started([Say(1000, HELLO), End()])
    d.run(0.7)
    d.client("response.create")
    d.settle()
    assert d.types.count("response.done") == 2
    assert d.speaker.most_ahead * 1000 / RATE <= 500.1
    assert sum(left.send.samples for left in audio(d)) == 2 * RATE


def test_the_player_never_runs_dry_while_the_engine_is_ahead() -> None:
    d = started()
    d.settle()
    assert not d.measured("player_underruns")
    assert d.now == pytest.approx(10.0, abs=0.1)


def test_an_engine_that_stalls_is_seen_as_an_underrun() -> None:
    d = started([Say(300, "One"), Say(300, " two", after=1.0), Say(300, " three", after=1.0), End()])
    d.settle()
    assert len(d.measured("player_underruns")) == 2


def test_the_gap_before_the_end_of_a_short_answer_is_no_underrun() -> None:
    d = started([Say(300, "One"), End(after=2.0)])
    d.settle()
    assert not d.measured("player_underruns")


def test_done_does_not_wait_for_the_listener() -> None:
    d = started([Say(2000, HELLO), End()])
    d.settle()
    done = next(left.at for left in d if left.type == "response.done")
    assert done == pytest.approx(1.5, abs=0.1)


def test_a_reader_that_stops_holds_at_most_500_ms_of_audio() -> None:
    d = started(speed=0)
    d.run(30)
    assert 0 < d.most_queued * 1000 / RATE <= 500
    d.set_speed(None)
    d.settle()
    assert d.done()["status"] == "completed"
    assert sum(left.send.samples for left in audio(d)) == 10 * RATE


def test_the_bound_for_a_slow_reader_is_its_own() -> None:
    d = started(speed=0, limits=SessionLimits(undelivered_ms=200, lead_ms=1000))
    d.run(30)
    assert 0 < d.most_queued * 1000 / RATE <= 200
    d.set_speed(None)
    d.settle()
    assert sum(left.send.samples for left in audio(d)) == 10 * RATE


def test_a_reader_that_stops_across_two_answers_holds_no_more() -> None:
    d = started([Say(400, HELLO), End()], speed=0)
    d.engines.answer = [Say(3000, HELLO), End()]
    d.client("response.create")
    d.run(30)
    assert d.most_queued * 1000 / RATE <= 500
    d.set_speed(None)
    d.settle()
    assert d.types.count("response.done") == 2


def test_a_reader_that_stopped_costs_no_ticks() -> None:
    d = started(speed=0)
    before = len(d.recorded)
    d.run(300)
    assert len(d.recorded) - before <= 10


def test_a_slow_reader_gets_everything_in_the_end() -> None:
    d = started([Say(3000, HELLO), End()], speed=0.5)
    d.settle()
    assert d.done()["status"] == "completed"
    assert d.now == pytest.approx(6.0, abs=0.5)


def test_a_pipeline_that_is_far_ahead_is_held_and_let_go() -> None:
    limits = SessionLimits(hold_above_ms=3000, hold_below_ms=1000)
    d = started([Say(500, f"word{n} ") for n in range(40)] + [End()], limits=limits)
    d.settle()
    holds = [(at, command.hold) for at, command in d.outbound if isinstance(command, c.HoldResponse)]
    assert [hold for _, hold in holds] == [True, False] * (len(holds) // 2)
    assert len(holds) >= 4
    assert d.done()["status"] == "completed"
    assert sum(left.send.samples for left in audio(d)) == 20 * RATE


def test_a_lead_shorter_than_a_slice_still_speaks() -> None:
    d = started([Say(1000, HELLO), End()], limits=SessionLimits(lead_ms=50))
    d.settle()
    assert sum(left.send.samples for left in audio(d)) == RATE


def test_words_lead_their_audio() -> None:
    d = started([Say(500, "One"), Say(500, " two."), End()])
    d.settle()
    order = [left.type.split(".")[1] for left in d if left.type.endswith(".delta")]
    assert order[0] == "output_audio_transcript"
    assert order.count("output_audio_transcript") == 2
    assert d.last("response.output_audio_transcript.done")["transcript"] == "One two."


def test_parallel_answers_share_what_may_wait_for_a_slow_reader() -> None:
    d = Driver(speed=0, engines=Engines(answer=[Say(3000, HELLO), End()]))
    for name in "abc":
        d.client("response.create", response={"conversation": "none", "input": [], "metadata": {"name": name}})
    d.run(2.0)
    waiting = sum(send.samples for send, _ in d.outbox)
    assert 0 < waiting <= to_samples(d.limits.undelivered_ms)
