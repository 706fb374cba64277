"""Text to phoneme ids, each written word keeping hold of its own: what word timings are made from.

The grapheme-to-phoneme rules and the phoneme alphabet are Hibari's (after Kokoro's misaki); Kokoro reads the same ids.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .text import Piece, Speakable

MAX_PHONEMES = 400
"""A longer sentence is cut at a comma, or between words (the models were trained on sentences)."""

_MAX_SPOKEN_CHARACTERS = 320
_SENTENCE_ENDS = (".", "!", "?", "…")
_PAD = 0


@dataclass(frozen=True, slots=True)
class Utterance:
    """What a model says in one go.

    `ids` begin and end with the pad; `spans[i]` is the range of ids that piece `i` is said with (empty for a silent one).
    """

    pieces: tuple[Piece, ...]
    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    @property
    def written(self) -> str:
        return "".join(piece.written for piece in self.pieces)

    @property
    def silent(self) -> bool:
        return len(self.ids) < 3


def sentences(text: Speakable) -> Iterator[tuple[Piece, ...]]:
    """The pieces sentence by sentence; long sentences in parts, cut behind a comma where there is one. Joined they are all."""
    current: list[Piece] = []
    for piece in text.pieces:
        current.append(piece)
        if piece.spoken.endswith(_SENTENCE_ENDS) and not _inner_full_stop(piece.spoken):
            yield tuple(current)
            current = []
        elif sum(len(one.spoken) + 1 for one in current) > _MAX_SPOKEN_CHARACTERS:
            cut = next((i + 1 for i in range(len(current) - 1, 0, -1) if current[i].spoken.endswith((",", ";", ":", "—"))), len(current))
            yield tuple(current[:cut])
            current = current[cut:]
    if current:
        yield tuple(current)


def _inner_full_stop(spoken: str) -> bool:
    """Whether the full stop belongs to letters said one by one ("P.M.")."""
    return len(spoken) > 2 and spoken.endswith(".") and spoken[-3:-2] == "."


@functools.lru_cache(maxsize=2)
def phonemizer(british: bool = False) -> Phonemizer:
    """The shared phonemizer of an accent (its dictionaries take a third of a second to load and 40 MB)."""
    return Phonemizer(british)


class Phonemizer:
    """Words to phoneme ids. Not to be used by two threads at once while it loads its net for unknown words."""

    def __init__(self, british: bool = False) -> None:
        import hibari.tts
        from hibari.g2p import G2P

        self._rules: Any = G2P(british=british)
        with (Path(hibari.tts.ASSETS) / "vocab.json").open(encoding="utf-8") as source:
            self._vocabulary: dict[str, int] = json.load(source)
        self.utterance((Piece("Zyxwvu", "Zyxwvu"),))  # loads the net for unknown words

    def utterance(self, pieces: tuple[Piece, ...]) -> Utterance:
        """The ids of a sentence's pieces, at most `MAX_PHONEMES` of them."""
        sounding = [index for index, piece in enumerate(pieces) if piece.spoken]
        spoken = " ".join(pieces[index].spoken for index in sounding)
        owner = [index for index in sounding for _ in range(len(pieces[index].spoken) + 1)]
        ids: list[int] = [_PAD]
        spans: dict[int, tuple[int, int]] = {}
        at = 0
        for token in self._rules.phonemize_tokens(self._rules.tokenize(spoken)) if spoken else ():
            piece = owner[min(at, len(owner) - 1)]
            first = len(ids)
            ids.extend(self._vocabulary[symbol] for symbol in token.phonemes or "" if symbol in self._vocabulary)
            spans[piece] = (spans[piece][0] if piece in spans else first, len(ids))
            if token.whitespace and len(ids) > 1:
                ids.append(self._vocabulary[" "])
            at += len(token.text) + len(token.whitespace)
        while len(ids) > 1 and ids[-1] == self._vocabulary[" "]:
            ids.pop()
        ids = ids[: MAX_PHONEMES + 1]
        limit = len(ids)
        ids.append(_PAD)
        filled = [spans.get(index, (0, 0)) for index in range(len(pieces))]
        return Utterance(pieces, tuple(ids), tuple((min(first, limit), min(last, limit)) for first, last in filled))
