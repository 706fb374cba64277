"""One robot's connection, from its handshake to its end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.websockets import WebSocket, WebSocketDisconnect

from ...codecs import msgpack_numpy
from ...codecs.msgpack_numpy import BadMessage, Bounds
from ...engines.messages import ActBody, Array
from ...robot.errors import BadRequest
from ...robot.observation import check_observation, check_prefix, work_of
from ...robot.wire import Asked, Marks, check_session_id, marks_of, read_request
from ..client_secrets import authorise
from ..errors import ApiError
from ..logs import logger
from .conductor import Policy, RobotConductor
from .connection import RobotConnection
from .replies import ERROR, Failure

if TYPE_CHECKING:
    from ..service import Gateway

log = logger("gateway.robots")

LARGE = 256 * 1024
"""Bytes of floats from which on they are looked through on a thread, so that the event loop goes on; and of a frame from which on it
matters what of it is kept."""
REFUSED_S = 0.002
"""After a refusal nothing more is read of the connection for so long: a flood of nonsense must not take a core from robots at work."""
TRUE = frozenset({"1", "true", "yes"})


async def serve_robot(gateway: Gateway, websocket: WebSocket) -> None:
    """Serve a connection. Whatever is wrong before it starts is an HTTP error in the handshake's answer."""
    settings = gateway.settings
    connection = RobotConnection(
        websocket,
        max_frame_bytes=settings.robots.max_frame_bytes,
        send_timeout_s=settings.websocket_limits().send_timeout_s,
        budget=settings.robots.byte_budget(),
    )
    try:
        authorise(gateway.keys, gateway.client_secrets, websocket.headers, websocket.scope.get("subprotocols", ()))
        gateway.require_open()
        query = websocket.query_params
        policy = gateway.robots.policy(query.get("policy") or query.get("model") or "")
        session_id = query.get("session_id")
        if session_id is not None:
            check_session_id(session_id)
        anew = query.get("reset", "").lower() in TRUE
        robot = await gateway.robots.attach(connection, policy, session_id, anew=anew, gone=_gone(websocket))
    except (ApiError, BadRequest) as refusal:
        error = refusal if isinstance(refusal, ApiError) else ApiError(400, refusal.code, str(refusal), param="session_id")
        gateway.metrics.refusals.labels(error.code).inc()
        log.info("robot refused", code=error.code, session=websocket.query_params.get("session_id", ""))
        await websocket.send_denial_response(error.response())
        return
    except ConnectionError:
        return
    dialogue = _Dialogue(gateway, connection, policy, robot)
    reason = "error"
    try:
        reason = await dialogue.run()
    except WebSocketDisconnect:  # gone between the admission and the first word
        reason = "client"
    finally:
        await gateway.robots.detach(dialogue.robot, reason)


class _Dialogue:
    """The connection's requests, in order. It may pass from one session to another when a request names one."""

    def __init__(self, gateway: Gateway, connection: RobotConnection, policy: Policy, robot: RobotConductor) -> None:
        self.robot = robot
        self._gateway = gateway
        self._connection = connection
        self._policy = policy
        self._bounds = Bounds(max_values=gateway.settings.robots.max_values)

    async def run(self) -> str:
        """Say hello and listen until either side closes; returns by whom."""
        await self._connection.accept()
        resumed = self.robot.session.epoch > 0
        hello = msgpack_numpy.pack(self._gateway.robots.hello(self.robot, resumed))
        self._connection.post(lambda: hello)
        closing = await self._connection.run(self._hear)
        if closing.by == "slow_reader":
            self._gateway.metrics.slow_readers.inc()
        return closing.by

    async def _hear(self, data: bytes | str) -> None:
        arrived = time.monotonic()
        marks = Marks()
        try:
            if isinstance(data, str):
                raise BadRequest("invalid_frame", "A text frame came: send requests as MessagePack in binary frames.")
            message = msgpack_numpy.unpack(data, self._bounds)
            marks = marks_of(message)
            asked = read_request(message)
            if asked.session_id is not None and asked.session_id != self.robot.session_id:
                await self._pass_to(asked.session_id, anew=asked.endpoint == "reset")
            if asked.endpoint == "reset":
                self.robot.reset(asked, arrived)
            else:
                self.robot.observed(asked, await self._body(asked, len(data)), arrived)
        except (BadMessage, BadRequest) as error:
            code = error.code if isinstance(error, BadRequest) else "invalid_message"
            self.robot.reject(marks, code, str(error), arrived)
            del data  # it may be large
            await asyncio.sleep(REFUSED_S)
        except ApiError as error:  # the session that the request names cannot be had
            self._gateway.metrics.refusals.labels(error.code).inc()
            self._connection.finish(Failure(ERROR, error.code, error.message))

    async def _body(self, asked: Asked, size: int) -> ActBody:
        """The engine's body of a checked observation that came in a frame of so many bytes. Raises `BadRequest`."""
        capabilities = self._policy.capabilities
        if asked.steps is not None and asked.steps > capabilities.max_steps:
            raise BadRequest("invalid_steps", f"steps must be at most {capabilities.max_steps}, not {asked.steps}.")
        prefix = check_prefix(asked.prefix, capabilities)
        if work_of(asked.fields) > LARGE:
            arrays, prompt = await asyncio.to_thread(check_observation, asked.fields, capabilities)
        else:
            arrays, prompt = check_observation(asked.fields, capabilities)
        if size > LARGE and size > 2 * sum(array.nbytes for array in arrays.values()):
            arrays = {key: array.copy() for key, array in arrays.items()}  # views would keep the rest of the frame, which nobody wants
        return ActBody(
            observation={key: Array.of(array) for key, array in arrays.items()},
            prompt=prompt,
            prefix=None if prefix is None else Array.of(prefix),
            seed=asked.seed,
            steps=asked.steps,
        )

    async def _pass_to(self, session_id: str, *, anew: bool) -> None:
        """Go on as another session. The old one is left as if its connection were gone; whatever it still owed is answered first.
        Raises `ApiError` when the other cannot be had; the old one is kept then."""
        robots = self._gateway.robots
        robot = await robots.attach(self._connection, self._policy, session_id, anew=anew, gone=_never())
        self.robot, old = robot, self.robot
        await robots.detach(old, "client")


async def _gone(websocket: WebSocket) -> None:
    """Ends when a client that has not been accepted yet goes away."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


async def _never() -> None:
    """The connection's own reader waits; the registry's waiting time bounds that."""
    await asyncio.Event().wait()
