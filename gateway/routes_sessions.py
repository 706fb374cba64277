"""For the operator: which sessions there are, how their last turns went, and an end to one of them."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from ..sessions.inbound import EndSession
from .auth import require_key
from .errors import ApiError
from .live_sessions import Live
from .service import Gateway

router = APIRouter(prefix="/v1/realtime/sessions", tags=["sessions"], dependencies=[Depends(require_key)])

ENDED_BY_OPERATOR = 4001
"""Close code; no stock client connects again on it."""


@router.get("")
async def list_sessions(request: Request) -> dict[str, Any]:
    """Every session of this server."""
    now = time.monotonic()
    return {"object": "list", "data": [live.report(now) for live in Gateway.of(request).sessions.all()]}


@router.get("/{session_id}")
async def retrieve_session(session_id: str, request: Request) -> dict[str, Any]:
    """A session with its last turns: marks and stages in ms after the end of the user's speech, figures in ms."""
    live = _find(request, session_id)
    return {**live.report(time.monotonic()), "turns": live.turns()}


@router.delete("/{session_id}", status_code=204)
async def end_session(session_id: str, request: Request) -> Response:
    """End a session: the client is told and its connection closed."""
    _find(request, session_id).feed(EndSession("session_ended", "The operator ended this session.", ENDED_BY_OPERATOR))
    return Response(status_code=204)


def _find(request: Request, session_id: str) -> Live:
    live = Gateway.of(request).sessions.get(session_id)
    if live is None:
        raise ApiError(404, "session_not_found", f"There is no session '{session_id}' on this server.")
    return live
