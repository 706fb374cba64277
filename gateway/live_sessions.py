"""Every session of this server while it lives: admission, eviction and ends by time, as the registry decides them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client.core import Metric

from ..codecs.pcm import SAMPLE_RATE
from ..sessions import registry as decisions
from ..sessions.inbound import EndSession, Warn
from ..sessions.registry import Registry
from .conductor import Conductor
from .errors import ApiError
from .logs import logger
from .metrics import Metrics, gauge
from .settings import RegistrySettings
from .transports.connection import Connection

log = logger("gateway.sessions")

SWEEP = 0.25
"""Seconds between looks at who has become idle, busy or too old."""
EVICTED = 4000
"""Close code of an evicted session: not one of those on which clients connect again by themselves."""


class Live(Protocol):
    """An admitted session, as far as the registry and the operator are concerned: a voice session or a robot's."""

    session_id: str

    @property
    def last_activity(self) -> float: ...

    def busy(self, now: float) -> bool:
        """Must it not be evicted now?"""

    def state(self, now: float) -> str: ...

    def feed(self, event: EndSession | Warn) -> None:
        """Tell it what the registry has decided."""

    def report(self, now: float) -> dict[str, Any]: ...

    def turns(self) -> list[dict[str, Any]]: ...

    def queues(self) -> dict[str, float]:
        """How much waits in its queues, by their names in the metrics."""


QUEUES = ("outbox_events", "outbox_audio_seconds", "vad_audio_seconds", "robot_replies")


