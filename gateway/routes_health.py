"""Is it alive, is it ready, and how are its engines: `/livez`, `/readyz`, `/health`, `/metrics`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from .service import Gateway

router = APIRouter(tags=["operation"])


@router.get("/livez")
async def livez() -> PlainTextResponse:
    """200 as long as the process answers."""
    return PlainTextResponse("ok\n")


@router.get("/readyz")
async def readyz(request: Request) -> JSONResponse:
    """200 when new sessions are taken; 503 while the server starts or drains."""
    gateway = Gateway.of(request)
    if gateway.draining:
        return JSONResponse({"ready": False, "reason": "draining"}, 503, {"retry-after": "5"})
    if not gateway.started:
        return JSONResponse({"ready": False, "reason": "starting"}, 503, {"retry-after": "1"})
    return JSONResponse({"ready": True})


@router.get("/health")
async def health(request: Request) -> JSONResponse:
    """The state of every engine replica; 503 when one is ill."""
    gateway = Gateway.of(request)
    engines: dict[str, Any] = {name: asdict(state) for name, state in (await gateway.pool.health()).items()}
    well = all(state["ok"] for state in engines.values())
    status = "draining" if gateway.draining else "ok" if well else "degraded"
    body = {"status": status, "sessions": len(gateway.sessions), "engines": engines}
    return JSONResponse(body, 200 if well else 503)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """All figures of docs/metrics.md in Prometheus' text format."""
    gateway = Gateway.of(request)
    await gateway.refresh_figures()
    return Response(gateway.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
