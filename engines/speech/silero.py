"""Silero VAD over many live feeds: one batched call for all feeds that have a frame, on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...codecs.pcm import SAMPLE_RATE, FloatArray, to_float
from ...codecs.resample import RowResampler
from ..cpu import onnx_session
from ..errors import EngineBusyError, EngineError, EngineUnavailableError, InvalidRequestError
from ..feed import AudioFeed
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..lane import Lane
from ..messages import EngineChunk, ListenBody, SpeechProbabilities
from .loading import load_weights

MODEL_NAME = "silero-vad"
FRAME_SAMPLES = 768
"""Samples of a frame at 24 kHz: 32 ms."""

_MODEL_RATE = 16_000
_MODEL_FRAME = 512
_CONTEXT = 64
_STATE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SileroOptions:
    """`model` is the ONNX file.

    `max_streams` bounds the live feeds (one more is refused with `EngineBusyError`). A feed that has fallen behind gives up
    to `frames_per_step` frames to a step. With many feeds a step waits `gather_ms` per ten feeds (at most 8 ms) for others'
    frames, since one call for thirty costs half of thirty calls.
    """

    model: Path
    threads: int = 1
    max_streams: int = 1024
    frames_per_step: int = 32
    gather_ms: float = 1.0


class SileroModel:
    """The network and the resampler before it, for rows of a batch; called on one thread only."""

    def __init__(self, model: Path, threads: int = 1) -> None:
        self._session = onnx_session(model, threads)
        self._resampler = RowResampler(SAMPLE_RATE, _MODEL_RATE, FRAME_SAMPLES)
        self._rate = np.array(_MODEL_RATE, np.int64)

    def new_row(self) -> Row:
        """The state of a stream that has heard nothing yet."""
        return Row(
            np.zeros((2, _STATE), np.float32),
            np.zeros(_CONTEXT, np.float32),
            np.zeros(self._resampler.history_length, np.float32),
        )

    def score(self, rows: list[Row], blocks: list[FloatArray]) -> list[list[float]]:
        """Advance each row by its `[frames * 768]` samples (24 kHz); probabilities per row and frame.

        Rows may have different numbers of frames: at each frame all rows that still have one go through the network at once.
        """
        counts = [len(block) // FRAME_SAMPLES for block in blocks]
        order = sorted(range(len(rows)), key=lambda index: -counts[index])
        state = np.stack([rows[index].state for index in order], axis=1)
        context = np.stack([rows[index].context for index in order])
        history = np.stack([rows[index].history for index in order])
        results: list[list[float]] = [[] for _ in rows]
        for frame in range(max(counts, default=0)):
            live = sum(count > frame for count in counts)
            start = frame * FRAME_SAMPLES
            audio = np.stack([blocks[index][start : start + FRAME_SAMPLES] for index in order[:live]])
            heard, history[:live] = self._resampler.process(audio, history[:live])
            window = np.concatenate((context[:live], heard), axis=1)
            probabilities, after = self._session.run(None, {"input": window, "state": state[:, :live], "sr": self._rate})
            state[:, :live] = after
            context[:live] = heard[:, -_CONTEXT:]
            for position, value in enumerate(probabilities[:, 0].tolist()):
                results[order[position]].append(value)
        for position, index in enumerate(order):
            rows[index].state, rows[index].context, rows[index].history = state[:, position], context[position], history[position]
        return results


@dataclass(slots=True)
class Row:
    """One stream's memory: the network's state `[2, 128]`, its last 64 samples (16 kHz), the resampler's history."""

    state: FloatArray
    context: FloatArray
    history: FloatArray


@dataclass(slots=True, eq=False)
class _Stream:
    """A feed being listened to. `ready` holds at most `_UNREAD_LIMIT` chunks: a reader that stops lets its feed overflow."""

    feed: AudioFeed
    row: Row
    ready: deque[SpeechProbabilities] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    in_step: bool = False
    failure: EngineError | None = None

    @property
    def has_work(self) -> bool:
        return self.feed.buffered_samples >= FRAME_SAMPLES and len(self.ready) < _UNREAD_LIMIT

    @property
    def ended(self) -> bool:
        return self.feed.closed and self.feed.buffered_samples < FRAME_SAMPLES and not self.in_step


_UNREAD_LIMIT = 64


