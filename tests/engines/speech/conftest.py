"""What the speech tests share: the real models, and sentences said by Hibari."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from antiphon.codecs import pcm
from antiphon.engines import weights
from antiphon.engines.interface import Engine, EngineChunk, EngineRequest
from antiphon.engines.messages import RequestBody
from antiphon.engines.speech.hibari import HibariModel, voices_in
from antiphon.engines.speech.phonemes import sentences
from antiphon.engines.speech.synthesis import say
from antiphon.engines.speech.text import speakable


@pytest.fixture(scope="session")
def model_path(default_weights: None) -> Callable[[str], str]:
    """The main file of a model of the catalogue."""
    return lambda name: weights.locate(name)["model"]


@pytest.fixture(scope="session")
def spoken() -> Callable[[str], bytes]:
    """Text -> somebody saying it, 24 kHz PCM."""
    model = HibariModel(voices_in(None), threads=1)
    said: dict[str, bytes] = {}

    def speak(text: str) -> bytes:
        if text not in said:
            said[text] = b"".join(say(model, pieces, "heart", 1.0).pcm for pieces in sentences(speakable(text)))
        return said[text]

    return speak


@pytest.fixture(scope="session")
def utterance(spoken: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """The same between two silences, as a microphone brings it."""
    return lambda text: pcm.silence(500) + spoken(text) + pcm.silence(500)


def request(body: RequestBody, **fields: object) -> EngineRequest:
    return EngineRequest(request_id="test", body=body, **fields)  # type: ignore[arg-type]


async def chunks(engine: Engine, body: RequestBody, **fields: object) -> list[EngineChunk]:
    """Everything an engine answers to a request."""
    return [chunk async for chunk in engine.stream(request(body, **fields))]


@pytest.fixture
def ask() -> Callable[..., AsyncIterator[EngineChunk]]:
    return chunks  # type: ignore[return-value]
