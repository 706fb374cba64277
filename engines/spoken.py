"""From a piece of the chat model's text to what is shown, and when each shown word is heard."""

from __future__ import annotations

from .messages import AudioChunk, Word
from .speech.text import speakable
from .timing import spread

_PACE_MS = 65.0
"""An ordinary pace of speech, per character, for engines that tell no times."""


class Clause:
    """A piece of chat text: `written` as a transcript shows it (no markdown); `audible` when some of it can be said (a lone emoji or a
    rule of dashes is shown, not said)."""

    def __init__(self, piece: str) -> None:
        parts = speakable(piece)
        self.written = parts.written
        self.audible = bool(parts.spoken)
        self._told = ""
        self._own_words = True

    def label(self, chunk: AudioChunk) -> tuple[str, tuple[Word, ...]]:
        """The transcript and its words for the next chunk of this clause's audio.

        Engines that give the text back as it was written are taken at their word. From any other the first chunk gets all of the
        text, timed by the engine's own words as well as they can be matched.
        """
        if not self._own_words:
            return "", ()
        if self._told and not chunk.transcript:
            return "", ()
        if chunk.transcript and self.written.startswith(self._told + chunk.transcript):
            self._told += chunk.transcript
            return chunk.transcript, chunk.words
        self._own_words = False
        rest = self.remainder()
        return rest, align(rest, chunk.words) or spread(rest, len(rest) * _PACE_MS)

    def remainder(self) -> str:
        """What no chunk has carried yet; from now on it counts as told."""
        rest = self.written[len(self._told) :]
        self._told = self.written
        return rest


def align(written: str, words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The times of the written words, from the timed spoken `words` of the same text. Joined they give `written`.

    Where each written word's spoken form can be counted out of the spoken words ("$5" is "five dollars"), it covers those; else
    the written words share the time by the length of their spoken forms.
    """
    if not words:
        return ()
    parts = speakable(written).pieces
    counts = [len(part.spoken.split()) for part in parts]
    if len(parts) == len(words):
        counts = [1] * len(parts)
    if sum(counts) == len(words):
        return _by_count([part.written for part in parts], counts, words)
    return _by_length([part.written for part in parts], [len(part.spoken) for part in parts], words)


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


def _by_length(pieces: list[str], lengths: list[int], words: tuple[Word, ...]) -> tuple[Word, ...]:
    start, end = words[0].start_ms, words[-1].end_ms
    total = max(1, sum(lengths))
    timed: list[Word] = []
    position = 0
    for piece, length in zip(pieces, lengths, strict=True):
        begin = start + (end - start) * position / total
        position += length
        timed.append(Word(piece, begin, start + (end - start) * position / total))
    return tuple(timed)
