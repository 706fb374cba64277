"""Calls over WebRTC: offers are answered, keys for browsers made, calls listed, joined and hung up."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect
from starlette.types import Message

from ..sessions.server_events import SessionCreated, encode_event
from .auth import require_key
from .client_secrets import LONGEST, SHORTEST, USUAL, Grant, authorise
from .errors import ApiError
from .first_config import first_config, with_session
from .logs import logger
from .service import Gateway
from .transports.webrtc.limits import WebRtcLimits
from .transports.websocket import WebSocketConnection

if TYPE_CHECKING:
    from .calls import Calls

router = APIRouter(prefix="/v1/realtime", tags=["calls"])
log = logger("gateway.calls")

MAX_BODY = 512 * 1024
BODY_TIMEOUT = 15.0
"""Seconds that a caller has to send its offer."""
GONE_POLL = 0.2


# ---- calls ----------------------------------------------------------------------------------------------------------


@router.post("/calls", status_code=201, response_class=Response)
async def create_call(request: Request) -> Response:
    """Answer an SDP offer: raw (`application/sdp`), or in a form with the parts `sdp` and `session`."""
    gateway = Gateway.of(request)
    client = request.client.host if request.client is not None else ""
    try:
        grant = _authorise(request)
        gateway.require_open()
        _, calls = _calls(request)
        offer, session = await _read_offer(request)
        gateway.require_open()  # reading may have taken a while
        patches = [dict(grant.session)] if grant is not None else []
        patches += [session] if session else []
        model = request.query_params.get("model") or next((p["model"] for p in reversed(patches) if isinstance(p.get("model"), str)), "")
        pipeline = gateway.pipeline_for(model)
        kind = next((str(p["type"]) for p in reversed(patches) if p.get("type")), "realtime")
        config = with_session(first_config(gateway, model, pipeline, kind), *patches)
        call_id, answer = await calls.start(offer, config, model=model, pipeline=pipeline, client=client, gone=_gone(request))
    except ApiError as refusal:
        gateway.metrics.refusals.labels(refusal.code).inc()
        log.info("call refused", code=refusal.code, client=client)
        raise
    except (ConnectionError, ClientDisconnect):
        return Response(status_code=499)
    return Response(answer, status_code=201, media_type="application/sdp", headers={"Location": f"/v1/realtime/calls/{call_id}"})


@router.get("/calls", dependencies=[Depends(require_key)])
async def list_calls(request: Request) -> dict[str, Any]:
    """Every call of this server, with the counters of its media."""
    _, calls = _calls(request)
    return {"object": "list", "data": [call.report() for call in calls.all()]}


@router.get("/calls/{call_id}", dependencies=[Depends(require_key)])
async def retrieve_call(call_id: str, request: Request) -> dict[str, Any]:
    """A call with the counters of its media."""
    return _calls(request)[1].get(call_id).report()


@router.post("/calls/{call_id}/hangup", dependencies=[Depends(require_key)])
async def hang_up(call_id: str, request: Request) -> Response:
    """End a call."""
    _, calls = _calls(request)
    calls.hang_up(calls.get(call_id))
    return Response(status_code=200)


async def join_call(gateway: Gateway, websocket: WebSocket, call_id: str) -> None:
    """`WS /v1/realtime?call_id=`: another connection to a call's session. It gets every event but the audio, and may send any."""
    try:
        gateway.keys.require(websocket.headers, websocket.scope.get("subprotocols", ()))
        if gateway.calls is None:
            raise _no_calls()
        call = gateway.calls.get(call_id)
    except ApiError as refusal:
        gateway.metrics.refusals.labels(refusal.code).inc()
        await websocket.send_denial_response(refusal.response())
        return
    try:
        await websocket.accept(subprotocol="realtime" if "realtime" in websocket.scope.get("subprotocols", ()) else None)
    except WebSocketDisconnect:  # gone already
        return
    connection = WebSocketConnection(websocket, gateway.settings.websocket_limits())
    session = call.conductor.session
    hello = SessionCreated(event_id=f"event_{secrets.token_hex(10)}", session=session.config.wire(session.id, call.expires_at))
    connection.send(encode_event(hello))
    if not call.connection.attach(connection):
        connection.finish(1013, "The call is over, or has too many listeners.")
    try:
        await connection.run(call.conductor.feed)
    finally:
        call.connection.detach(connection)