class SileroVad:
    """`ListenBody` -> `SpeechProbabilities`, for as long as the feed lives."""

    def __init__(self, options: SileroOptions) -> None:
        self._options = options
        self._lane = Lane("vad", waiting_limit=1)
        self._model: SileroModel | None = None
        self._streams: set[_Stream] = set()
        self._wake = asyncio.Event()
        self._batcher: asyncio.Task[None] | None = None
        self._steps = 0
        self._frames = 0
        self.capabilities = Capabilities(role=Role.VAD, models=(MODEL_NAME,), slots=options.max_streams, sample_rate=SAMPLE_RATE)

    async def open(self) -> None:
        """Load, warm up and start the batcher. Raises `WeightsError`."""
        model = await self._lane.run(load_weights, MODEL_NAME, SileroModel, self._options.model, self._options.threads)
        silent = np.zeros(4 * FRAME_SAMPLES, np.float32)
        await self._lane.run(model.score, [model.new_row(), model.new_row()], [silent, silent])
        self._model = model
        self._batcher = asyncio.create_task(self._run_batches(model), name="vad-batcher")

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        body = request.body
        if not isinstance(body, ListenBody) or not isinstance(body.feed, AudioFeed):
            raise InvalidRequestError(f"{MODEL_NAME} listens to an AudioFeed; it cannot serve a {type(body).__name__}")
        if self._model is None:
            raise EngineUnavailableError(f"{MODEL_NAME} is not open")
        if len(self._streams) >= self._options.max_streams:
            raise EngineBusyError(f"{MODEL_NAME} listens to {self._options.max_streams} feeds already")
        stream = _Stream(body.feed, self._model.new_row())
        notify: Callable[[], None] = self._wake.set
        body.feed.on_ready = notify
        self._streams.add(stream)
        self._wake.set()
        try:
            async for chunk in self._chunks(stream):
                yield chunk
        finally:
            self._streams.discard(stream)
            if body.feed.on_ready is notify:
                body.feed.on_ready = None

    async def health(self) -> EngineHealth:
        age = None if self._lane.last_step is None else time.monotonic() - self._lane.last_step
        alive = self._batcher is not None and not self._batcher.done()
        batch = self._frames / self._steps if self._steps else 0.0
        return EngineHealth(ok=alive, running=len(self._streams), last_step_age=age, extra={"mean_frames_per_step": batch})

    async def close(self) -> None:
        if self._batcher is not None:
            self._batcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._batcher
        self._model = None
        for stream in self._streams:
            stream.failure = EngineUnavailableError(f"{MODEL_NAME} is closing")
            stream.changed.set()
        await self._lane.close()

    async def _chunks(self, stream: _Stream) -> AsyncIterator[SpeechProbabilities]:
        while True:
            while stream.ready:
                yield stream.ready.popleft()
                if len(stream.ready) == _UNREAD_LIMIT - 1:
                    self._wake.set()  # there is room again
            if stream.failure is not None:
                raise stream.failure
            if stream.ended:
                return
            stream.changed.clear()
            await stream.changed.wait()

    async def _run_batches(self, model: SileroModel) -> None:
        """Step for as long as some feed has a frame, then sleep until one is written to."""
        while True:
            await self._wake.wait()
            await self._gather()
            self._wake.clear()
            for stream in self._streams:
                if stream.ended:
                    stream.changed.set()
            batch = [stream for stream in self._streams if stream.has_work]
            if batch:
                self._wake.set()  # look again after this step: frames may have arrived meanwhile
                await self._step(model, batch)

    async def _gather(self) -> None:
        wait_ms = min(8.0, len(self._streams) / 10 * self._options.gather_ms)
        if wait_ms >= self._options.gather_ms:
            await asyncio.sleep(wait_ms / 1000)

    async def _step(self, model: SileroModel, batch: list[_Stream]) -> None:
        starts: list[int] = []
        blocks: list[FloatArray] = []
        for stream in batch:
            frames = min(self._options.frames_per_step, stream.feed.buffered_samples // FRAME_SAMPLES)
            stream.in_step = True
            starts.append(stream.feed.position)
            blocks.append(to_float(stream.feed.take(frames * FRAME_SAMPLES) or b""))
        rows = [stream.row for stream in batch]
        try:
            results = await self._lane.run(model.score, rows, blocks)
        except Exception as error:  # whatever the runtime raises, the streams of this step must be told
            for stream in batch:
                stream.failure = EngineError(f"{MODEL_NAME} failed: {error}")
                stream.changed.set()
                self._streams.discard(stream)
            return
        self._steps += 1
        for stream, start, probabilities in zip(batch, starts, results, strict=True):
            self._frames += len(probabilities)
            stream.in_step = False
            stream.ready.append(SpeechProbabilities(start_sample=start, probabilities=tuple(probabilities)))
            stream.changed.set()
