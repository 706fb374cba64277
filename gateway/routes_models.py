"""What may be asked for: `/v1/models` in OpenAI's shape, and the server's `/version`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request

from .. import __version__
from .auth import require_key
from .errors import ApiError
from .service import Gateway

router = APIRouter(tags=["models"])


@router.get("/v1/models", dependencies=[Depends(require_key)])
async def list_models(request: Request) -> dict[str, Any]:
    """The model names that this server answers to: its pipelines and their aliases."""
    gateway = Gateway.of(request)
    return {"object": "list", "data": [_model(gateway, name) for name in gateway.model_names()]}


@router.get("/v1/models/{model}", dependencies=[Depends(require_key)])
async def retrieve_model(model: str, request: Request) -> dict[str, Any]:
    """One of them; 404 for a name that only the fallback would answer to."""
    gateway = Gateway.of(request)
    if model not in gateway.model_names():
        raise ApiError(404, "model_not_found", f"The model '{model}' does not exist. There are: {', '.join(gateway.model_names())}.")
    return _model(gateway, model)


@router.get("/version")
async def version() -> dict[str, str]:
    """The server's version."""
    return {"version": __version__}


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
