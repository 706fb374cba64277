"""Over a media track the server owns the playback buffer and says what happens to it; over a WebSocket it says nothing."""

from __future__ import annotations

import pytest
from antiphon.tests.sessions.driver import Driver, End, Engines, Say

STARTED = "output_audio_buffer.started"
STOPPED = "output_audio_buffer.stopped"
CLEARED = "output_audio_buffer.cleared"
TRUNCATED = "conversation.item.truncated"
SPEECH = "input_audio_buffer.speech_started"


def calling(ms: float = 6000, track: bool = True, speed: float | None = None) -> Driver:
    """The assistant has begun to speak."""
    d = Driver(track=track, speed=speed, engines=Engines(answer=[Say(ms, "one two three four five six"), End()]))
    d.turn()
    d.hear(1216, 0.0)
    return d


@pytest.mark.parametrize("speed", [None, 1.0])
def test_an_answer_starts_after_its_content_and_stops_when_it_was_heard(speed: float | None) -> None:
    d = calling(ms=2000, speed=speed)
    d.settle()
    buffer = [t for t in d.types if t in ("response.content_part.added", STARTED, "response.done", STOPPED)]
    assert buffer == ["response.content_part.added", STARTED, "response.done", STOPPED]
    assert d.last(STARTED)["response_id"] == d.last(STOPPED)["response_id"] == d.done()["id"]


def test_an_interruption_clears_the_buffer_and_truncates_the_item() -> None:
    d = calling()
    mark = len(d.left)
    d.say(900, "hold on a second")
    told = [t for t in d.since(mark) if t in (SPEECH, CLEARED, TRUNCATED, "response.done")]
    assert told == [SPEECH, CLEARED, TRUNCATED, "response.done"]
    heard = d.speaker.heard_ms(d.done()["id"], d.now)
    assert abs(d.last(TRUNCATED)["audio_end_ms"] - heard) <= 20
    d.settle()
    assert STOPPED not in d.types or d.last(STOPPED)["response_id"] != d.last(CLEARED)["response_id"]


def test_an_interruption_of_the_last_words_truncates_a_finished_response() -> None:
    d = calling(ms=2500)
    while "response.done" not in d.types:
        d.hear(32, 0.0)
    d.say(900, "hold on a second")
    if CLEARED in d.types:
        assert d.types.count("response.done") >= 1
        assert d.last(TRUNCATED)["item_id"] == d.last("response.output_audio.delta")["item_id"]


def test_the_client_clears_the_buffer() -> None:
    d = calling()
    told = [event["type"] for event in d.client("output_audio_buffer.clear")]
    assert told[:2] == [CLEARED, TRUNCATED]
    assert told.count(CLEARED) == 1
    assert told[-1] == "response.done"


def test_a_truncation_by_the_client_is_answered_once() -> None:
    d = calling()
    item_id = d.last("response.output_audio.delta")["item_id"]
    told = [event["type"] for event in d.client("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=500)]
    assert told.count(TRUNCATED) == 1
    assert told.count(CLEARED) == 1


def test_over_a_websocket_the_buffer_is_the_clients() -> None:
    d = calling(ms=2000, track=False)
    d.settle()
    assert not [t for t in d.types if t.startswith("output_audio_buffer")]
