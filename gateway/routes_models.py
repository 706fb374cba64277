"""What may be asked for: `/v1/models` in OpenAI's shape, and the server's `/version`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request

from .. import __version__
from .auth import require_key
from .errors import ApiError
from .media.engines import media_names, media_targets
from .media.sizes import IMAGE_SIZES, LONGEST_S, VIDEO_SIZES
from .service import Gateway

router = APIRouter(tags=["models"])


@router.get("/v1/models", dependencies=[Depends(require_key)])
async def list_models(request: Request) -> dict[str, Any]:
    """The model names that this server answers to: its pipelines, its media engines and their aliases."""
    gateway = Gateway.of(request)
    voices = [_model(gateway, name) for name in gateway.model_names()]
    return {"object": "list", "data": [*voices, *(_media_model(gateway, name, lane) for name, lane in _media(gateway).items())]}


@router.get("/v1/models/{model}", dependencies=[Depends(require_key)])
async def retrieve_model(model: str, request: Request) -> dict[str, Any]:
    """One of them; 404 for a name that only the fallback would answer to."""
    gateway = Gateway.of(request)
    media = _media(gateway)
    if model in media:
        return _media_model(gateway, model, media[model])
    if model not in gateway.model_names():
        known = ", ".join([*gateway.model_names(), *media])
        raise ApiError(404, "model_not_found", f"The model '{model}' does not exist. There are: {known}.")
    return _model(gateway, model)


@router.get("/version")
async def version() -> dict[str, str]:
    """The server's version."""
    return {"version": __version__}


def _media(gateway: Gateway) -> dict[str, str]:
    """The names that lead to a media engine; a pipeline of the same name goes first."""
    voices = gateway.model_names()
    return {name: lane for name, lane in media_names(gateway).items() if name not in voices}


def _media_model(gateway: Gateway, name: str, lane: str) -> dict[str, Any]:
    """A model that makes pictures or clips, with what may be asked of it. Sizes: the model's own first, then those that are scaled."""
    media = media_targets(gateway)[lane].media
    own = [f"{width}x{height}" for width, height in media.sizes]
    longest = min(LONGEST_S, media.max_frames / media.fps)
    return {
        "id": name,
        "object": "model",
        "created": gateway.created,
        "owned_by": "antiphon",
        "engine": lane,
        "media": {
            "pictures": media.pictures,
            "clips": media.max_frames > 1,
            "picture_sizes": [*own, *(size for size in IMAGE_SIZES if size not in own)] if media.pictures else [],
            "clip_sizes": [*own, *(size for size in VIDEO_SIZES if size not in own)] if media.max_frames > 1 else [],
            "multiple": media.multiple,
            "max_side": media.max_side,
            "max_frames": media.max_frames,
            "fps": media.fps,
            "full_rate_seconds": round(longest, 3),
            "max_seconds": LONGEST_S,
            "default_steps": media.default_steps,
            "max_steps": media.max_steps,
            "edits": media.edits,
            "previews": media.previews,
        },
    }


def _model(gateway: Gateway, name: str) -> dict[str, Any]:
    pipeline = gateway.settings.pipeline_for(name)
    assert pipeline is not None, "model_names() lists what is served"
    engines = gateway.settings.pipelines[pipeline].engines()
    return {
        "id": name,
        "object": "model",
        "created": gateway.created,
        "owned_by": "antiphon",
        "pipeline": pipeline,
        "voices": list(gateway.voices(pipeline)),
        "engines": {role.value: engine for role, engine in engines.items()},
    }
