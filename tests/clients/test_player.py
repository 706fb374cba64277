"""The simulated player: arithmetic over arrival times."""

import pytest
from antiphon.clients.player import SimulatedPlayer

SECOND = bytes(48_000)
TENTH = bytes(4_800)


def test_audio_that_comes_in_time_is_played_without_a_gap():
    player = SimulatedPlayer()
    player.play("item", 0, TENTH, 10.0)
    player.play("item", 0, TENTH, 10.05)
    player.play("item", 0, TENTH, 10.19)
    assert player.underruns == 0
    (segment,) = player.segments()
    assert (segment.start, len(segment.pcm)) == (10.0, 3 * len(TENTH))


def test_a_late_delta_is_an_underrun_with_its_length():
    player = SimulatedPlayer()
    player.play("item", 0, TENTH, 10.0)
    player.play("item", 0, TENTH, 10.25)
    assert player.underruns == 1
    assert player.underrun_s == pytest.approx(0.15)
    assert [segment.start for segment in player.segments()] == [10.0, 10.25]


def test_a_pause_between_items_is_no_underrun():
    player = SimulatedPlayer()
    player.play("one", 0, TENTH, 10.0)
    player.finish("one")
    player.play("two", 0, TENTH, 14.0)
    assert player.underruns == 0


def test_heard_follows_the_clock_and_not_the_arrivals():
    player = SimulatedPlayer()
    player.play("item", 0, SECOND, 10.0)
    assert player.heard_ms("item", 10.3) == pytest.approx(300)
    assert player.heard_ms("item", 99.0) == pytest.approx(1000)
    assert player.heard_ms("unknown", 99.0) == 0


def test_stop_says_what_was_heard_and_throws_the_rest_away():
    player = SimulatedPlayer()
    player.play("item", 0, SECOND, 10.0)
    (stopped,) = player.stop(10.4)
    assert (stopped.item_id, stopped.content_index) == ("item", 0)
    assert stopped.heard_ms == pytest.approx(400)
    assert player.playing(10.4) is None
    assert not player.play("item", 0, TENTH, 10.41)
    assert player.stale_bytes == len(TENTH)
    assert len(player.heard_audio("item")) == pytest.approx(0.4 * 48_000, abs=2)


def test_stop_cuts_what_waits_behind_the_item_being_heard_too():
    player = SimulatedPlayer()
    player.play("one", 0, SECOND, 10.0)
    player.finish("one")
    player.play("two", 0, SECOND, 10.2)
    assert [(cut.item_id, round(cut.heard_ms)) for cut in player.stop(10.5)] == [("one", 500), ("two", 0)]


def test_an_answer_that_was_heard_to_its_end_is_not_cut():
    player = SimulatedPlayer()
    player.play("item", 0, SECOND, 10.0)
    player.finish("item")
    assert player.playing(10.99) == "item"
    assert player.playing(11.01) is None
    assert player.stop(11.01) == ()


def test_playing_begins_anew_after_a_stop():
    player = SimulatedPlayer()
    player.play("old", 0, SECOND, 10.0)
    player.stop(10.1)
    player.play("new", 0, TENTH, 10.3)
    assert player.segments()[-1].start == 10.3
    assert player.underruns == 0
