"""Which words are spoken when: the map between an answer's transcript and its audio."""

from __future__ import annotations

from itertools import takewhile

import msgspec

SAMPLE_RATE = 24_000


class TimedWord(msgspec.Struct, frozen=True, array_like=True):
    """A spoken word as it stands in the transcript (with leading space and punctuation); times in ms."""

    text: str
    start_ms: float
    end_ms: float


class Timeline:
    """The words of one audio item in order, with times in ms from the item's first sample.

    `heard(ms)` is the prefix of the transcript that a listener has heard after `ms` of audio: a word counts once half of it
    has sounded.
    """

    def __init__(self) -> None:
        self._words: list[TimedWord] = []
        self.samples = 0

    @property
    def duration_ms(self) -> float:
        return self.samples * 1000 / SAMPLE_RATE

    @property
    def transcript(self) -> str:
        return "".join(word.text for word in self._words)

    def extend(self, samples: int, transcript: str, words: tuple[TimedWord, ...]) -> None:
        """Add a chunk of audio. `words` are timed from the chunk's first sample and joined give `transcript`; without them the
        text is taken to fill the chunk evenly, character by character."""
        base = self.duration_ms
        chunk_ms = samples * 1000 / SAMPLE_RATE
        self.samples += samples
        if not transcript:
            return
        if not words or "".join(word.text for word in words) != transcript:
            words = spread(transcript, chunk_ms)
        self._words.extend(TimedWord(word.text, base + word.start_ms, base + word.end_ms) for word in words)

    def heard(self, ms: float) -> str:
        """The transcript of the first `ms` of audio."""
        if ms <= 0:
            return ""
        return "".join(word.text for word in takewhile(lambda word: (word.start_ms + word.end_ms) / 2 <= ms, self._words))


def spread(transcript: str, duration_ms: float) -> tuple[TimedWord, ...]:
    """Words of `transcript` with times in proportion to their length, over `duration_ms`."""
    pieces: list[str] = []
    for character in transcript:
        if pieces and not (character.isspace() and not pieces[-1][-1].isspace()):
            pieces[-1] += character
        else:
            pieces.append(character)
    total = max(1, len(transcript))
    words: list[TimedWord] = []
    position = 0
    for piece in pieces:
        start = position * duration_ms / total
        position += len(piece)
        words.append(TimedWord(piece, start, position * duration_ms / total))
    return tuple(words)
