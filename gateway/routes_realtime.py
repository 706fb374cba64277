"""`WS /v1/realtime`: OpenAI's Realtime protocol over a WebSocket."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from ..sessions.ids import Ids
from ..sessions.inbound import ClientMessage, Inbound
from ..sessions.recording import header_of, session_of
from ..sessions.server_events import encode_event
from ..sessions.session_config import SessionConfig
from .beta import BetaShim
from .client_secrets import Grant, authorise, granted_model
from .conductor import Conductor
from .errors import ApiError
from .figures import Figures
from .first_config import first_config, with_session
from .live_sessions import LiveSession
from .logs import logger
from .recordings import start_recording
from .routes_calls import join_call
from .service import Gateway
from .transports.websocket import WebSocketConnection

router = APIRouter()
log = logger("gateway.realtime")

SUBPROTOCOL = "realtime"


@router.websocket("/v1/realtime")
async def realtime(websocket: WebSocket) -> None:
    """One connection, one session. Whatever is wrong before it starts is an HTTP error in the handshake's answer."""
    gateway = Gateway.of(websocket)
    if "call_id" in websocket.query_params:
        await join_call(gateway, websocket, websocket.query_params["call_id"])
        return
    session_id = Ids(secrets.randbits(64)).make("sess")
    try:
        grant = authorise(gateway.keys, gateway.client_secrets, websocket.headers, websocket.scope.get("subprotocols", ()))
        gateway.require_open()
        model = _asked_model(websocket) or granted_model(grant)
        pipeline = gateway.pipeline_for(model)
        config = _asked_config(gateway, websocket, model, pipeline, grant)
        await gateway.sessions.admit(session_id, _gone(websocket))
    except ApiError as refusal:
        gateway.metrics.refusals.labels(refusal.code).inc()
        log.info("refused", code=refusal.code, client=_client(websocket))
        await websocket.send_denial_response(refusal.response())
        return
    except ConnectionError:
        return
    reason = "error"
    try:
        reason = await _converse(gateway, websocket, session_id, model, pipeline, config)
    except WebSocketDisconnect:  # gone between the admission and the first word
        reason = "client"
    finally:
        gateway.sessions.leave(session_id, reason)


async def _converse(gateway: Gateway, websocket: WebSocket, session_id: str, model: str, pipeline: str, config: SessionConfig) -> str:
    """Accept the connection and let the session run until it ends; returns by whom."""
    settings = gateway.settings
    offered = websocket.scope.get("subprotocols", ())
    await websocket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
    header = header_of(
        session_id=session_id,
        seed=secrets.randbits(64),
        expires_at=int(time.time() + settings.registry.lifetime_s),
        config=config,
        policy=settings.turn_taking_policy(),
        limits=settings.session_limits(),
        created=time.time(),
    )
    session = session_of(header)
    connection = WebSocketConnection(websocket, settings.websocket_limits())
    shim = BetaShim() if websocket.headers.get("openai-beta", "").strip() == "realtime=v1" else None
    conductor = Conductor(
        session=session,
        connection=connection,
        orchestrator=gateway.orchestrator,
        pipeline=pipeline,
        figures=Figures(gateway.metrics, pipeline),
        voices=gateway.voices(pipeline),
        errors_per_minute=settings.websocket_limits().errors_per_minute,
        encode=encode_event if shim is None else shim.encode,
        recording=start_recording(settings.recording, header),
    )
    gateway.sessions.start(LiveSession(session_id, model, pipeline, conductor, connection))
    log.info("session started", session=session_id, model=model, pipeline=pipeline, client=_client(websocket), beta=shim is not None)
    try:
        conductor.open()
        closing = await connection.run(conductor.feed if shim is None else _translated(shim, conductor.feed))
    finally:
        await conductor.close()
    if closing.by == "slow_reader":
        gateway.metrics.slow_readers.inc()
    log.info("session ended", session=session_id, by=closing.by, code=closing.code)
    return closing.by


def _translated(shim: BetaShim, feed: Callable[[Inbound], None]) -> Callable[[Inbound], None]:
    """Client events of the beta protocol become those of today's before the session sees (and records) them."""

    def translate(event: Inbound) -> None:
        feed(ClientMessage(shim.inbound(event.raw)) if isinstance(event, ClientMessage) else event)

    return translate


async def _gone(websocket: WebSocket) -> None:
    """Ends when a client that has not been accepted yet goes away."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


def _asked_model(websocket: WebSocket) -> str:
    return websocket.query_params.get("model") or websocket.query_params.get("deployment") or ""


def _asked_config(gateway: Gateway, websocket: WebSocket, model: str, pipeline: str, grant: Grant | None) -> SessionConfig:
    """What the session starts with. Raises an `ApiError` for an unknown intent."""
    session = None if grant is None else grant.session
    intent = websocket.query_params.get("intent") or str((session or {}).get("type") or "conversation")
    if intent not in ("conversation", "transcription", "realtime"):
        raise ApiError(400, "invalid_value", f"Unknown intent '{intent}': there are 'conversation' and 'transcription'.", param="intent")
    kind = "transcription" if intent == "transcription" else "realtime"
    return with_session(first_config(gateway, model, pipeline, kind), session)


def _client(websocket: WebSocket) -> str:
    return websocket.client.host if websocket.client is not None else ""
