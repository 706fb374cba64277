"""Clauses: where a growing text is cut, and the connectors that hand pieces over."""

from __future__ import annotations

import asyncio

import pytest
from antiphon.engines.clauses import ClauseOptions, ClauseSplitter
from antiphon.engines.connectors import ClauseConnector, PlainConnector
from hypothesis import given
from hypothesis import strategies as st


def pieces(text: str, ahead: float = 0.0, step: int = 3) -> list[str]:
    """The pieces of a text that comes in `step` characters at a time, with `ahead` seconds in hand once the first is out."""
    splitter = ClauseSplitter()
    out: list[str] = []
    for start in range(0, len(text), step):
        splitter.feed(text[start : start + step])
        while (piece := splitter.take(ahead if out else 0.0)) is not None:
            out.append(piece)
    splitter.finish()
    while (piece := splitter.take(ahead if out else 0.0)) is not None:
        out.append(piece)
    assert splitter.exhausted
    return out


def test_the_first_piece_goes_out_at_the_first_mark_after_three_words() -> None:
    assert pieces("Well, I think so, but let me look.")[0] == "Well, I think so,"


def test_without_a_mark_the_first_piece_is_eight_words() -> None:
    assert pieces("one two three four five six seven eight nine ten eleven twelve")[0] == "one two three four five six seven eight"


def test_later_pieces_are_sentences_while_there_is_time() -> None:
    text = "This is the first. Now, as you see, comes a second one. And a third."
    assert pieces(text, ahead=2.0) == ["This is the first.", " Now, as you see, comes a second one.", " And a third."]


def test_later_pieces_are_clauses_when_audio_runs_short() -> None:
    text = "This is the first. Now as you can see, comes a second one."
    assert pieces(text) == ["This is the first.", " Now as you can see,", " comes a second one."]


def test_far_ahead_sentences_go_together() -> None:
    text = "This is the first. " + "Here is one more sentence. " * 4
    assert pieces(text, ahead=10.0) == ["This is the first.", " Here is one more sentence." * 3, " Here is one more sentence."]


@pytest.mark.parametrize(
    "text",
    [
        "It costs about 3.5 dollars per kilo now.",
        "Please ask for Dr. Smith at the desk.",
        "Look at https://example.com/a,b?c=1.5&d=2 for it.",
        "We met J. R. Tolkien in the U.S. yesterday.",
        "Use e.g. the small one for that.",
        "It has 1,000,000 people in it.",
        "It is at 10:30 in the morning.",
    ],
)
def test_marks_inside_a_word_do_not_cut(text: str) -> None:
    splitter = ClauseSplitter(ClauseOptions(first_limit=99))
    splitter.feed(text)
    splitter.finish()
    assert splitter.take(0.0) == text


def test_links_and_code_stay_whole() -> None:
    text = "You can read [this, or that. Yes](https://a.b/c) first. Then run `a, b; c. d` now."
    assert pieces(text, ahead=2.0) == ["You can read [this, or that. Yes](https://a.b/c) first.", " Then run `a, b; c. d` now."]


def test_lists_are_cut_by_line() -> None:
    assert pieces("Here are three things:\n1. apples\n2. pears", ahead=2.0) == ["Here are three things:", "\n1. apples\n", "2. pears"]


def test_a_short_answer_waits_for_its_end_only() -> None:
    assert pieces("Yes.") == ["Yes."]


def test_an_endless_sentence_is_cut_between_words() -> None:
    out = pieces("word " * 200, ahead=10.0)
    assert max(len(piece.split()) for piece in out) <= 36
    assert "".join(out).split() == ["word"] * 200


@given(
    text=st.text(st.sampled_from("abc A.,;:!?\n-`[]()*—“”'3é"), max_size=300),
    ahead=st.floats(0, 10),
    step=st.integers(1, 20),
)
def test_pieces_joined_are_the_text(text: str, ahead: float, step: int) -> None:
    out = pieces(text, ahead, step)
    assert "".join(out).rstrip() == text.rstrip()
    assert all(piece.strip() for piece in out)


@given(text=st.text(max_size=200), step=st.integers(1, 9))
def test_any_text_comes_through(text: str, step: int) -> None:
    assert "".join(pieces(text, 0.0, step)).rstrip() == text.rstrip()


async def test_the_clause_connector_hands_over_and_ends() -> None:
    connector = ClauseConnector(lambda: 0.0)

    async def write() -> None:
        for word in ("Hello ", "my ", "dear ", "friend. ", "How ", "are ", "you? "):
            await connector.put(word)
            await asyncio.sleep(0)
        connector.finish()

    writer = asyncio.create_task(write())
    got = []
    while (piece := await connector.get()) is not None:
        got.append(piece)
    await writer
    assert got == ["Hello my dear friend.", " How are you?"]
    assert await connector.get() is None


async def test_a_full_clause_connector_holds_the_writer_back() -> None:
    connector = ClauseConnector(lambda: 0.0, bound=16)
    await connector.put("x" * 16)
    writer = asyncio.create_task(connector.put(" and more"))
    await asyncio.sleep(0.01)
    assert not writer.done()
    assert connector.health().waits == 1
    connector.cleanup()
    await writer
    assert await connector.get() is None


async def test_time_makes_a_shorter_piece_good_enough() -> None:
    ahead = [5.0]
    connector = ClauseConnector(lambda: ahead[0])
    await connector.put("This is the first. Short one. And")
    assert await connector.get() == "This is the first."
    reader = asyncio.create_task(connector.get())
    await asyncio.sleep(0.01)
    assert not reader.done()  # with five seconds in hand a short sentence can wait for company
    ahead[0] = 0.2
    assert await asyncio.wait_for(reader, 2.0) == " Short one."


async def test_the_plain_connector_is_bounded_and_ordered() -> None:
    connector = PlainConnector(bound=2)

    async def write() -> None:
        for number in range(5):
            await connector.put(number)
        connector.finish()

    writer = asyncio.create_task(write())
    await asyncio.sleep(0.01)
    assert connector.health().depth == 2
    got = []
    while (item := await connector.get()) is not None:
        got.append(item)
    await writer
    assert got == [0, 1, 2, 3, 4]
