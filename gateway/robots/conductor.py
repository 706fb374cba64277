"""Binds a robot session to its policy and to whichever connection it has now: what the session decides takes effect here, at once."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from ...engines.errors import EngineError
from ...engines.interface import ActionCapabilities, EngineRequest, WorkClass
from ...engines.messages import ActBody, ActionChunk, StageMark
from ...engines.pool import EnginePool
from ...robot.actions import check_actions
from ...robot.errors import BadActions
from ...robot.session import (
    UNKNOWN,
    Abort,
    Answer,
    Begun,
    Close,
    Command,
    Connected,
    Disconnected,
    EpisodeOver,
    Event,
    Failed,
    Fence,
    Made,
    Observed,
    Over,
    Rejected,
    Request,
    ResetAsked,
    RobotSession,
    Start,
    Status,
    Tick,
)
from ...robot.wire import OUTCOMES, Asked, Marks
from ..logs import logger
from ..metrics import Metrics
from ..tasks import TaskOwner
from .connection import RobotConnection
from .replies import Failure, Finished, render
from .timeline import Timeline

log = logger("gateway.robots")

CLOSE_TIMEOUT = 5.0
TIMER_STEP = 0.001
MAX_PROMPT = 200
"""Characters of a prompt that an operator is shown."""


@dataclass(slots=True, kw_only=True)
class Policy:
    """A served policy: the engine's name in the pool, and what it takes and gives."""

    engine: str
    capabilities: ActionCapabilities


@dataclass(slots=True)
class _Link:
    """The connection that the session has now, and when the request last answered on it took how long, all in all."""

    connection: RobotConnection
    previous_ms: float | None = None


