"""What the jobs' tests share: a backend (database and dispatcher), workers in this process and in others, jobs that take steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from antiphon.engines.errors import EngineError, InvalidRequestError
from antiphon.engines.interface import Role
from antiphon.engines.pool import EnginePool
from antiphon.gateway.jobs.artifacts import FileStore
from antiphon.gateway.jobs.attempt import DispatchOptions
from antiphon.gateway.jobs.database import server_url
from antiphon.gateway.jobs.errors import AttemptLostError, JobCancelledError, JobFailedError
from antiphon.gateway.jobs.interface import Dispatcher, JobStore, Work
from antiphon.gateway.jobs.job import Artifact, Job, JobKind, NewJob
from antiphon.gateway.jobs.lease import LeaseDispatcher
from antiphon.gateway.jobs.store import SqlJobStore
from antiphon.tests.engines.fakes import FakeEngine

LANE = "painter"
PATIENCE = 20.0
OPTIONS = DispatchOptions(lease=1.0, poll=0.05, report_every=0.05, grace=2.0, backoff=0.05)

ERRORS: dict[str, Callable[[], Exception]] = {
    "engine": lambda: EngineError("the engine broke"),
    "invalid": lambda: InvalidRequestError("there is no such picture"),
    "failed": lambda: JobFailedError("too_hard", "nobody can draw that"),
    "storage": lambda: JobFailedError("storage_failed", "the bucket is away"),
    "bug": lambda: ZeroDivisionError("a slip"),
}


def order(kind: JobKind = JobKind.IMAGE, *, tenant: str = "ada", priority: int = 0, **request: Any) -> NewJob:
    """A new job. `steps` and `pause` (seconds) say how long it takes; `errors` what each attempt raises, "" for none."""
    options = {key: request.pop(key) for key in ("idempotency_key", "max_attempts", "expires_after") if key in request}
    return NewJob(tenant=tenant, kind=kind, lane=LANE, model="tiny", request=request, priority=priority, **options)


class Steps:
    """A handler that takes steps, and notes what it did."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self.done: list[tuple[str, int]] = []
        self.stopped: list[tuple[str, int]] = []

    async def run(self, work: Work) -> tuple[tuple[Artifact, ...], dict[str, Any]]:
        job = work.job
        me = (job.id, job.attempt)
        self.started.append(me)
        wishes = job.request
        try:
            steps = wishes.get("steps", 2)
            for step in range(steps):
                await asyncio.sleep(wishes.get("pause", 0.005))
                await work.report(100.0 * (step + 1) / steps, b"preview" if wishes.get("previews") else None)
            errors = wishes.get("errors", ())
            if job.attempt <= len(errors) and errors[job.attempt - 1]:
                raise ERRORS[errors[job.attempt - 1]]()
        except (asyncio.CancelledError, JobCancelledError, AttemptLostError):
            self.stopped.append(me)
            raise
        if wishes.get("nothing"):
            return (), {}
        artifact = await work.keep("image-0.png", f"{job.id} by attempt {job.attempt}".encode(), "image/png")
        self.done.append(me)
        return (artifact,), {"steps": steps}


@dataclass
class Worker:
    """A dispatcher and all that it needs, as one process has it."""

    store: SqlJobStore
    dispatcher: Dispatcher
    files: FileStore
    handler: Steps
    pool: EnginePool

    async def submit(self, new: NewJob, now: float | None = None) -> Job:
        """As the service does it."""
        job, fresh = await self.store.submit(new, time.time() if now is None else now, max_active=1000)
        if fresh:
            await self.dispatcher.enqueued(job)
        return job

    async def cancel(self, job: Job) -> Job | None:
        """As the service does it."""
        found = await self.store.request_cancel(job.id, job.tenant, time.time())
        if found is not None and not found.status.ended:
            await self.dispatcher.cancel(found)
        return found


@dataclass
class Backend:
    """Which database, which dispatcher; makes workers."""

    dispatcher: str
    database: str
    files: Path

    @property
    def postgres(self) -> bool:
        return self.database.startswith("postgresql")

    def new_store(self) -> SqlJobStore:
        """A store, not yet open."""
        url = server_url(self.database)
        if self.dispatcher == "lease":
            return SqlJobStore(url)
        from antiphon.gateway.jobs.postgres import make_app
        from antiphon.gateway.jobs.tokens import Tokens

        return SqlJobStore(url, Tokens(make_app(url)))

    @asynccontextmanager
    async def store(self) -> AsyncIterator[SqlJobStore]:
        """An open store."""
        store = self.new_store()
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def new_dispatcher(self, store: Any, pool: EnginePool, handler: Steps, files: FileStore, options: DispatchOptions) -> Dispatcher:
        handlers = dict.fromkeys(JobKind, handler)
        if self.dispatcher == "lease":
            return LeaseDispatcher(store, pool, handlers, files, [LANE], options)
        from antiphon.gateway.jobs.postgres import ProcrastinateDispatcher

        return ProcrastinateDispatcher(store, pool, handlers, files, [LANE], options)

    @asynccontextmanager
    async def worker(
        self, *, slots: int = 1, options: DispatchOptions = OPTIONS, opened: bool = True, handler: Steps | None = None
    ) -> AsyncIterator[Worker]:
        """A worker in this process; `opened` False: its dispatcher has not begun."""
        async with self.store() as store:
            files = FileStore(self.files)
            await files.open()
            pool = EnginePool()
            pool.add(LANE, FakeEngine(Role.DIFFUSION, [], slots=slots), reserved=0)
            await pool.open()
            handler = handler or Steps()
            dispatcher = self.new_dispatcher(store, pool, handler, files, options)
            if opened:
                await dispatcher.open()
            try:
                yield Worker(store, dispatcher, files, handler, pool)
            finally:
                await dispatcher.close()
                await pool.close()


async def until(store: JobStore, job: Job, true: Callable[[Job], bool], within: float = PATIENCE) -> Job:
    """Wait until something holds for the row of a job."""
    async with asyncio.timeout(within):
        while True:
            row = await store.get(job.id)
            assert row is not None
            if true(row):
                return row
            await asyncio.sleep(0.01)


async def ended(store: JobStore, job: Job, within: float = PATIENCE) -> Job:
    """Wait until a job has ended."""
    return await until(store, job, lambda row: row.status.ended, within)


async def running(store: JobStore, job: Job) -> Job:
    """Wait until a job is being worked on and has shown progress."""
    return await until(store, job, lambda row: row.progress > 0)
