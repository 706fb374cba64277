"""One running copy of an engine, as the pool keeps it: its seat on the board, its record, and whether it is well."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

from .errors import EngineError, EngineTimeoutError
from .interface import Engine, EngineHealth, WorkClass
from .messages import EngineChunk
from .scheduler import Seat

log = logging.getLogger(__name__)


class ReplicaState(enum.StrEnum):
    """`trial`: it has just come back and gets one request at a time until one of them goes well."""

    UP = "up"
    TRIAL = "trial"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSnapshot:
    """A replica at one moment. `outcomes` counts ended streams: completed, aborted, refused, failed, stuck."""

    replica_id: str
    state: ReplicaState
    slots: int
    running: dict[WorkClass, int]
    outcomes: dict[str, int]


class Replica:
    """See the module's docstring."""

    def __init__(self, replica_id: str, engine: Engine, *, reserved: int, background: bool = False, on_demand: bool = False) -> None:
        self.replica_id = replica_id
        self.engine = engine
        self.background = background or on_demand
        """The pool does not wait until it is open."""
        self.on_demand = on_demand
        """It is opened when it is first asked for."""
        self.opened = False
        """It has been opened once."""
        self.opening = self.background
        """Its first opening, in the background, is not over."""
        self.seat = Seat(replica_id=replica_id, slots=engine.capabilities.slots, reserved=reserved)
        self.state = ReplicaState.UP
        self.downs = 0
        """How often in a row it was taken out of service."""
        self.ill = False
        """The engine itself said so when it was last asked."""
        self._failures = 0
        self._outcomes: Counter[str] = Counter()

    async def open(self, limit: float) -> None:
        """Open the engine within `limit` seconds."""
        try:
            async with asyncio.timeout(limit):
                await self.engine.open()
        except TimeoutError as error:
            raise EngineTimeoutError(f"engine {self.replica_id} did not open within {limit:.0f} s") from error
        self.opened = True
        self.opening = False

    async def close(self, limit: float) -> None:
        """Close the engine; one that does not close within `limit` seconds is left behind with an error in the log."""
        try:
            async with asyncio.timeout(limit):
                await self.engine.close()
        except TimeoutError:
            log.error("engine %s did not close within %.1f s", self.replica_id, limit)
        except Exception:
            log.exception("engine %s failed while closing", self.replica_id)

    async def health(self, limit: float) -> EngineHealth:
        """The engine's own word; not ok when it does not answer within `limit` seconds or is out of service."""
        if self.state is ReplicaState.DOWN:
            if self.opening and self.on_demand:  # nothing is wrong, and who asks for it now will be served
                return EngineHealth(ok=True, detail="it is started when it is asked for")
            why = "out of service after repeated failures" if self.opened else "it is being started"
            return EngineHealth(ok=False, running=self.seat.busy, detail=why)
        return await self._ask(limit)

    async def _ask(self, limit: float) -> EngineHealth:
        try:
            async with asyncio.timeout(limit):
                health = await self.engine.health()
                self.ill = not health.ok
                return health
        except TimeoutError:
            return EngineHealth(ok=False, detail=f"no answer within {limit:.1f} s")
        except Exception as error:
            log.exception("engine %s cannot tell its health", self.replica_id)
            return EngineHealth(ok=False, detail=str(error))

    def note(self, outcome: str, limit: int) -> bool:
        """Record how a stream ended. True: it must leave service now (`limit` failures in a row, or one on trial)."""
        self._outcomes[outcome] += 1
        if outcome in ("failed", "stuck"):
            self._failures += 1
            return self.state is ReplicaState.TRIAL or (self.state is ReplicaState.UP and self._failures >= limit)
        if outcome == "completed":
            self._failures = 0
            if self.state is ReplicaState.TRIAL:
                self.state = ReplicaState.UP
                self.downs = 0
                self.seat.limit = self.seat.slots
        return False

    def take_down(self) -> None:
        self.state = ReplicaState.DOWN
        self.downs += 1
        self.seat.limit = 0

    def put_up(self) -> None:
        """It has opened for the first time; only now an engine in its own process knows how much it can do at once."""
        self.state = ReplicaState.UP
        self.downs = 0
        self.seat.slots = self.seat.limit = self.engine.capabilities.slots
        self.seat.reserved = min(self.seat.reserved, self.seat.slots - 1)

    def put_on_trial(self) -> None:
        self.state = ReplicaState.TRIAL
        self._failures = 0
        self.seat.limit = 1

    async def revive(self, health_limit: float, open_limit: float, close_limit: float) -> bool:
        """Make the engine usable again, opening it anew when it says that it is not well. False: it could not be opened."""
        if (await self._ask(health_limit)).ok:
            return True
        await self.close(close_limit)
        try:
            await self.open(open_limit)
        except Exception:
            log.exception("engine %s could not be opened again", self.replica_id)
            return False
        return True

    def snapshot(self) -> ReplicaSnapshot:
        return ReplicaSnapshot(
            replica_id=self.replica_id,
            state=self.state,
            slots=self.seat.slots,
            running={work_class: self.seat.running[work_class] for work_class in WorkClass},
            outcomes=dict(self._outcomes),
        )


async def close_stream(chunks: AsyncIterator[EngineChunk], limit: float) -> bool:
    """Abort an engine's stream. False: it did not stop within `limit` seconds."""
    aclose = getattr(chunks, "aclose", None)  # an async generator has it, a bare iterator need not
    if aclose is None:
        return True
    try:
        async with asyncio.timeout(limit):
            await aclose()
    except TimeoutError:
        return False
    except EngineError as error:
        log.warning("an engine failed while its stream was being closed: %s", error)
    return True