class RobotConductor:
    """See the module's docstring. It is also what the registry of live sessions knows of a robot. All on the event loop."""

    def __init__(
        self,
        *,
        session_id: str,
        policy: Policy,
        pool: EnginePool,
        metrics: Metrics,
        named: bool,
        infer_s: float,
        on_ended: Callable[[RobotConductor], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.session_id = session_id
        self.policy = policy
        self.named = named
        """The robot gave its session a name: the session outlives its connection for a while."""
        self.lease: asyncio.TimerHandle | None = None
        chunk_s = policy.capabilities.horizon / policy.capabilities.rate
        self.session = RobotSession(session_id, chunk_s=chunk_s, now=clock())
        self._pool = pool
        self._metrics = metrics
        self._infer_s = infer_s
        self._on_ended = on_ended
        self._clock = clock
        self._started_at = time.time()
        self._link: _Link | None = None
        self._free = asyncio.Event()
        """Set by the end of a connection."""
        self._works: dict[int, asyncio.Task[None]] = {}
        self._tasks = TaskOwner()
        self._pending: deque[Event] = deque()
        self._handling = False
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._answers: dict[str, int] = {}
        self._episodes = dict.fromkeys((*OUTCOMES, UNKNOWN), 0)
        self._prompt = ""
        self._timeline = Timeline()

    # ---- what the connection says -----------------------------------------------------------------------------------

    def attach(self, connection: RobotConnection) -> None:
        """The robot is here (again)."""
        if self.lease is not None:
            self.lease.cancel()
            self.lease = None
        self._link = _Link(connection)
        self._free.clear()
        self.feed(Connected())

    def detach(self) -> None:
        """The robot is gone: its work is aborted before this returns."""
        self.feed(Disconnected())
        self._timeline.lost(self._clock())
        self._link = None
        self._free.set()

    async def yields(self, within: float) -> bool:
        """Is it free for another connection: has its robot gone, or is it silent (asked, for so many seconds) and cut off for that?"""
        link = self._link
        if link is None:
            return True
        if await link.connection.answers(within):
            return False
        if self._link is not link:  # somebody else has asked as well, and was first
            return self._link is None
        link.connection.cut()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._free.wait()
        return self._link is None

    @property
    def attached(self) -> bool:
        return self._link is not None

    def observed(self, asked: Asked, body: ActBody, arrived: float) -> None:
        """A good observation came at `arrived` (on the clock)."""
        self._prompt = body.prompt
        self.feed(Observed(self._request(asked.marks, arrived, body)))

    def reset(self, asked: Asked, arrived: float) -> None:
        """The robot begins anew."""
        self.feed(ResetAsked(self._request(asked.marks, arrived)))

    def reject(self, marks: Marks, code: str, message: str, arrived: float) -> None:
        """A request that cannot be served."""
        self.feed(Rejected(self._request(marks, arrived), code, message))

    def _request(self, marks: Marks, arrived: float, body: ActBody | None = None) -> Request:
        self._number += 1
        deadline = math.inf if marks.deadline_ms is None else arrived + marks.deadline_ms / 1000
        request = Request(number=self._number, arrived=arrived, marks=marks, deadline=deadline, body=body)
        self._timeline.arrived(request, self.session.epoch)
        return request

    # ---- what the registry asks -------------------------------------------------------------------------------------

    @property
    def last_activity(self) -> float:
        return self.session.last_activity

    def busy(self, now: float) -> bool:
        return self.session.busy(now)

    def state(self, now: float) -> str:
        return self.session.state(now)

    def queues(self) -> dict[str, float]:
        return {"robot_replies": float(len(self._link.connection)) if self._link is not None else 0.0}

    def report(self, now: float) -> dict[str, Any]:
        """For the operator's route."""
        return {
            "id": self.session_id,
            "object": "realtime.robot.report",
            "policy": self.policy.capabilities.policy,
            "started_at": int(self._started_at),
            "state": self.session.state(now),
            "busy": self.session.busy(now),
            "attached": self.attached,
            "epoch": self.session.epoch,
            "episode": self.session.episode,
            "requests": self._number,
            "answers": dict(self._answers),
            "stale_results": self.session.dropped,
        }

    def telemetry(self, now: float, since: float = -math.inf) -> dict[str, Any]:
        """The report, and what became of the last requests: those of which something was heard after `since`, on the clock."""
        capabilities = self.policy.capabilities
        return {
            **self.report(now),
            "prompt": self._prompt[:MAX_PROMPT],
            "rate": capabilities.rate,
            "horizon": capabilities.horizon,
            "episodes": dict(self._episodes),
            "round_ms": self._timeline.round_ms(),
            "fences": self._timeline.fences(now),
            "chunks": self._timeline.chunks(now, since),
        }

    def turns(self) -> list[dict[str, Any]]:
        return []

    # ---- events in, effects out -------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """Something happened to the session. What follows from it has taken effect when this returns, unless this was called from within
        an effect: then it waits its turn."""
        self._pending.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._pending:
                for command in self.session.handle(self._pending.popleft(), self._clock()):
                    self._apply(command)
            self._arm()
        except Exception:
            log.exception("robot session crashed", session=self.session_id)
            self._metrics.crashes.labels("robot").inc()
            self._pending.clear()
            self._apply(Close(1011, "server_error", "The server failed."))
        finally:
            self._handling = False

    def _apply(self, command: Command) -> None:
        match command:
            case Start(request=request, epoch=epoch):
                self._timeline.started(request.number, epoch)
                task = self._tasks.start(self._work(request, epoch), name=f"act {self.session_id}", on_crash=self._crashed(request))
                self._works[request.number] = task
            case Abort(number=number):
                task_or_none = self._works.pop(number, None)
                if task_or_none is not None:
                    task_or_none.cancel()
            case Answer():
                self._answer(command)
            case Close(close_code=close_code, code=code, message=message):
                if self._link is not None:
                    self._link.connection.finish(Failure(close_code, code, message))
                else:
                    self._on_ended(self)
            case EpisodeOver(outcome=outcome):
                self._episodes[outcome] += 1
                self._metrics.robot_episodes.labels(self.policy.capabilities.policy, outcome).inc()
            case Fence(epoch=epoch):
                self._timeline.fenced(epoch, self._clock())  # what is queued is asked again when it leaves

    def _answer(self, answer: Answer) -> None:
        self._timeline.decided(answer, self._clock())
        link = self._link
        if link is not None:
            told = replace(answer, request=replace(answer.request, body=None))  # an answer that waits to leave must not keep pictures
            link.connection.post(lambda: self._leaving(told, link))

    def _leaving(self, answer: Answer, link: _Link) -> bytes | Failure:
        """The answer leaves now, if it still may."""
        now = self._clock()
        answer = self.session.release(answer, now)
        self._timeline.left(answer, now)
        status = answer.status.value
        self._answers[status] = self._answers.get(status, 0) + 1
        self._metrics.robot_answers.labels(status).inc()
        message = render(answer, self.session, link.previous_ms)
        if answer.status is Status.CHUNK:
            link.previous_ms = (self._clock() - answer.request.arrived) * 1000
            self._metrics.robot_round.labels(self.policy.capabilities.policy).observe(link.previous_ms / 1000)
        return message

    async def _work(self, request: Request, epoch: int) -> None:
        """Have the engine make a chunk, and tell the session what came of it."""
        asked = EngineRequest(
            request_id=f"{self.session_id}/{request.number}",
            body=request.body,
            session_id=self.session_id,
            epoch=epoch,
            work_class=WorkClass.ACTION,
            deadline=request.deadline if request.deadline < math.inf else None,
            patience=self._infer_s,
        )
        try:
            async with aclosing(self._pool.stream(self.policy.engine, asked)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, StageMark):
                        self._timeline.begun(request.number, self._clock())
                        self.feed(Begun(request.number))
                    elif isinstance(chunk, ActionChunk):
                        self._made(request, chunk)
                        return
            self.feed(Failed(request.number, "engine_error", "The policy ended without a chunk."))
        except EngineError as error:
            self.feed(Failed(request.number, error.code, f"The policy could not make a chunk: {error}."))
        finally:
            self._works.pop(request.number, None)

    def _made(self, request: Request, chunk: ActionChunk) -> None:
        try:
            actions = check_actions(chunk.actions.numpy(), self.policy.capabilities)
        except BadActions as error:
            log.error("bad actions were held back", session=self.session_id, error=str(error))
            self.feed(Failed(request.number, "bad_actions", f"The chunk was held back: {error}."))
            return
        infer_ms = (self._clock() - request.arrived) * 1000
        self.feed(Made(request.number, Finished(actions=actions, made=chunk, infer_ms=infer_ms)))

    def _crashed(self, request: Request) -> Callable[[BaseException], None]:
        def crashed(error: BaseException) -> None:
            log.error("work for a robot crashed", session=self.session_id, exc_info=error)
            self._metrics.crashes.labels("robot").inc()
            self.feed(Failed(request.number, "server_error", "The server failed."))

        return crashed

    # ---- time and the end -------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Keep one timer at or before the next deadline; one that is too early just looks again."""
        deadline = self.session.next_deadline()
        if deadline is None or deadline >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        steps = max(1, math.ceil((deadline - self._clock()) / TIMER_STEP))
        self._timer = asyncio.get_running_loop().call_later(steps * TIMER_STEP, self._due)

    def _due(self) -> None:
        self._timer, self._timer_at = None, math.inf
        self.feed(Tick())

    async def close(self) -> None:
        """The session is over: nothing of it runs any more when this returns."""
        self.feed(Over())
        if self.lease is not None:
            self.lease.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if await self._tasks.close(CLOSE_TIMEOUT):
            log.error("a robot's work would not end", session=self.session_id)
            self._metrics.crashes.labels("tasks").inc()