async def _read_offer(request: Request) -> tuple[str, dict[str, Any]]:
    """The offer and the session configuration of a request's body. Raises a 4xx `ApiError`."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MAX_BODY:
        raise ApiError(413, "offer_too_large", f"The body has {length} bytes; {MAX_BODY} are accepted.")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    raw = kind in ("application/sdp", "text/plain", "")
    if not raw and kind not in ("multipart/form-data", "application/x-www-form-urlencoded"):
        message = f"The content type '{kind}' is not understood: send the offer as application/sdp, or a form with 'sdp' and 'session'."
        raise ApiError(415, "unsupported_content_type", message)
    body = await _limited_body(request)
    if raw:
        return _text(body, "sdp"), {}
    async with _again(request, body).form(max_files=4, max_fields=8, max_part_size=MAX_BODY) as form:
        offer, session = await _part(form, "sdp"), await _part(form, "session")
    if offer is None:
        raise ApiError(400, "missing_required_parameter", "The form has no part 'sdp' with the offer.", param="sdp")
    return offer, _session_object(session)


async def _limited_body(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for block in request.stream():
                body += block
                if len(body) > MAX_BODY:
                    raise ApiError(413, "offer_too_large", f"The body is larger than {MAX_BODY} bytes.")
    except TimeoutError:
        raise ApiError(408, "offer_timeout", f"The body did not arrive within {BODY_TIMEOUT:g} s.") from None
    return bytes(body)


def _again(request: Request, body: bytes) -> Request:
    """The request with its body, which has been read and measured: a form's files may otherwise be of any size."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(request.scope, receive)


async def _part(form: FormData, name: str) -> str | None:
    """A part's text, whether it came as a field or as a file."""
    part = form.get(name)
    return _text(await part.read(), name) if isinstance(part, UploadFile) else part


def _text(data: bytes, param: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        code, what = ("invalid_offer", "offer") if param == "sdp" else ("invalid_value", f"part '{param}'")
        raise ApiError(400, code, f"The {what} is no text in UTF-8.", param=param) from None


def _session_object(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        session = json.loads(text)
    except (ValueError, RecursionError):
        session = None
    if not isinstance(session, dict):
        raise ApiError(400, "invalid_json", "The part 'session' is no JSON object.", param="session")
    return session


async def _gone(request: Request) -> None:
    """Ends when the caller gives up waiting for the answer."""
    while not await request.is_disconnected():  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(GONE_POLL)


def _calls(request: Request) -> tuple[Gateway, Calls]:
    gateway = Gateway.of(request)
    if gateway.calls is None:
        raise _no_calls()
    return gateway, gateway.calls


def _no_calls() -> ApiError:
    return ApiError(404, "calls_not_enabled", "This server takes no calls: webrtc.enabled is false, or the extra is missing.")


def _authorise(request: Request) -> Grant | None:
    gateway = Gateway.of(request)
    return authorise(gateway.keys, gateway.client_secrets, request.headers)


# ---- keys for browsers ----------------------------------------------------------------------------------------------


class ExpiresAfter(BaseModel):
    """How long a key lives, from now on."""

    model_config = ConfigDict(extra="forbid")

    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Field(ge=SHORTEST, le=LONGEST)] = USUAL


class ClientSecretRequest(BaseModel):
    """The body of `POST /v1/realtime/client_secrets`."""

    model_config = ConfigDict(extra="forbid")

    expires_after: ExpiresAfter = ExpiresAfter()
    session: dict[str, Any] = {}


@router.post("/client_secrets", dependencies=[Depends(require_key)])
async def create_client_secret(body: ClientSecretRequest, request: Request) -> dict[str, Any]:
    """Make an ephemeral key, bound to a session configuration, that a page may hold."""
    gateway = Gateway.of(request)
    model = body.session.get("model") or ""
    if not isinstance(model, str):
        raise ApiError(400, "invalid_value", "The session's model must be a string.", param="session.model")
    pipeline = gateway.pipeline_for(model)
    kind = str(body.session.get("type") or "realtime")
    config = with_session(first_config(gateway, model, pipeline, kind), body.session)
    value, expires_at = gateway.client_secrets.issue(body.session, body.expires_after.seconds)
    session = config.wire(f"sess_{secrets.token_urlsafe(15)}", 0)
    return {"value": value, "expires_at": expires_at, "session": session}


# ---- networks -------------------------------------------------------------------------------------------------------


@router.get("/ice-servers")
async def ice_servers(request: Request) -> dict[str, Any]:
    """The STUN and TURN servers that a caller should use; an empty list means that none is needed."""
    _, calls = _calls(request)
    _authorise(request)
    return {"ice_servers": _servers(calls.limits, time.time())}


def _servers(limits: WebRtcLimits, now: float) -> list[dict[str, Any]]:
    servers: list[dict[str, Any]] = []
    if limits.stun_urls:
        servers.append({"urls": list(limits.stun_urls)})
    if limits.turn_urls:
        username, credential = limits.turn_username, limits.turn_credential
        if limits.turn_secret:
            # coturn's use-auth-secret: the name says when it expires, the password is its HMAC.
            username = f"{int(now + limits.turn_ttl_s)}:{secrets.token_hex(4)}"
            digest = hmac.new(limits.turn_secret.encode(), username.encode(), hashlib.sha1).digest()
            credential = base64.b64encode(digest).decode()
        servers.append({"urls": list(limits.turn_urls), "username": username, "credential": credential})
    return servers
