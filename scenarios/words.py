"""Comparing what was said with what was written down: an English normaliser in Whisper's manner, and word error rate."""

from __future__ import annotations

import re
from collections.abc import Iterable

_FILLERS = {"hmm", "mm", "mhm", "mmm", "uh", "um", "uhm", "er", "ah"}
_CONTRACTIONS = (
    (r"\bwon't\b", "will not"),
    (r"\bcan't\b", "can not"),
    (r"\bcannot\b", "can not"),
    (r"\blet's\b", "let us"),
    (r"n't\b", " not"),
    (r"'re\b", " are"),
    (r"'ll\b", " will"),
    (r"'ve\b", " have"),
    (r"'d\b", " would"),
    (r"'m\b", " am"),
    (r"\b(it|that|what|who|where|how|there|here|he|she)'s\b", r"\1 is"),
)
_SPELLINGS = {
    "colour": "color",
    "favourite": "favorite",
    "neighbour": "neighbor",
    "centre": "center",
    "theatre": "theater",
    "grey": "gray",
    "travelling": "traveling",
    "okay": "ok",
    "alright": "all right",
    "metre": "meter",
    "metres": "meters",
    "mr": "mister",
    "mrs": "missus",
    "dr": "doctor",
    "st": "saint",
}
_UNITS = """zero one two three four five six seven eight nine ten
    eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBERS = {word: value for value, word in enumerate(_UNITS.split())} | {word: 20 + 10 * step for step, word in enumerate(_TENS.split())}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000}


def normalise(text: str) -> list[str]:
    """The words of an English text without what writing adds: case, punctuation, contractions, spelled-out numbers, hums."""
    text = text.lower().replace("’", "'")
    text = re.sub(r"[\[(][^\])]*[\])]", " ", text)
    for pattern, replacement in _CONTRACTIONS:
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"'s\b", "s", text)
    text = re.sub(r"(\d),(?=\d{3})", r"\1", text)
    text = text.replace("%", " percent ").replace("$", " dollars ").replace("&", " and ")
    words = re.findall(r"\d+(?:\.\d+)?|[a-z]+", text)
    spelled = " ".join(_SPELLINGS.get(word, word) for word in words if word not in _FILLERS).split()
    return list(_with_digits(spelled))


def _with_digits(words: Iterable[str]) -> Iterable[str]:
    """Spelled-out numbers as digits: twenty one -> 21, three hundred -> 300; "one two three" stays three numbers."""
    total: int | None = None
    current = 0
    last = ""
    for word in [*words, ""]:
        value = _NUMBERS.get(word)
        joins = total is not None and ((value is not None and last == "ten" and value < 10) or (value is not None and last == "scale"))
        if value is not None and (total is None or joins):
            current += value
            total = total or 0
            last = "ten" if value >= 20 else "unit"
        elif word in _SCALES and total is not None and current:
            scale = _SCALES[word]
            if scale == 100:
                current *= 100
            else:
                total, current = (total + current) * scale, 0
            last = "scale"
        else:
            if total is not None:
                yield str(total + current)
            total, current, last = None, 0, ""
            if value is not None:
                total, current, last = 0, value, "ten" if value >= 20 else "unit"
            elif word:
                yield word


def edits(reference: list[str], heard: list[str]) -> int:
    """The least number of substitutions, insertions and deletions that turn one list of words into the other."""
    row = list(range(len(heard) + 1))
    for index, word in enumerate(reference, 1):
        diagonal, row[0] = row[0], index
        for column, other in enumerate(heard, 1):
            diagonal, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, diagonal + (word != other))
    return row[-1]


def word_error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Edits over reference words, pooled over pairs (what was said, what was written down). 0 when nothing was said."""
    wrong = said = 0
    for reference, heard in pairs:
        words = normalise(reference)
        wrong += edits(words, normalise(heard))
        said += len(words)
    return wrong / said if said else 0.0


def words_heard(transcript: str, ear: str) -> int:
    """How many words of `transcript` lie in an audio that was heard as `ear`: the prefix most like it, and of several equally
    alike the one nearest in length."""
    full, heard = normalise(transcript), normalise(ear)
    costs = [edits(full[:length], heard) for length in range(len(full) + 1)]
    best = min(costs)
    near = [length for length, cost in enumerate(costs) if cost == best]
    return min(near, key=lambda length: abs(length - len(heard)))