@dataclass(slots=True)
class LiveSession:
    """An admitted voice session and its connection."""

    session_id: str
    model: str
    pipeline: str
    conductor: Conductor
    connection: Connection
    started_at: float = field(default_factory=time.time)
    """Unix seconds."""

    @property
    def last_activity(self) -> float:
        return self.conductor.session.last_activity

    def busy(self, now: float) -> bool:
        return self.conductor.session.busy(now)

    def state(self, now: float) -> str:
        return self.conductor.session.state(now)

    def feed(self, event: EndSession | Warn) -> None:
        self.conductor.feed(event)

    def turns(self) -> list[dict[str, Any]]:
        """How its last turns went."""
        return self.conductor.figures.timings.report()

    def queues(self) -> dict[str, float]:
        box = self.connection.outbox
        return {
            "outbox_events": float(len(box)),
            "outbox_audio_seconds": box.samples / SAMPLE_RATE,
            "vad_audio_seconds": self.conductor.backlog / SAMPLE_RATE,
        }

    def report(self, now: float) -> dict[str, Any]:
        """For the operator's route; `now` on the session's clock."""
        session = self.conductor.session
        return {
            "id": self.session_id,
            "object": "realtime.session.report",
            "model": self.model,
            "pipeline": self.pipeline,
            "started_at": int(self.started_at),
            "state": session.state(now),
            "busy": session.busy(now),
            "epoch": session.epoch,
            "outbox": {"events": len(self.connection.outbox), "audio_ms": self.connection.outbox.samples * 1000 // SAMPLE_RATE},
            "vad_backlog_ms": self.conductor.backlog * 1000 // SAMPLE_RATE,
        }


class LiveSessions:
    """See the module's docstring. Bounds: the registry's capacity and waiting room."""

    def __init__(self, settings: RegistrySettings, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self.registry = Registry(
            capacity=settings.capacity,
            waiting=settings.waiting,
            wait_timeout=settings.waiting_s,
            idle_timeout=settings.idle_s,
            max_lifetime=settings.lifetime_s,
            warn_before=settings.warn_s,
            evict_after=settings.evict_after_s,
        )
        self._live: dict[str, Live] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._seen: dict[str, tuple[float, bool]] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self._sweeper: asyncio.Task[None] | None = None
        metrics.watch(self._gauges)

    def __len__(self) -> int:
        return len(self._live)

    def all(self) -> list[Live]:
        """The sessions that have started."""
        return list(self._live.values())

    def get(self, session_id: str) -> Live | None:
        return self._live.get(session_id)

    # ---- coming and going -------------------------------------------------------------------------------------------

    async def admit(self, session_id: str, gone: Coroutine[Any, Any, None]) -> None:
        """Get a place for a session, waiting for one if need be. `gone` ends when the client gives up waiting.

        Raises a 429 `ApiError` with `retry-after` when there is none. Whoever is admitted calls `leave` in the end.
        """
        self._look()  # who has begun to speak since the last sweep must not be evicted for this one
        decision = self.registry.admit(session_id, self._clock())
        if isinstance(decision, decisions.Queued):
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[session_id] = place
            watcher = asyncio.create_task(gone, name=f"waiting {session_id}")
            try:
                await asyncio.wait((place, watcher), return_when=asyncio.FIRST_COMPLETED)
                if not place.done():
                    raise ConnectionError("the client left the waiting room")
                place.result()
            except BaseException:
                self._waiting.pop(session_id, None)
                self._carry_out(self.registry.remove(session_id, self._clock()))
                raise
            finally:
                watcher.cancel()
                await asyncio.gather(watcher, return_exceptions=True)
        else:
            gone.close()
            self._carry_out([decision])
            if isinstance(decision, decisions.Refused):
                raise _full(decision.retry_after_s)
        self._metrics.sessions_started.inc()

    def start(self, live: Live) -> None:
        """An admitted session has its conductor now."""
        self._live[live.session_id] = live
        self._empty.clear()

    async def emptied(self, timeout: float) -> bool:
        """Wait, at most so many seconds, until no session is left; whether that is so."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def leave(self, session_id: str, reason: str) -> None:
        """The session is over, started or not; whoever waits gets its place."""
        self._live.pop(session_id, None)
        if not self._live:
            self._empty.set()
        self._seen.pop(session_id, None)
        self._metrics.sessions_ended.labels(reason).inc()
        if self._waiting:
            self._look()
        self._carry_out(self.registry.remove(session_id, self._clock()))

    def close_waiting_room(self) -> None:
        """Turn everyone away who waits for a place."""
        for session_id in list(self._waiting):
            self._turn_away(session_id, 5)

    # ---- the sweeper ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to look after the sessions."""
        self._sweeper = asyncio.create_task(self._sweep(), name="session sweeper")
        self._sweeper.add_done_callback(self._swept)

    def _swept(self, sweeper: asyncio.Task[None]) -> None:
        """The sweeper ends only when it is told to; a fault in it must neither go unseen nor leave sessions that never end."""
        if sweeper.cancelled():
            return
        log.error("session sweeper crashed", exc_info=sweeper.exception())
        self._metrics.crashes.labels("sweeper").inc()
        self.open()

    async def close(self) -> None:
        """Stop looking after them."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            self.sweep()

    def sweep(self) -> None:
        """Tell the registry what the sessions do, and carry out what has become due."""
        self._look()
        self._carry_out(self.registry.due(self._clock()))

    def _look(self) -> None:
        """Tell the registry what the sessions do: O(sessions)."""
        now = self._clock()
        for session_id, live in list(self._live.items()):
            seen = (live.last_activity, live.busy(now))
            if self._seen.get(session_id) != seen:
                self._seen[session_id] = seen
                self.registry.touch(session_id, live.last_activity)
                self.registry.set_busy(session_id, seen[1], now)

    def _carry_out(self, todo: Iterable[decisions.Decision]) -> None:
        for decision in todo:
            match decision:
                case decisions.Admitted(session_id=session_id):
                    self._let_in(session_id)
                case decisions.AdmittedEvicting(session_id=session_id, victim_id=victim_id):
                    self._metrics.evictions.labels("capacity").inc()
                    self._end(victim_id, "session_evicted", "The session was idle and its place was needed.", EVICTED)
                    self._let_in(session_id)
                case decisions.Expired(session_id=session_id, reason=reason):
                    self._metrics.evictions.labels(reason).inc()
                    limit = self._settings.idle_s if reason == "idle" else self._settings.lifetime_s
                    said = "was idle for" if reason == "idle" else "reached its maximum duration of"
                    self._end(session_id, "session_expired", f"Your session {said} {limit:g} seconds.", 1000)
                case decisions.Warning(session_id=session_id, reason=reason, seconds_left=left):
                    unless = " unless something happens" if reason == "idle" else ""
                    self._tell(session_id, Warn("expiring", f"Your session ends in {left:.0f} seconds{unless}.", round(left, 1)))
                case decisions.WaitExpired(session_id=session_id, retry_after_s=retry_after):
                    self._turn_away(session_id, retry_after)
                case decisions.Queued() | decisions.Refused():
                    pass  # `admit` sees to these

    def _let_in(self, session_id: str) -> None:
        place = self._waiting.pop(session_id, None)
        if place is not None and not place.done():
            place.set_result(None)

    def _turn_away(self, session_id: str, retry_after: int) -> None:
        place = self._waiting.pop(session_id, None)
        if place is not None and not place.done():
            place.set_exception(_full(retry_after))

    def _end(self, session_id: str, code: str, message: str, close_code: int) -> None:
        live = self._live.get(session_id)
        if live is not None:
            log.info("session ended by the registry", session=session_id, code=code)
            live.feed(EndSession(code, message, close_code))

    def _tell(self, session_id: str, warning: Warn) -> None:
        live = self._live.get(session_id)
        if live is not None:
            live.feed(warning)

    # ---- metrics ----------------------------------------------------------------------------------------------------

    def _gauges(self) -> Iterable[Metric]:
        now = self._clock()
        states = Counter(live.state(now) for live in self._live.values())
        states.setdefault("idle", 0)
        counts = self.registry.counts()
        queues = dict.fromkeys(QUEUES, 0.0)
        for live in self._live.values():
            for name, depth in live.queues().items():
                queues[name] += depth
        yield gauge("antiphon_sessions", "Sessions by state", [({"state": state}, count) for state, count in sorted(states.items())])
        yield gauge("antiphon_sessions_waiting", "Clients in the waiting room", [({}, counts.waiting)])
        yield gauge("antiphon_session_capacity", "Sessions that may run at once", [({}, self.registry.capacity)])
        yield gauge(
            "antiphon_queue_depth", "What waits in the sessions' queues", [({"queue": name}, depth) for name, depth in queues.items()]
        )
        yield gauge("antiphon_tasks", "Tasks of the event loop", [({}, _tasks())])


def _tasks() -> int:
    """How many tasks the running event loop has; 0 outside of one."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


def _full(retry_after: int) -> ApiError:
    return ApiError(
        429,
        "rate_limit_exceeded",
        f"The server is full. Try again in {retry_after} seconds.",
        headers={"retry-after": str(retry_after)},
    )
