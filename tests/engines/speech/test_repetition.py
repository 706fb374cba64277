"""The rules that notice when a transcript says itself again."""

from __future__ import annotations

import pytest
from antiphon.engines.speech.repetition import first_words, judge, period
from hypothesis import given
from hypothesis import strategies as st

SENTENCE = "Turn off the lights in the kitchen and lock the front door."


@pytest.mark.parametrize(
    ("text", "ended", "kept"),
    [
        (f"{SENTENCE} {SENTENCE}", True, SENTENCE),
        (f"{SENTENCE} Turn off the lights in", False, SENTENCE),
        (f"{SENTENCE} Turn off", True, SENTENCE),
        (f"{SENTENCE} Turn off the lights in the kit", False, SENTENCE),
        ("Yes. Yes. Yes. Yes.", True, "Yes."),
        ("Thank you. Thank you.", True, "Thank you."),
    ],
)
def test_repetitions_are_undone(text: str, ended: bool, kept: str) -> None:
    assert period(text, ended) == kept


@pytest.mark.parametrize(
    "text",
    [
        "It was the best of times, it was the worst of times.",
        "No, no.",
        "Bye bye.",
        "What is it and what is that?",
        "I want to go where I want",
        SENTENCE,
        "Yes.",
        "",
    ],
)
def test_what_people_say_is_left_alone(text: str) -> None:
    assert period(text) is None


def test_the_last_sentence_said_again_is_undone() -> None:
    assert judge(f"Hello there. {SENTENCE} Turn off the lights in", ended=True, seconds=8.0).text == f"Hello there. {SENTENCE}"
    assert judge(f"Hello there. {SENTENCE} {SENTENCE}", ended=True, seconds=8.0).text == f"Hello there. {SENTENCE}"
    kept = "Hello there. I don't know. I don't know."
    assert judge(kept, ended=True, seconds=8.0).text == kept


def test_too_many_words_for_the_time_or_no_end_is_distrusted() -> None:
    assert judge("one two three four five six seven eight", ended=True, seconds=1.0).text is None
    assert judge("one two three", ended=False, seconds=3.0).text is None
    assert judge("one two three", ended=True, seconds=1.0).text == "one two three"
    assert judge("one two one two", ended=True, seconds=1.0).text == "one two"


@given(st.lists(st.sampled_from(["a", "b", "c", "d."]), min_size=2, max_size=8), st.integers(2, 4))
def test_a_whole_repetition_always_shrinks(words: list[str], times: int) -> None:
    once = period(" ".join(words * times))
    assert once is None or len(once.split()) <= len(words)
    assert once is not None or len(words) * times <= 2


@given(st.text(max_size=80), st.floats(0, 30))
def test_never_raises(text: str, seconds: float) -> None:
    judge(text, True, seconds)
    assert len(first_words(text, seconds).split()) <= max(3, int(5.5 * seconds) + 1)
