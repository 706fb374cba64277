"""`/v1/robots`, for the operator: which robots there are, and what became of their last requests, to the millisecond."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from ..robot.session import UNKNOWN
from ..robot.wire import OUTCOMES
from .auth import require_key
from .errors import ApiError
from .metrics import totals
from .openapi import answers, gives
from .robots.conductor import RobotConductor
from .robots.schemas import RobotList, SingleRobotObject
from .service import Gateway

router = APIRouter(prefix="/v1/robots", tags=["robots"], dependencies=[Depends(require_key)])

Since = Annotated[
    float, Query(ge=0, allow_inf_nan=False, description="Unix seconds (an earlier answer's `now`): only requests of which more is known.")
]


@router.get("", operation_id="list_robots", response_model=None, responses={200: gives(RobotList), **answers(400)})
async def list_robots(request: Request, since: Since = 0.0) -> Response:
    """The robots, each with its newest requests. Who asks often says `since`, and is told of what is new."""
    gateway = Gateway.of(request)
    now, clock = time.time(), time.monotonic()
    oldest = _on_clock(since, now, clock)
    return _json(
        {
            "object": "list",
            "now": round(now, 4),
            "policies": [policy.capabilities.policy for policy in gateway.robots.policies] if gateway.started else [],
            "totals": {
                "answers": totals(gateway.metrics.robot_answers, "status"),
                "episodes": {**dict.fromkeys((*OUTCOMES, UNKNOWN), 0), **totals(gateway.metrics.robot_episodes, "outcome")},
            },
            "data": [live.telemetry(clock, oldest) for live in gateway.sessions.all() if isinstance(live, RobotConductor)],
        }
    )


@router.get(
    "/{robot_id:path}", operation_id="retrieve_robot", response_model=None, responses={200: gives(SingleRobotObject), **answers(400, 404)}
)
async def retrieve_robot(robot_id: Annotated[str, Path(max_length=200)], request: Request, since: Since = 0.0) -> Response:
    """One robot, by the id of its session."""
    live = Gateway.of(request).sessions.get(robot_id)
    if not isinstance(live, RobotConductor):
        raise ApiError(404, "robot_not_found", f"There is no robot {robot_id!r} on this server.", param="robot_id")
    now, clock = time.time(), time.monotonic()
    return _json({**live.telemetry(clock, _on_clock(since, now, clock)), "now": round(now, 4)})


def _on_clock(since: float, now: float, clock: float) -> float:
    """A Unix time on the sessions' clock; 0: everything."""
    return clock - (now - since) if since else -math.inf


def _json(body: dict[str, Any]) -> Response:
    """Encoded by msgspec: a full fleet is a megabyte, and robots wait while the event loop writes it."""
    return Response(msgspec.json.encode(body), media_type="application/json", headers={"cache-control": "no-store"})
