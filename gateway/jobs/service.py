"""`Jobs`: what the routes talk to, and the owner of everything in this folder: store, dispatcher, files, webhooks, sweep.

Opened after the engine pool and closed before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

import msgspec

from ...engines.pool import EnginePool
from ..errors import SettingsError
from ..logs import logger
from ..metrics import Metrics
from ..settings import JobSettings
from ..tasks import TaskOwner
from .artifacts import FileStore, job_prefix, preview_key, storage_place, work_key
from .callers import Caller, check_url
from .dispatching import make_dispatcher, open_store
from .errors import JobError, JobFailedError
from .handlers.batch import COUNTS, BatchHandler
from .handlers.image import ImageHandler
from .handlers.video import VideoHandler
from .interface import Dispatcher, Handler
from .job import Artifact, Job, JobKind, JobPage, JobStatus, NewJob
from .limits import SubmitLimit
from .measured import MeasuredHandler
from .sweep import Sweep
from .telling import Telling
from .uploads import Uploads
from .webhooks import Webhooks, options_of

log = logger("gateway.jobs")

REREAD = 0.5
"""Seconds after which a watched row is read again though nobody said that it changed."""
CLOSING = 10.0
"""Seconds that our own tasks have to end."""


class Jobs:
    """See the module's docstring and that of `interface`."""

    def __init__(
        self,
        settings: JobSettings,
        pool: EnginePool,
        lanes: Sequence[str],
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.lanes = tuple(lanes)
        self._metrics = metrics
        self._clock = clock
        self.store = open_store(settings)
        self.store.on_step = self._stepped
        self.files = FileStore(storage_place(settings.place(), settings.artifacts))
        self.uploads = Uploads(self.files, self.store, keep_s=settings.uploads_s)
        self._limit = SubmitLimit(settings.per_minute)
        self._caller = Caller()
        webhooks = Webhooks(options_of(settings), self._caller, clock=clock, count=lambda outcome: metrics.webhooks.labels(outcome).inc())
        self._telling = Telling(self.store, self.files, webhooks, metrics, clock=clock)
        self._sweep = Sweep(self.store, self.files, self.uploads, metrics, clock=clock)
        # Without lanes it works on nothing, but hears of submissions and cancels.
        works_on = self.lanes if settings.work else ()
        self._dispatcher: Dispatcher = make_dispatcher(settings, self.store, pool, self._handlers(), self.files, works_on)
        self._working = False
        self._tasks = TaskOwner()
        self._watching: dict[str, set[asyncio.Event]] = {}

    def _handlers(self) -> dict[JobKind, Handler]:
        handlers: dict[JobKind, Handler] = {
            JobKind.VIDEO: VideoHandler(self.uploads, clock=self._clock),
            JobKind.IMAGE: ImageHandler(self.uploads, clock=self._clock),
            JobKind.BATCH: BatchHandler(self.uploads, self.files, clock=self._clock),
        }
        return {kind: MeasuredHandler(handler, self._metrics, clock=self._clock) for kind, handler in handlers.items()}

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open files and database, begin to work. Raises `JobError`."""
        await self.files.open()
        await self.store.open()
        await self._dispatcher.open()
        self._working = True
        for name, run in (("job changes", self._follow), ("job ends", self._telling.run), ("job sweep", self._sweep.run)):
            self._tasks.start(run(), name=name, on_crash=lambda error, name=name: self._crashed(name, error))  # type: ignore[misc]

    async def close(self) -> None:
        """Give back what runs, then end everything, in bounded time."""
        await self.stop_working()
        stuck = await self._tasks.close(CLOSING)
        if stuck:
            log.error("tasks of the job queue do not end", tasks=stuck)
        await self._caller.close()
        await self.store.close()

    async def stop_working(self) -> None:
        """Take no more jobs and give back those that run here. Clients may go on asking. Harmless when called again."""
        if self._working:
            self._working = False
            await self._dispatcher.close()

    def _crashed(self, name: str, error: BaseException) -> None:
        log.error("a task of the job queue crashed", task=name, exc_info=error)
        self._metrics.crashes.labels("jobs").inc()

    async def _follow(self) -> None:
        """Wake who watches whenever the table was written to."""
        changes = self.store.changes(self.settings.poll_s)
        try:
            while True:
                if await changes.wait(60.0):
                    self._wake()
        finally:
            await changes.close()

    def _wake(self) -> None:
        """Somebody wrote to the table: who watches looks again."""
        for watching in self._watching.values():
            for event in watching:
                event.set()
        self._telling.wake()

    def _stepped(self, job: Job) -> None:
        """An attempt in this process wrote its row."""
        for event in self._watching.get(job.id, ()):
            event.set()
        if job.status.ended:
            self._telling.wake()

    # ---- clients ----------------------------------------------------------------------------------------------------

    async def submit(self, new: NewJob) -> Job:
        """Put a job into the queue; with the same idempotency key and body as before, the first job. Raises `JobLimitError`,
        `IdempotencyConflictError`, `InvalidWebhookError`, `StoreUnavailableError`."""
        if new.webhook is not None:
            check_url(new.webhook, private=self.settings.webhook_private)
        self._limit.require(new.tenant, time.monotonic())
        job, fresh = await self.store.submit(new, self._clock(), max_active=self.settings.max_active)
        if fresh:
            self._metrics.jobs_submitted.labels(job.kind.value).inc()
            if self._working:
                await self._dispatcher.enqueued(job)
        return job

    async def get(self, tenant: str, job_id: str) -> Job | None:
        """A job of this tenant. A batch that runs has `request_counts` in its result already."""
        job = await self.store.get(job_id, tenant=tenant)
        if job is not None and job.kind is JobKind.BATCH and job.status is JobStatus.IN_PROGRESS:
            counts = await self.files.get(work_key(job, COUNTS))
            if counts is not None:
                return replace(job, result={**job.result, "request_counts": msgspec.json.decode(counts)})
        return job

    async def list(self, tenant: str, kind: JobKind, *, after: str | None = None, limit: int = 20, order: str = "desc") -> JobPage:
        """A page after the job `after`, by submission. Raises `UnknownCursorError`."""
        return await self.store.list(tenant, kind, after=after, limit=limit, descending=order == "desc")

    async def cancel(self, tenant: str, job_id: str) -> Job | None:
        """At once when it waits, at the next step when it runs; one that has ended stays as it is."""
        job = await self.store.request_cancel(job_id, tenant, self._clock())
        if job is not None:
            self._stepped(job)
            if not job.status.ended and self._working:
                await self._dispatcher.cancel(job)
        return job

    async def delete(self, tenant: str, job_id: str) -> bool:
        """Cancel it, then remove row and files. False: there is none."""
        job = await self.cancel(tenant, job_id)
        if job is None:
            return False
        # The row first: a completed job whose files are gone would be a lie, files without a row are swept.
        await self.store.remove(job.id)
        try:
            await self.files.remove(job_prefix(job))
        except JobFailedError as error:
            log.warning("files of a removed job left to the sweep", job=job.id, reason=str(error))
        return True

    async def watch(self, tenant: str, job_id: str, *, deadline: float | None = None) -> AsyncGenerator[Job, None]:
        """The job as it is and whenever it changes, until it has ended or `deadline` (time.monotonic) has come. One that is removed
        meanwhile ends as cancelled."""
        changed = asyncio.Event()
        self._watching.setdefault(job_id, set()).add(changed)
        try:
            async with aclosing(self._states(tenant, job_id, changed, deadline)) as states:
                async for job in states:
                    yield job
        finally:
            watching = self._watching[job_id]
            watching.discard(changed)
            if not watching:
                del self._watching[job_id]

    async def _states(self, tenant: str, job_id: str, changed: asyncio.Event, deadline: float | None) -> AsyncGenerator[Job, None]:
        last: Job | None = None
        while True:
            changed.clear()
            job = await self.get(tenant, job_id)
            if job is None:
                if last is not None:
                    yield replace(last, status=JobStatus.CANCELLED, finished_at=self._clock())
                return
            if job != last:
                yield job
                last = job
            if job.status.ended:
                return
            pause = REREAD if deadline is None else min(REREAD, deadline - time.monotonic())
            if pause <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await changed.wait()

    async def wait(self, tenant: str, job_id: str, *, deadline: float) -> Job:
        """The ended job. Raises `TimeoutError` when it has not ended by `deadline` (time.monotonic), `LookupError` when there is none."""
        job: Job | None = None
        async with aclosing(self.watch(tenant, job_id, deadline=deadline)) as changes:
            async for state in changes:
                job = state
        if job is None:
            raise LookupError(f"there is no job {job_id}")
        if not job.status.ended:
            raise TimeoutError(f"job {job_id} has not ended in time")
        return job

    # ---- files ------------------------------------------------------------------------------------------------------

    async def artifact(self, job: Job, name: str) -> Artifact | None:
        """A file of a completed job."""
        return next((artifact for artifact in job.artifacts if artifact.name == name), None)

    def read(self, artifact: Artifact, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Its bytes from `start` to before `end`, piece by piece. Raises `FileNotFoundError` when it was removed meanwhile."""
        return self.files.read(artifact.key, start=start, end=end)

    async def preview(self, job: Job) -> bytes | None:
        """The latest preview of a running job, a WebP picture."""
        if job.preview <= 0 or job.status is not JobStatus.IN_PROGRESS:
            return None
        return await self.files.get(preview_key(job, job.preview))


async def open_jobs(settings: JobSettings, pool: EnginePool, lanes: Sequence[str], metrics: Metrics) -> Jobs:
    """The job queue of the settings, open. Raises `SettingsError` when it cannot be opened."""
    try:
        for url in settings.webhooks:
            check_url(url, private=True)
        jobs = Jobs(settings, pool, lanes, metrics)
    except (ValueError, JobError) as error:
        raise SettingsError(f"The job queue cannot be opened. {error}") from error
    try:
        await jobs.open()
    except JobError as error:
        await jobs.close()
        raise SettingsError(f"The job queue cannot be opened. {error}") from error
    return jobs


__all__ = ["Jobs", "open_jobs"]
