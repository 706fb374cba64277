"""Written text to spoken text."""

from __future__ import annotations

import re

import pytest
from antiphon.engines.speech import numbers
from antiphon.engines.speech.text import speakable
from hypothesis import given, settings
from hypothesis import strategies as st

SAID = [
    # money
    ("It costs $5.99.", "It costs five dollars and ninety-nine cents."),
    ("$1, $0.50, €20, £3.5 million, $5k", "one dollar, fifty cents, twenty euros, three point five million pounds, five thousand dollars"),
    ("$10-$20 or 5€", "ten to twenty dollars or five euros"),
    # numbers
    (
        "1,250,000 and 3.14 and -5 and 007",
        "one million two hundred fifty thousand and three point one four and minus five and zero zero seven",
    ),
    ("the 1st, 22nd and 103rd", "the first, twenty-second and one hundred third"),
    ("1/2 or 3/4 or 2/3", "one half or three quarters or two thirds"),
    ("50% to 3.5%, 1-2%", "fifty percent to three point five percent, one to two percent"),
    ("10-20 pages", "ten to twenty pages"),
    ("#5 of ~10", "number five of about ten"),
    ("5 * 3 = 15", "five times three equals fifteen"),
    # years, dates, times
    ("in 1984, 2005, 2024 and 1900", "in nineteen eighty-four, two thousand five, twenty twenty-four and nineteen hundred"),
    ("the 1990s and the '90s", "the nineteen nineties and the nineties"),
    ("March 3, 2024 or 3 March 2024", "March third, twenty twenty-four or the third of March twenty twenty-four"),
    ("12/25/2024 or 2024-03-05", "December twenty-fifth, twenty twenty-four or March fifth, twenty twenty-four"),
    ("Jan. 5th", "January fifth"),
    ("at 10:30 pm, 3pm, 7:05 or 10:00", "at ten thirty P.M., three P.M., seven oh five or ten o'clock"),
    ("1914–1918", "nineteen fourteen to nineteen eighteen"),
    # units
    ("120 km/h for 5 km and 1 km", "one hundred twenty kilometers per hour for five kilometers and one kilometer"),
    ("20°C is 68 °F", "twenty degrees Celsius is sixty-eight degrees Fahrenheit"),
    ("16GB at 3.5 GHz", "sixteen gigabytes at three point five gigahertz"),
    ("5 in the morning", "five in the morning"),
    # phones and names with digits
    ("Call 555-123-4567.", "Call five five five, one two three, four five six seven."),
    ("(555) 123-4567", "five five five, one two three, four five six seven"),
    ("MP3, RTX4090, B2B, Covid-19", "MP three, RTX forty ninety, B two B, Covid nineteen"),
    ("version v1.2.3 24/7", "version version one point two point three twenty-four seven"),
    # abbreviations
    ("Dr. Smith and Mrs. Jones", "Doctor Smith and Missus Jones"),
    ("Main St. near St. Paul", "Main Street near Saint Paul"),
    ("e.g. apples, i.e. fruit, etc.", "for example apples, that is fruit, et cetera."),
    ("No. 5 vs. No. 6", "Number five versus Number six"),
    ("and/or w/ salt & pepper", "and or with salt and pepper"),
    ("the U.S.A. and NASA at 5 p.m. sharp", "the U.S.A. and NASA at five P.M. sharp"),
    ("World War II and Henry VIII", "World War two and Henry the eighth"),
    # punctuation
    ('I think... wait… "yes," (really)', "I think… wait… yes, really"),
    ("one — two—three", "one— two— three"),
    ("Mail me@mail.com or https://www.example.com/foo-bar?x=1", "Mail me at mail dot com or example dot com slash foo bar"),
    # markup
    ("**Hello**, _world_! `code`", "Hello, world! code"),
    ("A [link](http://x.com/a_(b)) and ![image](y.png)", "A link and image"),
    ("# Title\n\nText\n- Milk\n- Eggs\n1. Bread", "Title. Text, Milk, Eggs, Bread"),
    ("Before\n```python\nprint(1)\n```\nAfter", "Before. After"),
    ("Open **bold and *italic", "Open bold and italic"),
    ("<b>bold</b> &amp; <!-- hidden --> more", "bold and more"),
    ("| a | b |\n|---|---|\n| c | d |", "a, b. c, d."),
    ("Great job 😀🎉!", "Great job!"),
    ("Don't rock 'n' roll, naïve café", "Don't rock n roll, naïve café"),
]


@pytest.mark.parametrize(("written", "said"), SAID)
def test_is_said(written: str, said: str) -> None:
    assert speakable(written).spoken == said


def test_the_transcript_keeps_what_was_written() -> None:
    text = speakable(" It **costs** $5.99 at 10:30 pm 😀 ")
    assert text.written == " It costs $5.99 at 10:30 pm 😀 "
    assert [(piece.written, piece.spoken) for piece in text.pieces] == [
        (" It", "It"),
        (" costs", "costs"),
        (" $5.99", "five dollars and ninety-nine cents"),
        (" at", "at"),
        (" 10:30", "ten thirty"),
        (" pm", "P.M."),
        (" 😀 ", ""),
    ]


@pytest.mark.parametrize(("_written", "said"), SAID)
def test_saying_what_is_said_changes_nothing(_written: str, said: str) -> None:
    assert speakable(said).spoken == said


MARKS = st.sampled_from(list("*_`#[]()<>|~$%&@+-=/\\'\"!?.,;:0123456789°€½—… \n\tabcXYZ😀é日²‍"))
ANY_TEXT = st.text(max_size=120) | st.lists(MARKS, max_size=80).map("".join)
WORDS = st.sampled_from(
    ["Dr.", "$5", "10:30", "pm", "March", "3,", "2024", "**bold**", "km/h", "5", "1/2", "e.g.", "St.", "#1", "`x`", "(a)", "-", "—"]
)
MIXED = st.lists(WORDS, max_size=12).map(" ".join)


@given(ANY_TEXT | MIXED)
@settings(max_examples=600, deadline=None)
def test_only_letters_pauses_and_spaces_are_spoken(text: str) -> None:
    spoken = speakable(text).spoken
    assert not re.search(r"[0-9*_`#\[\]()<>|~$%&@+=/\\{}\"\n\t°€]", spoken)
    assert "  " not in spoken
    assert all(character.isprintable() for character in spoken)


@given(ANY_TEXT | MIXED)
@settings(max_examples=300, deadline=None)
def test_every_spoken_piece_has_a_letter(text: str) -> None:
    assert all(not piece.spoken or any(character.isalpha() for character in piece.spoken) for piece in speakable(text).pieces)


@given(MIXED)
@settings(max_examples=200, deadline=None)
def test_written_words_are_the_pieces(text: str) -> None:
    result = speakable(text)
    assert [piece.written.strip() for piece in result.pieces if piece.written.strip()] == result.written.split()


@given(st.integers(0, 10**18 - 1))
def test_cardinals_are_words(value: int) -> None:
    assert re.fullmatch(r"[a-z]+(?:[ -][a-z]+)*", numbers.cardinal(value))


def test_cardinals_and_ordinals_differ_for_each_number() -> None:
    assert len({numbers.cardinal(value) for value in range(5000)}) == 5000
    assert len({numbers.ordinal(value) for value in range(5000)}) == 5000
    assert numbers.cardinal(1_000_000) == "one million"
    assert numbers.ordinal(112) == "one hundred twelfth"
    assert numbers.cardinal(10**30) == numbers.digits(str(10**30))
