"""The small decisions of turn taking, each alone: edges, overlap, end of turn, agreement."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from antiphon.sessions.agreement import Agreement
from antiphon.sessions.overlap import Overlap, Verdict, decide, normalise, opens, says_something
from antiphon.sessions.policy import TurnTakingPolicy
from antiphon.sessions.speech_edges import FRAME, SpeechEdges
from antiphon.sessions.turn_end import has_ended, silence_timeout_ms
from antiphon.tests.sessions.profile import bounded
from hypothesis import given

# ---- speech edges ---------------------------------------------------------------------------------------------------


def follow(*probabilities: float, threshold: float = 0.5, start: int = 0) -> SpeechEdges:
    edges = SpeechEdges(min_speech_ms=96, hysteresis=0.15)
    for index, probability in enumerate(probabilities):
        edges.frame(start + index * FRAME, probability, threshold)
    return edges


def test_speech_begins_with_the_first_of_three_frames() -> None:
    assert not follow(0.1, 0.9, 0.9).active
    edges = follow(0.1, 0.9, 0.9, 0.9)
    assert edges.active
    assert (edges.onset, edges.span_ms, edges.silence_ms) == (FRAME, 96, 0)


def test_a_gap_starts_the_count_anew() -> None:
    assert not follow(0.9, 0.9, 0.1, 0.9, 0.9).active


def test_hysteresis_holds_speech_that_has_begun_and_opens_none() -> None:
    assert not follow(0.4, 0.4, 0.4, 0.4).active
    assert follow(0.9, 0.9, 0.9, 0.4).silence_ms == 0
    assert follow(0.9, 0.9, 0.9, 0.34).silence_ms == 32


def test_span_ends_with_the_last_voiced_frame() -> None:
    edges = follow(0.9, 0.9, 0.9, 0.0, 0.0)
    assert (edges.span_ms, edges.silence_ms) == (96, 64)
    assert edges.last_voiced == 3 * FRAME


@given(st.lists(st.floats(0, 1), max_size=60), st.floats(0, 1))
@bounded(60, 1000)
def test_edges_agree_with_a_plain_reading_of_the_scores(scores: list[float], threshold: float) -> None:
    edges = follow(*scores, threshold=threshold)
    begun = next((n for n in range(len(scores) - 2) if all(score >= threshold for score in scores[n : n + 3])), None)
    assert edges.active is (begun is not None)
    if begun is not None:
        bar = max(0.01, threshold - 0.15)
        voiced = max(n for n in range(len(scores)) if n < begun + 3 or scores[n] >= bar)
        assert edges.onset == begun * FRAME
        assert edges.span_ms == (voiced + 1 - begun) * 32
        assert edges.silence_ms == (len(scores) - 1 - voiced) * 32


# ---- overlap --------------------------------------------------------------------------------------------------------

POLICY = TurnTakingPolicy(confirm_ms=512, opener_ms=320, backchannel_ms=1400, overlap_end_ms=256, overlap_words_wait_ms=200)
WAIT, ASK, INTERRUPT, IGNORE = Verdict.WAIT, Verdict.ASK, Verdict.INTERRUPT, Verdict.IGNORE


@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        # it goes on
        ({"span_ms": 96}, WAIT),
        ({"span_ms": 352}, ASK),
        ({"span_ms": 352, "asking": True}, WAIT),
        ({"span_ms": 544, "words": "mm-hm", "words_of_ms": 540}, WAIT),
        ({"span_ms": 544, "words": "the other", "words_of_ms": 540}, INTERRUPT),
        ({"span_ms": 480, "words": "the other", "words_of_ms": 470}, WAIT),
        ({"span_ms": 352, "words": "stop", "words_of_ms": 340}, INTERRUPT),
        ({"span_ms": 288, "words": "stop", "words_of_ms": 280}, WAIT),
        ({"span_ms": 544, "asking": True}, WAIT),
        ({"span_ms": 800, "asking": True, "since_confirm_ms": 224}, INTERRUPT),
        ({"span_ms": 1000, "words": "mm-hm", "words_of_ms": 600}, ASK),
        ({"span_ms": 1408, "words": "mm-hm", "words_of_ms": 1400}, INTERRUPT),
        # it is over
        ({"span_ms": 128, "silence_ms": 256}, IGNORE),
        ({"span_ms": 320, "silence_ms": 224}, ASK),
        ({"span_ms": 320, "silence_ms": 256}, ASK),
        ({"span_ms": 320, "silence_ms": 256, "words": "stop", "words_of_ms": 576}, INTERRUPT),
        ({"span_ms": 320, "silence_ms": 256, "words": "pizza", "words_of_ms": 576}, IGNORE),
        ({"span_ms": 320, "silence_ms": 256, "words": "", "words_of_ms": 576}, IGNORE),
        ({"span_ms": 640, "silence_ms": 256, "words": "the other one", "words_of_ms": 900}, INTERRUPT),
        ({"span_ms": 640, "silence_ms": 256, "words": "yeah right", "words_of_ms": 900}, IGNORE),
        ({"span_ms": 320, "silence_ms": 800, "asking": True, "since_confirm_ms": 480}, IGNORE),
        ({"span_ms": 640, "silence_ms": 800, "asking": True, "since_confirm_ms": 480}, INTERRUPT),
        # no words can be had
        ({"span_ms": 384, "words_lost": True}, WAIT),
        ({"span_ms": 512, "words_lost": True}, INTERRUPT),
        ({"span_ms": 384, "silence_ms": 256, "words_lost": True}, IGNORE),
    ],
)
def test_overlap_table(known: dict[str, int | str | bool], verdict: Verdict) -> None:
    assert decide(Overlap(**{"silence_ms": 0, **known}), POLICY) is verdict  # type: ignore[arg-type]


@given(
    st.builds(
        Overlap,
        span_ms=st.integers(96, 3000),
        silence_ms=st.integers(0, 3000),
        words=st.none() | st.sampled_from(["", "mm-hm", "stop", "the other one"]),
        words_of_ms=st.integers(0, 3000),
        asking=st.booleans(),
        words_lost=st.booleans(),
        since_confirm_ms=st.integers(0, 3000),
    ),
    st.booleans(),
)
@bounded(300, 5000)
def test_overlap_rules_that_hold_everywhere(overlap: Overlap, with_words: bool) -> None:
    policy = TurnTakingPolicy(confirm_ms=512, opener_ms=320, backchannel_ms=1400, overlap_words=with_words)
    verdict = decide(overlap, policy)
    if overlap.asking:
        assert verdict is not ASK, "one question at a time"
    if overlap.span_ms >= policy.backchannel_ms:
        assert verdict is INTERRUPT, "whoever speaks on is heard"
    ended = overlap.silence_ms >= policy.overlap_end_ms
    if ended and overlap.since_confirm_ms > 1000:
        assert verdict in (INTERRUPT, IGNORE), "a decision comes in bounded time"
    if verdict is INTERRUPT and overlap.span_ms < policy.confirm_ms:
        assert overlap.words == "stop", "only an opener is faster than the confirm window"
    assert decide(overlap, TurnTakingPolicy(confirm_ms=0)) is INTERRUPT


@pytest.mark.parametrize(
    "text", ["mm-hm", "Mm-hmm.", "uh-huh", "Yeah.", "Okay!", "Right, right.", "hmm", "Ah", "I see.", "", "...", "mmmm"]
)
def test_backchannels_say_nothing(text: str) -> None:
    assert not says_something(text, POLICY)


@pytest.mark.parametrize("text", ["Stop.", "No, the other one.", "yeah but wait", "Zürich", "7", "час"])
def test_other_words_say_something(text: str) -> None:
    assert says_something(text, POLICY)


@pytest.mark.parametrize("text", ["Stop!", "wait a moment", "Don’t do that"])
def test_openers(text: str) -> None:
    assert opens(text, POLICY)


@pytest.mark.parametrize("text", ["pizza", "", "..."])
def test_no_openers(text: str) -> None:
    assert not opens(text, POLICY)


def test_words_are_compared_without_case_and_punctuation() -> None:
    assert normalise("Mm-hm, it's FINE… (really)") == ["mm-hm", "it's", "fine", "really"]


# ---- the end of a turn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("eagerness", "timeout"), [("low", 8000), ("medium", 4000), ("auto", 4000), ("high", 2000)])
def test_the_timeout_ends_the_turn_whatever_the_engine_says(eagerness: str, timeout: int) -> None:
    assert silence_timeout_ms(eagerness) == timeout
    for probability in (None, 0.0):
        assert has_ended(timeout, probability, eagerness)
        assert not has_ended(timeout - 1 if probability is None else timeout // 2, probability, eagerness)


@given(st.integers(1, 9000), st.integers(0, 2000), st.floats(0, 1), st.floats(0, 1), st.sampled_from(["low", "medium", "auto", "high"]))
@bounded(200, 3000)
def test_more_silence_or_more_certainty_never_reopens_a_turn(silence: int, more: int, p: float, q: float, eagerness: str) -> None:
    low, high = sorted((p, q))
    if has_ended(silence, low, eagerness):
        assert has_ended(silence + more, low, eagerness)
        assert has_ended(silence, high, eagerness)
    if has_ended(silence, low, "low"):
        assert has_ended(silence, low, "medium")
    if has_ended(silence, low, "medium"):
        assert has_ended(silence, low, "high")


# ---- agreement ------------------------------------------------------------------------------------------------------


def test_a_word_is_given_once_two_decodings_agree_on_it() -> None:
    agreement = Agreement()
    assert agreement.partial("what") == ""
    assert agreement.partial("what is the") == "what"
    assert agreement.partial("What is a time") == " is"
    assert agreement.final("What is the time?") == " the time?"
    assert agreement.committed == "what is the time?"


def test_what_was_given_is_never_taken_back() -> None:
    agreement = Agreement()
    agreement.partial("recognise speech")
    assert agreement.partial("recognise speech") == "recognise speech"
    assert agreement.final("wreck a nice beach") == ""
    assert agreement.committed == "recognise speech"


def test_words_of_other_scripts_disagree_too() -> None:
    agreement = Agreement()
    agreement.partial("который час")
    assert agreement.partial("который день") == "который"


WORDS = st.lists(st.sampled_from(["what", "is", "the", "time", "The", "now?"]), max_size=6).map(" ".join)


@given(st.lists(WORDS, max_size=8), WORDS)
@bounded(150, 3000)
def test_deltas_join_to_what_was_committed(partials: list[str], final: str) -> None:
    agreement = Agreement()
    given_out = "".join([*map(agreement.partial, partials), agreement.final(final)])
    assert given_out == agreement.committed
    assert given_out == " ".join(given_out.split())
    if len(given_out.split()) == len(final.split()) and not partials:
        assert given_out == final


def test_a_hum_that_comes_back_as_an_opener_is_not_believed() -> None:
    """Small ASR models write hums down as words ("Mm-hmm" as "No"), and say themselves that they are not sure."""
    hum = Overlap(span_ms=480, silence_ms=256, words="No", logprob=-3.0, words_of_ms=480)
    assert decide(hum, TurnTakingPolicy()) is Verdict.IGNORE
    assert decide(replace(hum, logprob=-0.4), TurnTakingPolicy()) is Verdict.INTERRUPT
