"""The pool: every engine of the house, and who may use which of its slots now.

Replicas are kept by the engine's name (the name in the configuration, or an alias of it). A lease is a slot on one replica; it is
always given back: on the normal way, on an error, on a cancellation, at any await. Action work waits for an
engine that is being opened in the background, or on demand, for the first time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType

from . import heap
from .errors import EngineBusyError, EngineError, EngineTimeoutError, EngineUnavailableError, InvalidRequestError
from .gate import GateWriter
from .interface import Engine, EngineHealth, EngineRequest, Role, WorkClass
from .messages import EngineChunk, ListenBody
from .replica import Replica, ReplicaSnapshot, close_stream
from .scheduler import Board, Ticket

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """Bounds of the pool; times in seconds.

    `max_waiting`: the line of each class of work at each engine. `wait`: how long a lease is waited for when the caller sets no
    deadline. `stall`: how long a running stream may give nothing, unless its request says otherwise (a live feed is exempt). `abort`: how
    long an engine may take to stop a closed stream before the pool stops waiting for it and counts a failure. `failures`: how many
    failures in a row take a replica out of service (one is enough when the engine itself says that it is unavailable); it is tried again
    after `backoff`, doubled each time up to `max_backoff`.
    """

    max_waiting: int = 64
    wait: dict[WorkClass, float] = field(
        default_factory=lambda: {WorkClass.REALTIME: 5.0, WorkClass.ACTION: 1.0, WorkClass.INTERACTIVE: 30.0, WorkClass.BATCH: 600.0}
    )
    stall: float = 30.0
    abort: float = 2.0
    health: float = 2.0
    open: float = 300.0
    failures: int = 3
    backoff: float = 0.5
    max_backoff: float = 30.0
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """One engine name: its replicas, and how many requests wait in each class of work."""

    name: str
    role: Role
    replicas: tuple[ReplicaSnapshot, ...]
    waiting: dict[WorkClass, int]
    refused: int


class Lease:
    """A slot on a replica. Leave it with `async with`, or call `release` (harmless when called again)."""

    def __init__(self, pool: EnginePool, group: _Group, ticket: Ticket, replica: Replica) -> None:
        self._pool = pool
        self._group = group
        self._ticket = ticket
        self.replica = replica

    @property
    def engine(self) -> Engine:
        return self.replica.engine

    def release(self) -> None:
        """Give the slot back; the next in line gets it at once."""
        if self._ticket.seat is not None:
            self._group.board.release(self._ticket)
            self._group.dispatch()

    def stream(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """Run a request on this slot's replica, as `EnginePool.stream` does but without acquiring or releasing: several requests that
        belong together may share the slot."""
        return self._pool.run(self.replica, self._group.name, request)

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


class _Group:
    """The replicas of one engine name, their board, and the futures of those who wait."""

    def __init__(self, name: str, role: Role, options: PoolOptions) -> None:
        self.name = name
        self.role = role
        self.replicas: dict[str, Replica] = {}
        self.board = Board(max_waiting=options.max_waiting, generator=random.Random(options.seed))
        self.futures: dict[Ticket, asyncio.Future[Replica]] = {}
        self.refused = 0

    def dispatch(self) -> None:
        """Seat whom the slots allow and wake them."""
        for ticket in self.board.grant():
            future = self.futures.pop(ticket)
            if ticket.seat is not None and not future.done():  # done: cancelled this very moment; `acquire` gives the slot back
                future.set_result(self.replicas[ticket.seat.replica_id])

    def fail_waiting(self, error: EngineError) -> None:
        """Tell everyone in the line."""
        for ticket in self.board.drain():
            future = self.futures.pop(ticket)
            if not future.done():
                future.set_exception(error)

    def all_down(self) -> bool:
        return all(replica.seat.limit == 0 for replica in self.replicas.values())

    def opening(self) -> bool:
        """Is it being opened in the background, for the first time?"""
        return all(replica.opening for replica in self.replicas.values())


class EnginePool:
    """See the module's docstring. Used from one event loop; `open` it once, `close` it once."""

    def __init__(self, options: PoolOptions | None = None, gate: GateWriter | None = None) -> None:
        """`gate` is told while realtime and action work is being computed; whoever made it closes it."""
        self.options = options or PoolOptions()
        self._gate = gate
        self._groups: dict[str, _Group] = {}
        self._aliases: dict[str, str] = {}
        self._mending: dict[Replica, asyncio.Task[None]] = {}
        self._open = False

    # ---- what is in it ----------------------------------------------------------------------------------------------

    def add(self, name: str, engine: Engine, *, reserved: int | None = None, background: bool = False, on_demand: bool = False) -> str:
        """Add a replica under an engine's name and return its id. `reserved` slots are kept for realtime work (by default one where
        there are several). `open` does not wait for a replica in the `background`: it is out of service until it has opened, and tried
        again when it cannot. One `on_demand` is opened like that when it is first asked for. Call before `open`. Raises `EngineError` when
        the name already means another role."""
        capabilities = engine.capabilities
        group = self._groups.setdefault(name, _Group(name, capabilities.role, self.options))
        if group.role is not capabilities.role:
            raise EngineError(f"engine {name!r} is already a {group.role} engine; a {capabilities.role} engine needs another name")
        if reserved is None:
            reserved = 1 if capabilities.slots > 1 else 0
        replica = Replica(f"{name}-{len(group.replicas)}", engine, reserved=reserved, background=background, on_demand=on_demand)
        group.replicas[replica.replica_id] = replica
        group.board.seats.append(replica.seat)
        return replica.replica_id

    def alias(self, alias: str, name: str) -> None:
        """Let `alias` mean the engine `name`."""
        self._aliases[alias] = self._group(name).name

    def names(self, role: Role | None = None) -> list[str]:
        """The engines' names, of one role or all."""
        return [name for name, group in self._groups.items() if role is None or group.role is role]

    def engine(self, name: str) -> Engine:
        """An engine of that name (its first replica), to look at its capabilities."""
        return next(iter(self._group(name).replicas.values())).engine

    def __contains__(self, name: object) -> bool:
        return name in self._groups or name in self._aliases

    def _group(self, name: str) -> _Group:
        group = self._groups.get(self._aliases.get(name, name))
        if group is None:
            known = ", ".join(sorted(self._groups)) or "none"
            raise EngineUnavailableError(f"there is no engine named {name!r}; there are: {known}")
        return group

    def _replicas(self) -> list[Replica]:
        return [replica for group in self._groups.values() for replica in group.replicas.values()]

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open every engine, side by side. When one fails the others are closed and its error is raised."""
        replicas = [replica for replica in self._replicas() if not replica.background]
        results = await asyncio.gather(*(replica.open(self.options.open) for replica in replicas), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            await asyncio.gather(*(replica.close(self.options.abort) for replica in replicas), return_exceptions=True)
            raise failures[0]
        heap.settle()
        self._open = True
        for replica in self._replicas():
            if replica.background:
                replica.take_down()
                if not replica.on_demand:
                    self._start_opening(replica)

    async def close(self) -> None:
        """Refuse new work, tell who waits, close every engine in bounded time. Harmless when called again."""
        self._open = False
        for group in self._groups.values():
            group.fail_waiting(EngineUnavailableError("the engine pool is closing"))
        mending = list(self._mending.values())
        for task in mending:
            task.cancel()
        await asyncio.gather(*mending, return_exceptions=True)
        await asyncio.gather(*(replica.close(self.options.abort * 5) for replica in self._replicas()))

    # ---- leases -----------------------------------------------------------------------------------------------------

    async def acquire(
        self,
        model: str,
        work_class: WorkClass = WorkClass.REALTIME,
        affinity: str | None = None,
        deadline: float | None = None,
    ) -> Lease:
        """A slot on a replica of `model`: the replica that `affinity` was last on when it has one free, else the less loaded of two.

        `deadline` is on the `time.monotonic` clock. Raises `EngineBusyError` when the line is full or no slot came free in time,
        `EngineUnavailableError` when the engine is unknown, closing or down.
        """
        group = self._group(model)
        if not self._open:
            raise EngineUnavailableError("the engine pool is not open")
        for replica in group.replicas.values():
            if replica.opening and replica not in self._mending:
                self._start_opening(replica)
        opening = group.opening() and work_class is WorkClass.ACTION  # stock robots do not come back after an error: they wait
        if group.all_down() and not opening:
            raise EngineUnavailableError(f"engine {group.name!r} is out of service; it is being started")
        if deadline is None:
            deadline = time.monotonic() + (self.options.open if opening else self.options.wait[work_class])
        ticket = Ticket(work_class=work_class, deadline=deadline, affinity=affinity)
        if not group.board.submit(ticket):
            group.refused += 1
            raise EngineBusyError(
                f"engine {group.name!r} has {self.options.max_waiting} {work_class.name.lower()} requests waiting already"
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Replica] = loop.create_future()
        group.futures[ticket] = future
        group.dispatch()
        if future.done():
            return Lease(self, group, ticket, future.result())
        timer = loop.call_later(max(0.0, deadline - time.monotonic()), self._expire, group, ticket)
        try:
            return Lease(self, group, ticket, await future)
        except asyncio.CancelledError:
            # The slot may have been granted in the same turn of the loop in which the caller was cancelled.
            group.futures.pop(ticket, None)
            group.board.withdraw(ticket)
            if ticket.seat is not None:
                group.board.release(ticket)
                group.dispatch()
            raise
        finally:
            timer.cancel()

    def _expire(self, group: _Group, ticket: Ticket) -> None:
        future = group.futures.pop(ticket, None)
        if future is None:
            return
        group.board.withdraw(ticket)  # also when its caller was cancelled this very moment: no slot must go to it any more
        if not future.done():
            group.refused += 1
            future.set_exception(EngineBusyError(f"no slot of engine {group.name!r} came free in time"))

    async def stream(self, model: str, request: EngineRequest, *, affinity: str | None = None) -> AsyncGenerator[EngineChunk, None]:
        """Run a request on a replica of `model`: acquire, stream, and always release.

        Closing the generator (or cancelling its consumer) aborts the engine's stream and frees the slot, within
        `options.abort` seconds. `request.deadline` bounds the wait for a slot. Raises `EngineError`.
        """
        lease = await self.acquire(model, request.work_class, affinity or request.session_id or None, request.deadline)
        async with lease, aclosing(self.run(lease.replica, model, request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def run(self, replica: Replica, model: str, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """Run a request on a replica whose slot the caller holds, watch over it and note how it ended."""
        stall = None if isinstance(request.body, ListenBody) else request.patience or self.options.stall
        chunks = aiter(replica.engine.stream(request))
        outcome, failures = "aborted", self.options.failures
        try:
            while True:
                try:
                    async with asyncio.timeout(stall):
                        with self._gated(request):
                            chunk = await anext(chunks)
                except StopAsyncIteration:
                    outcome = "completed"
                    return
                except TimeoutError as error:
                    raise EngineTimeoutError(f"engine {model!r} gave nothing for {stall:.0f} s") from error
                yield chunk
        except (InvalidRequestError, EngineBusyError):
            outcome = "refused"
            raise
        except (GeneratorExit, asyncio.CancelledError):
            raise
        except EngineUnavailableError:
            outcome, failures = "failed", 1  # it says itself that it is gone: no need to see that again
            raise
        except Exception:
            outcome = "failed"
            raise
        finally:
            try:
                if not await close_stream(chunks, self.options.abort):
                    outcome = "stuck"
                    log.error("engine %r did not stop request %s within %.1f s", model, request.request_id, self.options.abort)
            finally:
                self._note(replica, outcome, failures)

    def _gated(self, request: EngineRequest) -> contextlib.AbstractContextManager[None]:
        """Holds the realtime gate while somebody waits for this request's next chunk. A live feed is no work in itself."""
        if self._gate is None or request.work_class > WorkClass.ACTION or isinstance(request.body, ListenBody):
            return contextlib.nullcontext()
        return self._gate.working()

    def _note(self, replica: Replica, outcome: str, failures: int) -> None:
        """Count how a stream ended; take the replica out of service after `failures` failures in a row."""
        if replica.note(outcome, failures):
            self._retire(replica)
        elif outcome == "completed":
            self._group_of(replica).dispatch()  # a trial that went well gives the other slots back

    def _retire(self, replica: Replica) -> None:
        """Take a replica out of service and have it mended, unless that is so already."""
        if not self._open or replica in self._mending:
            return
        replica.take_down()
        group = self._group_of(replica)
        if group.all_down():
            group.fail_waiting(EngineUnavailableError(f"engine {group.name!r} is out of service after repeated failures"))
        self._mending[replica] = asyncio.create_task(self._mend(replica), name=f"mend {replica.replica_id}")

    def _group_of(self, replica: Replica) -> _Group:
        return next(group for group in self._groups.values() if replica.replica_id in group.replicas)

    def _start_opening(self, replica: Replica) -> None:
        self._mending[replica] = asyncio.create_task(self._bring_up(replica), name=f"open {replica.replica_id}")

    async def _bring_up(self, replica: Replica) -> None:
        """Open a replica of the background."""
        try:
            await replica.open(self.options.open)
        except Exception:
            log.exception("engine %s could not be opened", replica.replica_id)
            replica.opening = False
            self._group_of(replica).fail_waiting(EngineUnavailableError(f"engine {replica.replica_id} could not be opened"))
            await self._mend(replica)
            return
        except asyncio.CancelledError:
            self._mending.pop(replica, None)
            raise
        self._mending.pop(replica, None)
        heap.settle()
        replica.put_up()
        self._group_of(replica).dispatch()
        log.info("engine %s is ready", replica.replica_id)

    async def _mend(self, replica: Replica) -> None:
        """Bring a replica back: wait, reopen it when it says that it is ill, then let one request try it."""
        try:
            while True:
                pause = min(self.options.max_backoff, self.options.backoff * 2 ** min(replica.downs - 1, 16))
                log.warning("engine replica %s is out of service for %.1f s after repeated failures", replica.replica_id, pause)
                await asyncio.sleep(pause)
                if await replica.revive(self.options.health, self.options.open, self.options.abort * 5):
                    break
                replica.downs += 1
        finally:
            self._mending.pop(replica, None)
        replica.put_on_trial()
        self._group_of(replica).dispatch()

    # ---- what the operator sees -------------------------------------------------------------------------------------

    async def health(self) -> dict[str, EngineHealth]:
        """The health of each replica by its id, asked side by side, each in bounded time. One that says itself that it is ill is mended:
        who watches this route sends nobody to an ill server, so no request would ever find out."""
        replicas = self._replicas()
        answers = await asyncio.gather(*(replica.health(self.options.health) for replica in replicas))
        for replica in replicas:
            if replica.ill:
                self._retire(replica)
        return {replica.replica_id: answer for replica, answer in zip(replicas, answers, strict=True)}

    def snapshot(self) -> tuple[EngineSnapshot, ...]:
        """What runs, waits and has ended, for the metrics."""
        return tuple(
            EngineSnapshot(
                name=group.name,
                role=group.role,
                replicas=tuple(replica.snapshot() for replica in group.replicas.values()),
                waiting={work_class: group.board.waiting(work_class) for work_class in WorkClass},
                refused=group.refused,
            )
            for group in self._groups.values()
        )

    def running(self) -> Counter[str]:
        """Slots in use by engine name (an empty counter: nothing runs anywhere)."""
        return +Counter({group.name: sum(replica.seat.busy for replica in group.replicas.values()) for group in self._groups.values()})
