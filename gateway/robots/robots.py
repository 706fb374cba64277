"""Which robots there are: sessions by id, their admission, the leases of those whose connection is gone, and the evicted ones."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ...engines.pool import EnginePool
from ...robot.wire import metadata
from ...sessions.errors import DuplicateSession
from ...sessions.ids import Ids
from ..errors import ApiError
from ..live_sessions import LiveSessions
from ..logs import logger
from ..metrics import Metrics
from .conductor import Policy, RobotConductor
from .connection import RobotConnection

if TYPE_CHECKING:
    from ..settings import RobotSettings

log = logger("gateway.robots")

SILENCE_S = 2.0
"""A robot that does not answer a ping for so long gives its session up to a connection that names it: it has lost its network, and this
is most likely itself, back again. (Otherwise nothing happens before keepalive ends the connection.)"""
MAX_EVICTED = 4096
"""Evicted sessions that are remembered; policy: the oldest is forgotten."""


class Robots:
    """See the module's docstring. A robot's session holds a place in the registry that voice uses, and gives it back in the end."""

    def __init__(
        self,
        settings: RobotSettings,
        *,
        pool: EnginePool,
        sessions: LiveSessions,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._pool = pool
        self._sessions = sessions
        self._metrics = metrics
        self._clock = clock
        self._robots: dict[str, RobotConductor] = {}
        self._evicted: OrderedDict[str, None] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def policies(self) -> Sequence[Policy]:
        """The served policies; the first is the default. Those whose packages are missing are not served."""
        found = []
        for engine in self.settings.policies:
            if engine not in self._pool:
                continue
            capabilities = self._pool.engine(engine).capabilities.action
            assert capabilities is not None, "settings only let action engines through"
            found.append(Policy(engine=engine, capabilities=capabilities))
        return found

    def policy(self, name: str) -> Policy:
        """The policy that a robot asks for, by its own name or its engine's; "": the default. Raises a 404 `ApiError`."""
        policies = self.policies
        if not policies:
            raise ApiError(
                404, "no_policy", "This server has no robot policy: name one in robots.policies, and pip install 'antiphon[robot]'."
            )
        for policy in policies:
            if name in ("", policy.capabilities.policy, policy.engine):
                return policy
        known = ", ".join(policy.capabilities.policy for policy in policies)
        raise ApiError(404, "model_not_found", f"The policy {name[:80]!r} does not exist. There are: {known}.", param="policy")

    async def attach(
        self,
        connection: RobotConnection,
        policy: Policy,
        session_id: str | None,
        *,
        anew: bool,
        gone: Coroutine[Any, Any, None],
    ) -> RobotConductor:
        """A session for a connection: a new one, or the one of that name whose connection was lost, be it that nobody has noticed yet.

        `anew`: the robot knows that whatever it did under this name is over. `gone` ends when it gives up waiting for a place. Raises
        `ApiError`: 409 when the name is in use, or its session was evicted and the robot does not begin anew; 429 when the server is full.
        """
        robot = None if session_id is None else self._robots.get(session_id)
        if robot is not None and await robot.yields(SILENCE_S):
            robot = self._robots.get(robot.session_id)  # its lease may have ended meanwhile
        if robot is not None:
            gone.close()
            self._require_free(robot, policy)
        else:
            robot = await self._admit(session_id, policy, anew, gone)
        robot.attach(connection)
        return robot

    def _require_free(self, robot: RobotConductor, policy: Policy) -> None:
        if robot.attached or robot.session.ended is not None:
            raise ApiError(
                409,
                "session_in_use",
                f"Session {robot.session_id!r} is in use by another connection: one robot, one session.",
                param="session_id",
            )
        if robot.policy.engine != policy.engine:
            raise ApiError(
                409,
                "session_has_other_policy",
                f"Session {robot.session_id!r} runs policy {robot.policy.capabilities.policy!r}, not {policy.capabilities.policy!r}.",
                param="policy",
            )

    async def _admit(self, session_id: str | None, policy: Policy, anew: bool, gone: Coroutine[Any, Any, None]) -> RobotConductor:
        if session_id in self._evicted and not anew:
            gone.close()
            raise ApiError(
                409,
                "session_evicted",
                f"Session {session_id!r} was evicted, so its rollout is over. To begin a new one under this name, reset it: connect with "
                "'reset=true' in the URL, or begin with {'endpoint': 'reset'}.",
                param="session_id",
            )
        name = Ids(secrets.randbits(64)).make("robot") if session_id is None else session_id
        try:
            await self._sessions.admit(name, gone)
        except DuplicateSession:
            gone.close()
            raise ApiError(
                409, "session_in_use", f"Session {name!r} is in use by another connection: one robot, one session.", param="session_id"
            ) from None
        self._evicted.pop(name, None)
        robot = RobotConductor(
            session_id=name,
            policy=policy,
            pool=self._pool,
            metrics=self._metrics,
            named=session_id is not None,
            infer_s=self.settings.infer_s,
            on_ended=self._ended,
            clock=self._clock,
        )
        self._robots[name] = robot
        self._sessions.start(robot)
        log.info("robot session started", session=name, policy=policy.capabilities.policy)
        return robot

    async def detach(self, robot: RobotConductor, reason: str) -> None:
        """A connection is gone. A named session is kept for the lease, unless it has ended."""
        robot.detach()
        if robot.named and robot.session.ended is None:
            robot.lease = asyncio.get_running_loop().call_later(self.settings.lease_s, self._lease_over, robot)
            return
        await self._leave(robot, reason)

    def hello(self, robot: RobotConductor, resumed: bool) -> dict[str, Any]:
        """The metadata that a robot is told first."""
        session = {
            "id": robot.session_id,
            "epoch": robot.session.epoch,
            "resumed": resumed,
            "lease_s": self.settings.lease_s if robot.named else 0.0,
        }
        return metadata(robot.policy.capabilities, session, {"max_frame_bytes": self.settings.max_frame_bytes})

    async def close(self) -> None:
        """End what the registry's drain has left: leases, and endings under way."""
        for robot in list(self._robots.values()):
            await self._leave(robot, "server")
        if self._ending:
            await asyncio.wait(self._ending)

    # ---- ends -------------------------------------------------------------------------------------------------------

    def _lease_over(self, robot: RobotConductor) -> None:
        log.info("lease over", session=robot.session_id)
        self._end(robot, "lease")

    def _ended(self, robot: RobotConductor) -> None:
        """The registry ended a session that has no connection."""
        self._end(robot, "server")

    def _end(self, robot: RobotConductor, reason: str) -> None:
        task = asyncio.get_running_loop().create_task(self._leave(robot, reason), name=f"end of {robot.session_id}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _leave(self, robot: RobotConductor, reason: str) -> None:
        """Take a session out of the books, once."""
        if self._robots.get(robot.session_id) is not robot:
            return
        del self._robots[robot.session_id]
        if robot.session.ended is not None and robot.session.ended.code == "session_evicted":
            self._evicted[robot.session_id] = None
            if len(self._evicted) > MAX_EVICTED:
                self._evicted.popitem(last=False)
        self._sessions.leave(robot.session_id, reason)
        await robot.close()
        log.info("robot session ended", session=robot.session_id, by=reason)
