"""`WS /v1/realtime/robot/openpi`: openpi's policy protocol; and the same at every path of a port of its own, as openpi's server has it."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request, WebSocket
from fastapi.responses import PlainTextResponse

from .robots.serving import serve_robot
from .service import Gateway

PATH = "/v1/realtime/robot/openpi"
router = APIRouter()


@router.websocket(PATH)
async def robot(websocket: WebSocket) -> None:
    """One connection, one robot (see docs/robots.md)."""
    await serve_robot(Gateway.of(websocket), websocket)


async def healthz(request: Request) -> PlainTextResponse:
    """200 "OK" while robots are served; 503 while the server starts or drains, or when there is no policy, or one is ill."""
    gateway = Gateway.of(request)
    if not gateway.started or gateway.draining:
        return PlainTextResponse("not ready\n", 503)
    if not gateway.robots.policies:
        return PlainTextResponse("no policy\n", 503)
    health = await gateway.pool.health()
    ill = [name for name, state in health.items() if name.rpartition("-")[0] in gateway.settings.robots.policies and not state.ok]
    return PlainTextResponse(f"ill: {', '.join(ill)}\n", 503) if ill else PlainTextResponse("OK\n")


router.add_api_route("/healthz", healthz, include_in_schema=False)


def openpi_app(gateway: Gateway) -> FastAPI:
    """The application of the port for openpi's clients: `/healthz`, and robots at any other path."""
    app = FastAPI(title="Antiphon for OpenPI clients", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.gateway = gateway
    app.add_api_route("/healthz", healthz)
    app.add_api_websocket_route("/{path:path}", robot)
    return app
