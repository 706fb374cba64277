"""The English normaliser, the word error rate, and the words in a cut recording."""

import pytest
from antiphon.scenarios.words import edits, normalise, word_error_rate, words_heard


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It won't rain, will it?", "it will not rain will it"),
        ("We're late; I can't come.", "we are late i can not come"),
        ("Twelve percent of three hundred.", "12% of 300"),
        ("Twenty-one days", "21 days"),
        ("one two three", "1-2-3"),
        ("seven thirty in the morning", "7:30 in the morning"),
        ("two thousand five hundred", "2,500"),
        ("My favourite colour is grey", "my favorite color is gray"),
        ("Um, the fox's den (laughs)", "the foxs den"),
        ("Okay, that's it.", "OK that is it"),
        ("Mr. Smith and Dr. Jones", "Mister Smith and Doctor Jones"),
    ],
)
def test_what_sounds_alike_is_written_alike(one, other):
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("twenty one", ["21"]),
        ("twenty eleven", ["20", "11"]),
        ("three four", ["3", "4"]),
        ("one hundred and five", ["100", "and", "5"]),
        ("two hundred five", ["205"]),
        ("a million", ["a", "million"]),
        ("three million", ["3000000"]),
        ("zero", ["0"]),
        ("", []),
    ],
)
def test_numbers_become_digits(words, expected):
    assert normalise(words) == expected


def test_edits_are_the_fewest():
    assert edits([], []) == 0
    assert edits(list("kitten"), list("sitting")) == 3
    assert edits(list("abc"), []) == 3


def test_word_error_rate_is_pooled():
    assert word_error_rate([("a b c d", "a b c d"), ("e", "f")]) == pytest.approx(0.2)
    assert word_error_rate([]) == 0


@pytest.mark.parametrize(
    ("ear", "words"),
    [
        ("", 0),
        ("Once upon a", 3),
        ("Once upon a tie", 4),
        ("Once upon at time there was a", 7),
        ("Once upon a time there was a fox who wanted to fly", 12),
    ],
)
def test_the_words_of_a_cut_recording_are_found_despite_errors_of_the_ear(ear, words):
    assert words_heard("Once upon a time, there was a fox who wanted to fly.", ear) == words
