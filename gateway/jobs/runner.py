"""Runs claimed jobs in this process, whichever dispatcher brought them: handler, lease, cancel, and what is written at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from ...engines.errors import EngineBusyError, EngineError, InvalidRequestError
from ...engines.interface import WorkClass
from ...engines.pool import EnginePool, Lease
from ..logs import logger
from ..tasks import TaskOwner
from .attempt import Attempt, DispatchOptions, Interruption
from .errors import AttemptLostError, JobFailedError, StoreUnavailableError
from .interface import ArtifactStore, Handler, JobStore
from .job import Artifact, Job, JobFault, JobKind

log = logger("gateway.jobs")

CLASS_OF: dict[JobKind, WorkClass] = {
    JobKind.IMAGE: WorkClass.INTERACTIVE,  # somebody waits for a picture
    JobKind.VIDEO: WorkClass.BATCH,
    JobKind.BATCH: WorkClass.BATCH,
}
"""The class of work that a slot is waited for in. Among jobs of one class the priority decides, then the age."""

STORE_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Between tries to write an end while the database cannot be reached; the last is repeated."""

OUR_FAULT = JobFault(code="internal_error", message="The server made a mistake while it worked on this job.")

Outcome = tuple[tuple[Artifact, ...], dict[str, Any]]


class Runner:
    """See the module's docstring. A job that it has taken always comes to one of three ends here: it ends, it goes back into the queue, or
    another attempt has it."""

    def __init__(
        self,
        store: JobStore,
        pool: EnginePool,
        handlers: Mapping[JobKind, Handler],
        artifacts: ArtifactStore,
        options: DispatchOptions,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.options = options
        self.clock = clock
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._store = store
        self._pool = pool
        self._handlers = handlers
        self._artifacts = artifacts
        self._tasks = TaskOwner()
        self._works: set[asyncio.Task[None]] = set()
        self._running: dict[str, Attempt] = {}
        self._stopping = False

    def __len__(self) -> int:
        return len(self._running)

    @property
    def stopping(self) -> bool:
        return self._stopping

    # ---- taking work ------------------------------------------------------------------------------------------------

    async def slot(self, lane: str, work_class: WorkClass) -> Lease:
        """A slot on the engine, waited for in its class; batch work that has waited long waits among the interactive. Raises
        `EngineError`."""
        if work_class is WorkClass.BATCH:
            try:
                return await self._pool.acquire(lane, work_class, deadline=time.monotonic() + self.options.age)
            except EngineBusyError:
                work_class = WorkClass.INTERACTIVE
        return await self._pool.acquire(lane, work_class)

    async def take(
        self, lane: str, lease: Lease, *, kinds: Collection[JobKind] | None = None, job_id: str | None = None
    ) -> asyncio.Task[None] | None:
        """Claim a job for a slot and start on it. The slot is given back when the job has ended, or at once when there is none. Whoever is
        cancelled in here loses nothing: a claim that went through is worked on all the same. Raises `StoreUnavailableError`."""
        if self._stopping:
            lease.release()
            return None
        claimed: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            async with lease:
                try:
                    job = await self._store.claim([lane], self.owner, self.clock(), self.options.lease, kinds=kinds, job_id=job_id)
                except StoreUnavailableError as error:
                    if not claimed.done():
                        claimed.set_exception(error)
                    return
                except asyncio.CancelledError:
                    claimed.cancel()
                    raise
                if not claimed.done():
                    claimed.set_result(job.id if job is not None else None)
                if job is not None:
                    await self._run(job, lease)

        def crashed(error: BaseException) -> None:
            log.error("the work on a job crashed", lane=lane, exc_info=error)
            if not claimed.done():
                claimed.set_exception(error)

        task = self._tasks.start(work(), name=f"job on {lane}", on_crash=crashed)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return task if await claimed is not None else None

    def cancel(self, job_id: str) -> bool:
        """Stop a job that runs here. False: it does not."""
        attempt = self._running.get(job_id)
        if attempt is not None:
            attempt.interrupt(Interruption.CANCELLED)
        return attempt is not None

    async def look_for_cancels(self) -> None:
        """Stop those of our jobs that another process was asked to cancel."""
        if self._running:
            for job_id in await self._store.cancel_requests(self.owner):
                self.cancel(job_id)

    async def close(self) -> None:
        """Stop everything and give it back, in bounded time."""
        self._stopping = True
        for attempt in self._running.values():
            attempt.interrupt(Interruption.STOPPING)
        if self._works:
            await asyncio.wait(self._works, timeout=self.options.grace * 2)
        if stuck := await self._tasks.close(self.options.grace):
            log.error("jobs would not stop", count=stuck)

    # ---- one attempt ------------------------------------------------------------------------------------------------

    async def _run(self, job: Job, lease: Lease) -> None:
        attempt = Attempt(job, lease, self._store, self._artifacts, self.options, self.clock)
        self._running[job.id] = attempt
        if self._stopping:
            attempt.interrupt(Interruption.STOPPING)
        log.info("job started", job=job.id, kind=job.kind.value, lane=job.lane, attempt=job.attempt)
        keeper = asyncio.create_task(attempt.keep_alive(), name=f"keep {job.id} alive")
        try:
            outcome = await self._handle(attempt)
            attempt.over()
            await keeper
            await self._settle(attempt, outcome)
        finally:
            del self._running[job.id]
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _handle(self, attempt: Attempt) -> Outcome | BaseException:
        """What the handler returned or raised; it is stopped when the attempt is interrupted."""
        job = attempt.job
        handler = self._handlers.get(job.kind)
        if handler is None:
            return JobFailedError("unsupported_kind", f"This server does no {job.kind.value} jobs.")
        work = asyncio.ensure_future(handler.run(attempt))
        interrupted = asyncio.create_task(attempt.interrupted.wait(), name=f"interruption of {job.id}")
        try:
            await asyncio.wait((work, interrupted), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                if not (await asyncio.wait((work,), timeout=self.options.grace))[0]:
                    log.error("a job's handler does not stop", job=job.id, seconds=self.options.grace)
        finally:
            work.cancel()
            interrupted.cancel()
            await asyncio.gather(interrupted, return_exceptions=True)
        if not work.done() or work.cancelled():
            return asyncio.CancelledError()
        return work.exception() or work.result()

    async def _settle(self, attempt: Attempt, outcome: Outcome | BaseException) -> None:
        """Write how the attempt ended."""
        job = attempt.job
        write = self._ending(attempt, outcome)
        if write is None:
            return
        try:
            await self._insist(job, write)
        except AttemptLostError as error:
            log.warning("an attempt was lost", job=job.id, attempt=job.attempt, error=str(error))
        except Exception as error:  # what the handler gave does not fit into a row
            log.error("the end of a job cannot be written", job=job.id, exc_info=error)
            with contextlib.suppress(AttemptLostError):
                await self._insist(job, lambda: self._store.fail(job, self.clock(), OUR_FAULT))

    async def _insist(self, job: Job, write: Callable[[], Awaitable[Any]]) -> None:
        """Write as often as it takes, if the database cannot be reached."""
        tries = 0
        while True:
            try:
                await write()
                return
            except StoreUnavailableError as error:
                pause = STORE_PAUSES[min(tries, len(STORE_PAUSES) - 1)]
                tries += 1
                log.warning("the end of an attempt could not be written", job=job.id, tries=tries, error=str(error))
                await asyncio.sleep(pause)

    def _ending(self, attempt: Attempt, outcome: Outcome | BaseException) -> Callable[[], Awaitable[Any]] | None:
        """The write that ends the attempt; None: it has nothing to say any more."""
        job, store, clock = attempt.job, self._store, self.clock
        if isinstance(outcome, tuple):
            artifacts, result = outcome
            log.info("job completed", job=job.id, attempt=job.attempt, seconds=round(clock() - (job.started_at or clock()), 2))
            return lambda: store.finish(job, clock(), artifacts=artifacts, result=result)
        match attempt.interruption:
            case Interruption.LOST:
                return None
            case Interruption.CANCELLED:
                log.info("job cancelled", job=job.id, attempt=job.attempt)
                return lambda: store.cancelled(job, clock())
            case Interruption.STOPPING:
                log.info("job given back", job=job.id, attempt=job.attempt)
                return lambda: store.requeue(job, clock())
        fault, may_pass = verdict(outcome)
        if may_pass:
            pause = self.options.pause(job.attempt)
            log.warning("an attempt failed", job=job.id, attempt=job.attempt, of=job.max_attempts, error=fault.message)
            return lambda: store.retry(job, clock(), fault, pause)
        if fault is OUR_FAULT:
            log.error("a job's handler is at fault", job=job.id, kind=job.kind.value, exc_info=outcome)
        log.info("job failed", job=job.id, code=fault.code, error=fault.message)
        return lambda: store.fail(job, clock(), fault)


def verdict(error: BaseException) -> tuple[JobFault, bool]:
    """What a handler's error means for the job, and whether another attempt may go better."""
    match error:
        case InvalidRequestError():
            return JobFault(code=error.code, message=str(error)), False
        case JobFailedError():
            return JobFault(code=error.code, message=str(error)), error.code == "storage_failed"
        case EngineError() | StoreUnavailableError():
            return JobFault(code=error.code, message=str(error)), True
        case asyncio.CancelledError():  # not by us: something that it waited for was closed
            return JobFault(code="interrupted", message="The work on this job was interrupted."), True
        case _:
            return OUR_FAULT, False
