"""Transcription deltas from repeated decoding: a word is said once two decodings in a row agree on it.

LocalAgreement-2, after Liu et al. 2020, "Low-Latency Sequence-to-Sequence Speech Recognition and Translation by Partial
Hypothesis Selection".
"""

from __future__ import annotations

from .overlap import normalise


class Agreement:
    """Follows the decodings of one growing utterance. `committed` is the text already given out; it is never taken back."""

    def __init__(self) -> None:
        self._previous: list[str] = []
        self._given: list[str] = []

    @property
    def committed(self) -> str:
        return " ".join(self._given)

    def partial(self, text: str) -> str:
        """Take the next decoding; returns the text to append to what was given (maybe empty)."""
        words = text.split()
        agreed = 0
        for old, new in zip(self._previous, words, strict=False):
            if normalise(old) != normalise(new):
                break
            agreed += 1
        self._previous = words
        return self._give(words[:agreed])

    def final(self, text: str) -> str:
        """Take the final text; returns what is missing from what was given. Where the two disagree, nothing is returned for the
        part already given: the `completed` event carries the truth."""
        return self._give(text.split())

    def _give(self, words: list[str]) -> str:
        have = len(self._given)
        if len(words) <= have or [normalise(w) for w in words[:have]] != [normalise(w) for w in self._given]:
            return ""
        fresh = words[have:]
        lead = " " if have else ""
        self._given.extend(fresh)
        return lead + " ".join(fresh)
