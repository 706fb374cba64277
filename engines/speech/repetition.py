"""Does a transcript say itself again? Whisper on a short context sometimes does; these are the rules that notice and undo it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NOT_SPOKEN = re.compile(r"[^a-z0-9']")
_WORDS_PER_SECOND = 5.5
_SENTENCE_ENDS = (".", "?", "!")
_SHORTEST_ECHO = 4


@dataclass(frozen=True, slots=True)
class Judgement:
    """`text` is the transcript to use, or None when it cannot be trusted and a longer context must decide."""

    text: str | None
    cut: bool = False


def judge(text: str, ended: bool, seconds: float) -> Judgement:
    """Undo a repetition; distrust a text that did not end by itself or has more words than the audio has time for."""
    once = period(text, ended)
    if once is None:
        once = without_echo(text, ended)
    if once is not None:
        return Judgement(once, cut=True)
    if not ended or len(text.split()) > _WORDS_PER_SECOND * max(0.6, seconds):
        return Judgement(None)
    return Judgement(text)


def period(text: str, ended: bool = True) -> str | None:
    """The first period of a text that is an exact repetition of its own beginning; None when nothing repeats.

    The last repetition may be cut short, in the middle of a word when the model was stopped (`ended` false). It counts when
    it is at least half as long as the period, or begins after the end of a sentence, or the model was stopped. A single word
    must come three times ("no no" and "bye bye" are said). A rule that cut wherever the first words recur would eat "it was
    the best of times, it was the worst of times".
    """
    words = text.split()
    bare = [_NOT_SPOKEN.sub("", word.lower()) for word in words]
    for length in range(1, len(bare)):
        again = len(bare) - length
        if again < 2 or not _repeats(bare, length, ended):
            continue
        if length == 1 or again * 2 >= length or not ended or words[length - 1].endswith(_SENTENCE_ENDS):
            return " ".join(words[:length])
    return None


def _repeats(bare: list[str], length: int, ended: bool) -> bool:
    """Whether the words from `length` on are those from the start again; a stopped model may have cut the last one."""
    *whole, last = range(length, len(bare))
    if not all(bare[index] == bare[index % length] for index in whole):
        return False
    return bare[last] == bare[last % length] or (not ended and bool(bare[last]) and bare[last % length].startswith(bare[last]))


def without_echo(text: str, ended: bool = True) -> str | None:
    """A text of several sentences without the repetition of its last ones, if there is one of at least four words."""
    words = text.split()
    for start in range(1, len(words) - _SHORTEST_ECHO):
        if not words[start - 1].endswith(_SENTENCE_ENDS):
            continue
        once = period(" ".join(words[start:]), ended)
        if once is not None and len(once.split()) >= _SHORTEST_ECHO:
            return " ".join([*words[:start], once])
    return None


def first_words(text: str, seconds: float) -> str:
    """As many of the first words as can be said in that time."""
    return " ".join(text.split()[: max(1, int(_WORDS_PER_SECOND * max(0.6, seconds)))])


def token_budget(seconds: float) -> int:
    """Tokens that so much audio can hold at most."""
    return int(8 + 4.5 * seconds)
