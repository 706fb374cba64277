"""Whisper on CTranslate2 with a short encoder context: an utterance costs a quarter of what padding it to 30 s would.

Without silence behind it the decoder sometimes misses the end of the text and says it again; `repetition` undoes or notices
that, and what cannot be undone is decoded again with the full context.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...codecs.pcm import SAMPLE_RATE, FloatArray, to_float
from ...codecs.resample import resample
from ..errors import InvalidRequestError
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..lane import Lane
from ..messages import EngineChunk, TranscribeBody, Transcript
from . import features, repetition
from .loading import Loaded, load_weights

MODEL_NAME = "whisper-tiny.en"
FULL_CONTEXT_S = 30.0
_LONGEST_PIECE_S = 28.0
_PROMPT_TOKENS = 64
_LONGEST_TEXT = 224
"""Tokens the decoder was trained to write at most for one window."""

_SILENT = 0.6
"""`no_speech` from which a doubtful text is taken for noise (Whisper's own threshold)."""

_MIN_SAMPLES = features.HOP * 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WhisperOptions:
    """`model` is the folder of the CTranslate2 model, or the `model.bin` in it.

    `trailing_s` of silence go behind the audio and make up the context together with it, at least `shortest_context_s`;
    final passes over clips shorter than `short_clip_s` get `short_clip_context_s` (there Whisper needs more context to be
    right). A final text that the model itself finds unlikely (mean log-probability below `doubtful_logprob`) while it hears
    speech is decoded again with 30 s. `full_context` forces 30 s always: slower, a little more accurate on hard recordings.
    """

    model: Path
    threads: int = 1
    compute_type: str = "int8"
    trailing_s: float = 1.0
    shortest_context_s: float = 2.0
    short_clip_s: float = 1.0
    short_clip_context_s: float = 10.0
    doubtful_logprob: float = -1.0
    full_context: bool = False
    waiting_limit: int = 256


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decoding pass. `ended` tells whether the model itself ended the text; `logprob` is the mean per token."""

    text: str
    ended: bool
    no_speech: float
    logprob: float
    language: str = "en"


class WhisperModel:
    """The network and its tokenizer; called on one thread only."""

    def __init__(self, model: Path, options: WhisperOptions) -> None:
        import ctranslate2
        import tokenizers

        folder = model if model.is_dir() else model.parent
        self._options = options
        self._network = ctranslate2.models.Whisper(
            str(folder), device="cpu", compute_type=options.compute_type, intra_threads=options.threads, inter_threads=1
        )
        self._array = ctranslate2.StorageView.from_array
        self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._bands = 128 if self._network.n_mels == 128 else 80
        self.multilingual = bool(self._network.is_multilingual)

    def transcribe(self, pcm: bytes, body: TranscribeBody) -> Transcript:
        """The text of mono 24 kHz PCM of any length; pieces of at most 28 s are cut where it is quietest."""
        audio = resample(to_float(pcm), SAMPLE_RATE, features.SAMPLE_RATE)
        if len(audio) < _MIN_SAMPLES:
            return Transcript(text="", final=body.final, no_speech=1.0)
        passes = [self._utterance(piece, body) for piece in cut_at_quiet(audio)]
        return Transcript(
            text=" ".join(one.text for one in passes if one.text),
            final=body.final,
            no_speech=min(one.no_speech for one in passes),
            logprob=float(np.mean([one.logprob for one in passes])),
            language=passes[0].language,
        )

    def _utterance(self, audio: FloatArray, body: TranscribeBody) -> Decoded:
        seconds = len(audio) / features.SAMPLE_RATE
        options = self._options
        context = FULL_CONTEXT_S if options.full_context else max(options.shortest_context_s, seconds + options.trailing_s)
        if body.final and seconds < options.short_clip_s:
            context = max(context, options.short_clip_context_s)
        decoded = self._decode(audio, context, body)
        if context >= FULL_CONTEXT_S:
            return decoded
        judged = repetition.judge(decoded.text, decoded.ended, seconds)
        doubtful = decoded.logprob < options.doubtful_logprob and decoded.no_speech < _SILENT
        if judged.text is not None and not (doubtful and body.final):
            return Decoded(judged.text, True, decoded.no_speech, decoded.logprob, decoded.language)
        if not body.final:  # a partial is soon followed by another; the cost of 30 s is not worth it
            return Decoded(repetition.first_words(decoded.text, seconds), False, decoded.no_speech, decoded.logprob, decoded.language)
        return self._decode(audio, FULL_CONTEXT_S, body)

    def _decode(self, audio: FloatArray, context_s: float, body: TranscribeBody) -> Decoded:
        seconds = len(audio) / features.SAMPLE_RATE
        context = min(int(context_s * features.SAMPLE_RATE), int(FULL_CONTEXT_S * features.SAMPLE_RATE))
        padded = np.pad(audio, (0, max(0, context - len(audio))))
        mel = features.log_mel(padded, self._bands)
        mel = mel[:, : mel.shape[1] // 2 * 2]  # the encoder halves the number of frames
        encoded = self._network.encode(self._array(np.ascontiguousarray(mel[None])))
        language = self._language(encoded, body.language)
        prompt = self._prompt(language, body.prompt)
        budget = min(_LONGEST_TEXT, repetition.token_budget(seconds))
        result = self._network.generate(
            encoded,
            [prompt],
            beam_size=1,
            max_length=2 * budget,  # CTranslate2 gives half of it to new tokens, as Whisper does
            suppress_blank=True,
            return_scores=True,
            return_no_speech_prob=True,
        )[0]
        tokens = result.sequences_ids[0]
        logprob = float(result.scores[0]) if result.scores and math.isfinite(result.scores[0]) else 0.0
        text = self._tokenizer.decode(tokens, skip_special_tokens=True).strip()
        return Decoded(text, len(tokens) < budget, float(result.no_speech_prob), logprob, language)

    def _language(self, encoded: Any, wanted: str | None) -> str:
        if not self.multilingual:
            return "en"
        if wanted and self._tokenizer.token_to_id(f"<|{wanted}|>") is not None:
            return wanted
        return str(self._network.detect_language(encoded)[0][0][0]).strip("<|>")

    def _prompt(self, language: str, before: str) -> list[int]:
        marks = ["<|startoftranscript|>", *((f"<|{language}|>", "<|transcribe|>") if self.multilingual else ()), "<|notimestamps|>"]
        prompt: list[int] = [self._tokenizer.token_to_id(mark) for mark in marks]
        if before.strip():
            earlier = self._tokenizer.encode(" " + before.strip(), add_special_tokens=False).ids[-_PROMPT_TOKENS:]
            return [self._tokenizer.token_to_id("<|startofprev|>"), *earlier, *prompt]
        return prompt


class Whisper:
    """`TranscribeBody` -> one `Transcript`.

    One worker thread. Final passes go ahead of partial ones, whatever their age; a request that is closed while it waits
    never runs.
    """

    def __init__(self, options: WhisperOptions) -> None:
        self._options = options
        self._lane = Lane("asr", options.waiting_limit)
        self._model: Loaded[WhisperModel] = Loaded(MODEL_NAME)
        self.capabilities = Capabilities(
            role=Role.ASR, models=(MODEL_NAME,), slots=options.waiting_limit, sample_rate=SAMPLE_RATE, streaming=False
        )

    async def open(self) -> None:
        """Load and warm up. Raises `WeightsError`."""
        model = await self._lane.run(load_weights, MODEL_NAME, WhisperModel, self._options.model, self._options)
        await self._lane.run(model.transcribe, bytes(2 * SAMPLE_RATE), TranscribeBody(pcm=b"", final=False))
        self._model.set(model)

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        body = request.body
        if not isinstance(body, TranscribeBody):
            raise InvalidRequestError(f"{MODEL_NAME} transcribes; it cannot serve a {type(body).__name__}")
        model = self._model.get()
        priority = request.work_class * 2 + (0 if body.final else 1)
        yield await self._lane.run(model.transcribe, body.pcm, body, priority=priority, deadline=request.deadline)

    async def health(self) -> EngineHealth:
        age = None if self._lane.last_step is None else time.monotonic() - self._lane.last_step
        return EngineHealth(ok=self._model.ready, running=self._lane.running, waiting=self._lane.waiting, last_step_age=age)

    async def close(self) -> None:
        await self._lane.close()
        self._model.clear()


def cut_at_quiet(audio: FloatArray, longest_s: float = _LONGEST_PIECE_S) -> list[FloatArray]:
    """Pieces of at most `longest_s`, cut in the quietest 0.2 s of each piece's last third."""
    pieces: list[FloatArray] = []
    longest, hop = int(longest_s * features.SAMPLE_RATE), features.SAMPLE_RATE // 5
    while len(audio) > longest:
        first = longest * 2 // 3 // hop
        energy = np.square(audio[: longest // hop * hop]).reshape(-1, hop).mean(axis=1)
        cut = (first + int(np.argmin(energy[first:]))) * hop + hop // 2
        pieces.append(audio[:cut])
        audio = audio[cut:]
    return [*pieces, audio]
