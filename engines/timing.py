"""When each word of a text is spoken, where the engine does not say."""

from __future__ import annotations

from .messages import Word


def split_words(text: str) -> list[str]:
    """The words of `text`, each with the white space before it; joined they give `text`. Trailing white space stays with the last word."""
    pieces: list[str] = []
    for character in text:
        if pieces and not (character.isspace() and not pieces[-1][-1].isspace()):
            pieces[-1] += character
        else:
            pieces.append(character)
    if len(pieces) > 1 and pieces[-1].isspace():
        pieces[-2:] = [pieces[-2] + pieces[-1]]
    return pieces


def spread(text: str, duration_ms: float) -> tuple[Word, ...]:
    """The words of `text` over `duration_ms`, each with time in proportion to its length. Joined they give `text`."""
    total = max(1, len(text))
    words: list[Word] = []
    position = 0
    for piece in split_words(text):
        start = position * duration_ms / total
        position += len(piece)
        words.append(Word(piece, start, position * duration_ms / total))
    return tuple(words)
