"""Cutting a text into clauses costs the same however much of it waits, and loses nothing of it, whatever it is."""

from __future__ import annotations

import time

import pytest
from antiphon.engines.clauses import ClauseOptions, ClauseSplitter
from hypothesis import given, settings
from hypothesis import strategies as st

OPTIONS = ClauseOptions()
TOKENS = st.sampled_from(
    [
        "Hello",
        "word",
        "Dr.",
        "U.S.",
        "1.",
        "`code",
        "x`",
        "```",
        "[link",
        "]",
        "(see",
        "...",
        "?!",
        "—",
        ",",
        "\n",
        "**b**",
        "etc.",
        "y" * 900,
    ]
)
GAPS = st.sampled_from([" ", " ", "", "\n", "   "])


def pieces(text: str, ahead: float) -> list[str]:
    splitter = ClauseSplitter()
    splitter.feed(text)
    splitter.finish()
    found: list[str] = []
    while (piece := splitter.take(ahead)) is not None:
        found.append(piece)
    assert splitter.exhausted
    return found


@pytest.mark.parametrize(
    "text",
    [
        "This is a sentence, yes. " * 1300,
        "word " * 6500,
        "a" * 32_000,
        "a. " * 4000,
        "`a. " * 8000,
        "[a, " * 8000,
        "." * 32_000 + " a",
        "\n" * 32_000 + "a. b",
        "." * 100 + "x" * 32_000 + ". a",
    ],
)
@pytest.mark.parametrize("ahead", [0.0, 2.0, 9.0])
def test_a_long_text_is_cut_in_little_time(text: str, ahead: float) -> None:
    """Each of these took from seconds to hours when every decision looked at all of the text."""
    began = time.process_time()
    found = pieces(text, ahead)
    assert time.process_time() - began < 5
    assert "".join(found) == text.rstrip()


@given(parts=st.lists(st.tuples(TOKENS, GAPS), max_size=60), ahead=st.sampled_from([0.0, 2.0, 9.0]))
@settings(max_examples=200, deadline=None)
def test_the_pieces_joined_are_the_text(parts: list[tuple[str, str]], ahead: float) -> None:
    text = "".join(token + gap for token, gap in parts)
    found = pieces(text, ahead)
    assert "".join(found).rstrip() == text.rstrip()
    assert all(len(piece) <= OPTIONS.window for piece in found)


def test_a_word_without_an_end_is_cut_before_it_ends() -> None:
    splitter = ClauseSplitter()
    splitter.feed("a" * 5000)
    assert splitter.take(0.0) == "a" * OPTIONS.longest_characters


def test_a_page_of_blank_lines_does_not_hold_up_what_follows() -> None:
    splitter = ClauseSplitter()
    splitter.feed("\n" * 40_000 + "Hello there, my friend. ")
    taken = ""
    while (piece := splitter.take(0.0)) is not None:
        taken += piece
    assert taken.strip() == "Hello there, my friend."
