"""Each figure by its definition, on call logs made by hand."""

import pytest
from antiphon.scenarios import figures
from antiphon.tests.scenarios.call_logs import TENTH, LogBuilder, a_call


def test_ttfp_counts_from_the_last_audible_sample_to_the_first_delta():
    first, second = figures.turns(a_call().log())
    assert first.ttfp == pytest.approx(0.6)
    assert second.ttfp == pytest.approx(0.5)


def test_word_error_rate_of_a_call():
    summary = figures.summarise(a_call().log())
    assert summary.wer == pytest.approx(1 / 12)
    assert summary.wer_noisy is None
    assert (summary.turns, summary.answered) == (2, 2)


def test_an_interruption_is_measured_to_the_last_stale_byte_or_the_stop_whichever_is_later():
    call = a_call()
    (row,) = figures.interruptions(call.log())
    assert row.cut
    assert row.withheld == pytest.approx(7.25 - 6.6)
    assert row.silent == pytest.approx(7.25 - 6.6)
    assert row.stale_bytes == 0
    assert row.heard_ms == pytest.approx(3650, abs=1)


def test_audio_after_the_stop_is_stale():
    call = a_call()
    call.events.append(figures.ServerEvent(7.4, "response.output_audio.delta", {"response_id": "one", "item_id": "item_one"}, TENTH))
    (row,) = figures.interruptions(call.log())
    assert row.stale_bytes == len(TENTH)
    assert row.withheld == pytest.approx(0.8)
    assert figures.summarise(call.log()).stale_bytes == len(TENTH)


def test_audio_after_the_terminal_is_stale_even_before_the_client_stops():
    call = a_call()
    (answer,) = [found for found in figures.answers(call.log().events).values() if found.response_id == "one"]
    answer.done = 7.0
    assert figures.stale_bytes(answer, 7.25) == sum(size for at, size in answer.deltas if at > 7.0) > 0


def test_an_interruption_that_cuts_nothing_is_missed():
    call = LogBuilder()
    call.say(1.0, 2.0, "Hello.", "Hello.")
    call.answer("one", 2.2, 2.4, 5.0, "Good day to you.")
    call.say(4.0, 5.0, "Stop.", "", kind="interrupt", over="item_one")
    (row,) = figures.interruptions(call.log())
    assert (row.cut, row.withheld, row.history_error) == (False, None, None)
    assert figures.summarise(call.log()).missed == 1


def test_an_interruption_that_was_over_nothing_does_not_count():
    call = LogBuilder()
    call.say(1.0, 2.0, "Hello.", "Hello.", kind="interrupt")
    assert figures.interruptions(call.log()) == []


def test_a_hum_that_cuts_is_a_false_interruption_and_one_that_does_not_is_none():
    call = a_call()
    assert figures.false_interruptions(call.log()) == []
    call.cuts.insert(0, (5.6, call.cuts[0][1]))
    assert [item.kind for item in figures.false_interruptions(call.log())] == ["backchannel"]
    assert figures.summarise(call.log()).hums_and_noises == 1


@pytest.mark.parametrize(
    ("ear", "error"), [("Once upon a time there was", 0), ("Once upon a time there was a fox", -2), ("Once upon a", 3)]
)
def test_history_is_compared_with_what_an_ear_hears(ear, error):
    (row,) = figures.interruptions(a_call().log(), {"item_one": ear})
    assert row.history_error == error


def test_history_is_not_judged_without_an_ear():
    (row,) = figures.interruptions(a_call().log())
    assert row.history_error is None


def test_an_answer_that_was_begun_too_early_is_not_the_answer():
    call = LogBuilder()
    call.say(1.0, 4.0, "I would like, hm, a table.", "I would like a table.")
    call.event(2.0, "response.created", response={"id": "early", "status": "in_progress"})
    call.done("early", 2.3, "cancelled")
    call.answer("late", 4.2, 4.5, 1.0, "Certainly.")
    (turn,) = figures.turns(call.log())
    assert turn.answer is not None
    assert (turn.answer.response_id, turn.premature) == ("late", 1)
    assert turn.ttfp == pytest.approx(0.5)


def test_a_turn_in_pieces_is_read_as_one_and_withdrawn_items_do_not_count():
    call = LogBuilder()
    call.say(1.0, 4.0, "One, two, three.", "two three")
    call.event(2.0, "input_audio_buffer.committed", item_id="first")
    call.event(2.1, "conversation.item.input_audio_transcription.completed", item_id="first", transcript="One,")
    call.event(2.2, "input_audio_buffer.committed", item_id="gone")
    call.event(2.3, "conversation.item.input_audio_transcription.completed", item_id="gone", transcript="nonsense")
    call.event(2.4, "conversation.item.deleted", item_id="gone")
    (turn,) = figures.turns(call.log())
    assert turn.written == "One, two three"
    assert turn.wrong_words == 0


def test_the_servers_own_figures_are_collected_by_name():
    report = {"turns": [{"figures_ms": {"ttft": 80.0, "gateway_share": 2.5}, "rtf": 0.01}, {"figures_ms": {"ttft": 90.0}, "rtf": None}]}
    assert figures.server_figures(report) == {"ttft": [80.0, 90.0], "gateway_share": [2.5], "rtf": [0.01]}


def test_percentiles():
    assert figures.percentile([], 0.5) is None
    assert figures.percentile([1.0, 2.0, 3.0], 0.5) == 2.0
