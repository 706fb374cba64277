"""What all speech engines share: sentence by sentence on a lane, cut into growing chunks, aborted between any two."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...codecs.pcm import SAMPLE_RATE, FloatArray, from_float
from ..errors import InvalidRequestError
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..lane import Lane
from ..messages import AudioChunk, EngineChunk, SpeakBody, Word
from .loading import Loaded
from .phonemes import Phonemizer, Utterance, sentences
from .text import Piece, speakable
from .timing import ramp, trim, word_times

SLOWEST, FASTEST = 0.25, 1.5
FIRST_CHUNK_MS, CHUNK_GROWTH, LARGEST_CHUNK_MS = 40.0, 1.5, 200.0


class Synthesiser(Protocol):
    """A loaded model. Called on one thread only."""

    def phonemizer(self, voice: str) -> Phonemizer:
        """The reading rules of the voice's accent."""

    def synthesise(self, utterance: Utterance, voice: str, speed: float) -> tuple[FloatArray, npt.NDArray[np.float32]]:
        """`[n] float32` at 24 kHz, and how long each of the utterance's ids lasts (in any one unit)."""


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence as sound: PCM, the written text, its words' times."""

    pcm: bytes
    transcript: str
    words: tuple[Word, ...]


class SpeechEngine:
    """`SpeakBody` -> `AudioChunk`s.

    The text may be written text: it is taken apart by `text.speakable`, said in its spoken form, and comes back in the
    transcript as it was written. A voice that this engine lacks is answered with its default voice. Whoever speaks his first
    sentence goes ahead of those who are in the middle.
    """

    def __init__(self, name: str, voices: tuple[str, ...], default_voice: str, waiting_limit: int) -> None:
        self._name = name
        self._default_voice = default_voice
        self._lane = Lane(f"speech-{name}", waiting_limit)
        self._model: Loaded[Synthesiser] = Loaded(name)
        self.capabilities = Capabilities(role=Role.SPEECH, models=(name,), slots=waiting_limit, sample_rate=SAMPLE_RATE, voices=voices)

    async def open_with(self, load: Callable[[], Synthesiser]) -> None:
        """Load on the engine's thread and warm up. Raises `WeightsError`."""
        model = await self._lane.run(load)
        warm_up = next(sentences(speakable("Hello.")))
        await self._lane.run(say, model, warm_up, self._default_voice, 1.0)
        self._model.set(model)

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        body = request.body
        if not isinstance(body, SpeakBody):
            raise InvalidRequestError(f"{self._name} speaks; it cannot serve a {type(body).__name__}")
        model = self._model.get()
        voice = self.voice_for(body.voice)
        speed = min(FASTEST, max(SLOWEST, body.speed))
        lengths = iter(ramp(FIRST_CHUNK_MS, CHUNK_GROWTH, LARGEST_CHUNK_MS))
        for index, pieces in enumerate(sentences(speakable(body.text))):
            priority = request.work_class * 2 + (1 if index else 0)
            deadline = None if index else request.deadline  # it bounds the wait for the first sound
            said = await self._lane.run(say, model, pieces, voice, speed, priority=priority, deadline=deadline)
            for chunk in cut(said, lengths):
                yield chunk

    def voice_for(self, wanted: str | None) -> str:
        """The voice that answers to a name; names of other systems' voices ("alloy", "marin") get the default."""
        return wanted if wanted in self.capabilities.voices else self._default_voice

    async def health(self) -> EngineHealth:
        age = None if self._lane.last_step is None else time.monotonic() - self._lane.last_step
        return EngineHealth(ok=self._model.ready, running=self._lane.running, waiting=self._lane.waiting, last_step_age=age)

    async def close(self) -> None:
        await self._lane.close()
        self._model.clear()


def say(model: Synthesiser, pieces: tuple[Piece, ...], voice: str, speed: float) -> Said:
    """One sentence as sound. One without a sound (blanks, emoji) has no PCM but keeps its transcript."""
    utterance = model.phonemizer(voice).utterance(pieces)
    if utterance.silent:
        return Said(b"", utterance.written, tuple(Word(piece.written, 0.0, 0.0) for piece in pieces))
    raw, durations = model.synthesise(utterance, voice, speed)
    closing = next((piece.spoken[-1] for piece in reversed(pieces) if piece.spoken), "")
    trimmed = trim(raw, closing, speed)
    return Said(from_float(trimmed.audio), utterance.written, word_times(utterance, durations, len(raw), trimmed))


def cut(said: Said, lengths: Iterator[int]) -> Iterator[AudioChunk]:
    """The sentence in chunks of the given lengths (samples); the first carries the transcript and the words."""
    at = 2 * next(lengths)
    yield AudioChunk(pcm=said.pcm[:at], transcript=said.transcript, words=said.words)
    while at < len(said.pcm):
        end = at + 2 * next(lengths)
        yield AudioChunk(pcm=said.pcm[at:end])
        at = end
