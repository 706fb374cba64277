"""From a piece of the chat model's text to what is shown, what is spoken, and when each shown word is heard."""

from __future__ import annotations

from dataclasses import dataclass

from .messages import Word
from .speech.markup import strip_markup as strip_markdown
from .timing import split_words, spread


def speakable(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Clause:
    """`written` is the piece as a transcript shows it (no markdown); `spoken` is what the speech engine says ("$5" as "five dollars").
    `spoken` may be empty: a lone emoji or a rule of dashes is shown but not said."""

    written: str
    spoken: str


def make_clause(piece: str) -> Clause:
    """The two forms of a piece of chat text."""
    written = strip_markdown(piece)
    return Clause(written, speakable(written).strip())


def align(written: str, words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The times of the written words, from the engine's timed spoken `words` of the same clause. Joined they give `written`.

    Where the forms have as many words, word stands for word; where each written word's spoken form can be counted out of the
    spoken words, it covers those; else the written words share the time by the length of their spoken forms.
    """
    if not words:
        return ()
    pieces = split_words(written)
    if len(pieces) == len(words):
        return tuple(Word(piece, word.start_ms, word.end_ms) for piece, word in zip(pieces, words, strict=True))
    forms = [speakable(piece).strip() for piece in pieces]
    counts = [len(form.split()) for form in forms]
    if sum(counts) == len(words):
        return _by_count(pieces, counts, words)
    return _by_length(pieces, forms, words)


def _by_count(pieces: list[str], counts: list[int], words: tuple[Word, ...]) -> tuple[Word, ...]:
    timed: list[Word] = []
    position = 0
    for piece, count in zip(pieces, counts, strict=True):
        if count:
            timed.append(Word(piece, words[position].start_ms, words[position + count - 1].end_ms))
        else:  # shown but not spoken: it is heard with the word before
            at = timed[-1].end_ms if timed else words[0].start_ms
            timed.append(Word(piece, at, at))
        position += count
    return tuple(timed)


def _by_length(pieces: list[str], forms: list[str], words: tuple[Word, ...]) -> tuple[Word, ...]:
    start, end = words[0].start_ms, words[-1].end_ms
    total = max(1, sum(map(len, forms)))
    timed: list[Word] = []
    position = 0
    for piece, form in zip(pieces, forms, strict=True):
        begin = start + (end - start) * position / total
        position += len(form)
        timed.append(Word(piece, begin, start + (end - start) * position / total))
    return tuple(timed)


def guess(written: str, spoken: str, milliseconds_per_character: float = 65.0) -> tuple[Word, ...]:
    """Times for an engine that tells none: an ordinary pace of speech."""
    return spread(written, len(spoken) * milliseconds_per_character)
