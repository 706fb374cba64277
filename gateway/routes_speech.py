"""`POST /v1/audio/speech`: text to speech on the same engines, in the class of work below live conversations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from ..codecs import wav
from ..engines.interface import Role
from .auth import require_key
from .errors import ApiError
from .service import Gateway
from .speaking import say

router = APIRouter(tags=["audio"])

LONGEST_TEXT = 4096


class VoiceId(BaseModel):
    """A voice by its id."""

    id: str


class SpeechRequest(BaseModel):
    """The body of OpenAI's call; `instructions` and `stream_format` are accepted and have no effect."""

    model_config = ConfigDict(extra="ignore")

    model: str = ""
    """A speech engine's name, or a model name whose pipeline has one."""
    input: str = Field(min_length=1, max_length=LONGEST_TEXT)
    voice: str | VoiceId = ""
    response_format: Literal["wav", "pcm"] = "wav"
    speed: float = Field(default=1.0, ge=0.25, le=4.0)


@router.post("/v1/audio/speech", dependencies=[Depends(require_key)], response_model=None)
async def create_speech(body: SpeechRequest, request: Request) -> Response:
    """The text as 24 kHz mono speech: a WAV file, or raw 16-bit PCM as it is made."""
    gateway = Gateway.of(request)
    gateway.require_open()
    engine = _engine(gateway, body.model)
    voice = body.voice if isinstance(body.voice, str) else body.voice.id
    chunks = say(gateway.pool, engine, body.input, voice=voice, speed=body.speed)
    # The first chunk is made before the answer begins, so that an error can still be an HTTP error.
    first = await anext(chunks, b"")
    if body.response_format == "pcm":
        return StreamingResponse(_all(first, chunks), media_type="audio/pcm")
    pcm = b"".join([part async for part in _all(first, chunks)])
    return Response(wav.encode(pcm), media_type="audio/wav")


async def _all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part


def _engine(gateway: Gateway, model: str) -> str:
    speech = gateway.pool.names(Role.SPEECH)
    if model in speech:
        return model
    engine = gateway.settings.pipelines[gateway.pipeline_for(model)].speech
    if engine is None:
        raise ApiError(404, "model_not_found", f"The model '{model}' does not speak. These do: {', '.join(speech)}.", param="model")
    return engine
