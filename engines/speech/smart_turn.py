"""Smart Turn v3.2: has the speaker finished? Judged from the sound of the last 8 s, silence included."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...codecs.pcm import SAMPLE_RATE, FloatArray, to_float
from ...codecs.resample import resample
from ..cpu import onnx_session
from ..errors import InvalidRequestError
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..lane import Lane
from ..messages import EngineChunk, TurnEndBody, TurnEndProbability
from . import features
from .loading import Loaded, load_weights

MODEL_NAME = "smart-turn-v3.2"
_WINDOW = 8 * features.SAMPLE_RATE
_VARIANCE_FLOOR = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class SmartTurnOptions:
    """`model` is the ONNX file; `waiting_limit` bounds the requests that wait for the engine's thread."""

    model: Path
    threads: int = 1
    waiting_limit: int = 256


class SmartTurn:
    """`TurnEndBody` -> one `TurnEndProbability`."""

    def __init__(self, options: SmartTurnOptions) -> None:
        self._options = options
        self._lane = Lane("turn-end", options.waiting_limit)
        self._session: Loaded[Any] = Loaded(MODEL_NAME)
        self.capabilities = Capabilities(
            role=Role.TURN_END, models=(MODEL_NAME,), slots=options.waiting_limit, sample_rate=SAMPLE_RATE, streaming=False
        )

    async def open(self) -> None:
        """Load and warm up. Raises `WeightsError`."""
        self._session.set(await self._lane.run(load_weights, MODEL_NAME, onnx_session, self._options.model, self._options.threads))
        await self._lane.run(self._score, bytes(SAMPLE_RATE))

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        body = request.body
        if not isinstance(body, TurnEndBody):
            raise InvalidRequestError(f"{MODEL_NAME} judges the end of a turn; it cannot serve a {type(body).__name__}")
        probability = await self._lane.run(self._score, body.pcm, priority=request.work_class, deadline=request.deadline)
        yield TurnEndProbability(probability=probability)

    async def health(self) -> EngineHealth:
        age = None if self._lane.last_step is None else time.monotonic() - self._lane.last_step
        return EngineHealth(ok=self._session.ready, running=self._lane.running, waiting=self._lane.waiting, last_step_age=age)

    async def close(self) -> None:
        await self._lane.close()
        self._session.clear()

    def _score(self, pcm: bytes) -> float:
        audio = to_float(pcm[-8 * 2 * SAMPLE_RATE :])
        inputs = turn_features(resample(audio, SAMPLE_RATE, features.SAMPLE_RATE))
        return float(self._session.get().run(None, {"input_features": inputs[None]})[0][0, 0])


def turn_features(audio: FloatArray) -> FloatArray:
    """`[n] float32` at 16 kHz -> `[80, 800]`: the last 8 s, zeros put before, normalised to zero mean and unit variance."""
    window = np.zeros(_WINDOW, np.float32)
    tail = audio[-_WINDOW:]
    if len(tail):
        window[-len(tail) :] = tail
    window = (window - window.mean()) / np.sqrt(window.var() + np.float32(_VARIANCE_FLOOR))
    return features.log_mel(window)
