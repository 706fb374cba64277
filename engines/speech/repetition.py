"""Does a transcript say itself again? Whisper on a short context sometimes does; these are the rules that notice and undo it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NOT_SPOKEN = re.compile(r"[^a-z0-9']")
_WORDS_PER_SECOND = 5.5


@dataclass(frozen=True, slots=True)
class Judgement:
    """`text` is the transcript to use, or None when it cannot be trusted and a longer context must decide."""

    text: str | None
    cut: bool = False


def judge(text: str, ended: bool, seconds: float) -> Judgement:
    """Undo an exact repetition; distrust a text that did not end by itself or has more words than the audio has time for."""
    once = period(text, ended)
    if once is not None:
        return Judgement(once, cut=True)
    if not ended or len(text.split()) > _WORDS_PER_SECOND * max(0.6, seconds):
        return Judgement(None)
    return Judgement(text)


def period(text: str, ended: bool = True) -> str | None:
    """The first period of a text that is an exact repetition of its own beginning; None when nothing repeats.

    The last repetition may be cut short. It counts when it is at least half as long as the period, or begins after the end
    of a sentence, or the model was stopped in the middle of it. A single word must come three times ("no no" and "bye bye"
    are said). A rule that cut wherever the first words recur would eat "it was the best of times, it was the worst of times".
    """
    words = text.split()
    bare = [_NOT_SPOKEN.sub("", word.lower()) for word in words]
    for length in range(1, len(bare)):
        again = len(bare) - length
        if again < 2 or not all(bare[length + index] == bare[index % length] for index in range(again)):
            continue
        if length == 1 or again * 2 >= length or not ended or words[length - 1].endswith((".", "?", "!")):
            return " ".join(words[:length])
    return None


def first_words(text: str, seconds: float) -> str:
    """As many of the first words as can be said in that time."""
    return " ".join(text.split()[: max(1, int(_WORDS_PER_SECOND * max(0.6, seconds)))])


def token_budget(seconds: float) -> int:
    """Tokens that so much audio can hold at most."""
    return int(14 + 6 * seconds)
