"""How the parts of this folder meet: rows (`JobStore`), workers (`Dispatcher`, `Handler`, `Work`), files (`ArtifactStore`).

`service.Jobs` joins them for the routes:

    submit(NewJob) -> Job                 JobLimitError, IdempotencyConflictError
    get(tenant, id) -> Job | None
    list(tenant, kind, after=, limit=, order=) -> JobPage
    cancel(tenant, id) -> Job | None      at once when queued, at the next step when it runs
    delete(tenant, id) -> bool            cancels, then removes row and files together
    watch(tenant, id, deadline=) -> AsyncIterator[Job]   the job as it changes, until it has ended; works whichever process does the work
    wait(tenant, id, deadline=) -> Job    the ended job; TimeoutError
    artifact(job, name) -> Artifact | None, read(artifact, start=, end=) -> AsyncIterator[bytes], preview(job) -> bytes | None
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...engines.pool import Lease
from .job import Artifact, Job, JobFault, JobKind, JobPage, NewJob


class JobStore(Protocol):
    """The `jobs` table (`store.SqlJobStore`). Every write of a running attempt is fenced: `WHERE id = ? AND attempt = ? AND status =
    'in_progress'`, and raises `AttemptLostError` when it hits no row. `now` is Unix seconds and comes from the caller.

    Every method raises `StoreUnavailableError` (HTTP: 503 with its `retry_after`) when the database cannot be reached, is locked or its
    disk is full; nothing was written then, unless the connection broke in the very commit."""

    async def open(self) -> None:
        """Make or migrate the table. Several processes may do it at once."""

    async def close(self) -> None: ...
    async def submit(self, new: NewJob, now: float, *, max_active: int) -> tuple[Job, bool]:
        """The row and whether it is new. Same idempotency key and body: the first job. Counts the tenant's unfinished jobs in the same
        transaction. Raises `JobLimitError`, `IdempotencyConflictError`."""

    async def get(self, job_id: str, *, tenant: str | None = None) -> Job | None: ...
    async def list(self, tenant: str, kind: JobKind, *, after: str | None, limit: int, descending: bool) -> JobPage:
        """A page after the job `after`. Raises `UnknownCursorError` when that job is not there (any more)."""

    def changes(self, poll: float) -> Changes:
        """Tells when the table was written to, by whichever process. `poll` in seconds, where the database cannot tell by itself."""

    async def claimable(self, lanes: Collection[str], now: float, kinds: Collection[JobKind] | None = None) -> bool:
        """Is there a job that `claim` would give (or end)?"""

    async def claim(
        self,
        lanes: Collection[str],
        owner: str,
        now: float,
        lease: float,
        *,
        kinds: Collection[JobKind] | None = None,
        job_id: str | None = None,
    ) -> Job | None:
        """The next queued job of these lanes (or one whose lease ran out), highest priority then oldest, now `in_progress` with
        `attempt` + 1. A job whose attempts are used up is failed (`worker_died`) instead of given, one that somebody asked to cancel is
        cancelled. `job_id`: this job or none."""

    async def progress(self, job: Job, now: float, lease: float, *, progress: float, preview: int) -> bool:
        """Write progress (never backwards), extend the lease; returns whether a cancel was asked for."""

    async def finish(self, job: Job, now: float, *, artifacts: tuple[Artifact, ...], result: dict[str, Any]) -> Job: ...
    async def fail(self, job: Job, now: float, fault: JobFault) -> Job: ...
    async def cancelled(self, job: Job, now: float) -> Job: ...
    async def requeue(self, job: Job, now: float) -> None:
        """Give a running job back (an orderly stop): it does not count as an attempt (`max_attempts` rises by one, for `attempt` is a
        fence and never falls). One that somebody asked to cancel is cancelled."""

    async def retry(self, job: Job, now: float, fault: JobFault, delay: float) -> Job:
        """An attempt failed for a reason that may pass: queued again, not to be claimed before `now + delay`. Failed with `fault` when its
        attempts are used up; cancelled when somebody asked for that."""

    async def request_cancel(self, job_id: str, tenant: str, now: float) -> Job | None:
        """Queued: cancelled at once. Running: marked, for its worker to see. Ended: as it is."""

    async def cancel_requests(self, owner: str) -> tuple[str, ...]:
        """The running jobs of this owner that somebody asked to cancel."""

    async def remove(self, job_id: str) -> None: ...
    async def expired(self, now: float, limit: int) -> Sequence[Job]: ...
    async def untold(self, now: float, limit: int, hold: float) -> tuple[tuple[Job, int], ...]:
        """Ended jobs whose end is still to be told (webhooks), oldest first, each with how often it was taken up, this time included. They
        are held for `hold` seconds: nobody else gets them meanwhile, and they come again after that unless `told` says otherwise. The
        end and the wish to tell it are written in one transaction, so that no end is forgotten, whoever dies."""

    async def told(self, job_id: str, again_at: float | None = None) -> None:
        """The end was told (or will never be); `again_at`: try again then."""

    async def counts(self) -> Sequence[tuple[str, str, int, float]]:
        """(kind, status, how many, created_at of the oldest), for the gauges."""


class Changes(Protocol):
    """Somebody who waits for writes to the table."""

    async def wait(self, timeout: float) -> bool:
        """True as soon as something was written since the last call; False after `timeout` seconds."""

    async def close(self) -> None: ...


class ArtifactStore(Protocol):
    """Files by key (`artifacts.artifact_key`, `artifacts.preview_key`), in a folder or a bucket. A file appears whole or not at all."""

    async def put(self, key: str, data: bytes | Path, content_type: str) -> Artifact:
        """Keep a file that is never overwritten. Raises `JobFailedError("storage_failed")` when it cannot be kept (a full disk); nothing
        half-written stays visible."""

    async def replace(self, key: str, data: bytes, content_type: str) -> None:
        """Keep a file that may be overwritten (a preview). Raises like `put`."""

    def read(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]: ...
    async def remove(self, prefix: str) -> int: ...
    async def keys(self, prefix: str) -> list[tuple[str, float]]:
        """(key, modified at), for the sweep of orphans."""


class Work(Protocol):
    """One attempt at one job, as its handler sees it."""

    @property
    def job(self) -> Job: ...
    @property
    def lease(self) -> Lease:
        """The slot on the engine that was granted before the job was claimed."""

    async def report(self, progress: float, preview: bytes | None = None) -> None:
        """Say how far it is (0 to 100) and perhaps show a preview (WebP). Cheap to call at every step: writes are throttled. Raises
        `JobCancelledError` or `AttemptLostError`, which the handler lets pass."""

    async def keep(self, name: str, data: bytes | Path, content_type: str) -> Artifact:
        """Store a file of this attempt. It becomes the job's only if the attempt completes."""


class Handler(Protocol):
    """Does the jobs of one kind."""

    async def run(self, work: Work) -> tuple[tuple[Artifact, ...], dict[str, Any]]:
        """The files and the result. Raises `JobFailedError` for what cannot be done; an `EngineError` (an engine died) is tried again."""


class Dispatcher(Protocol):
    """Hands the rows to workers in this process. One conformance suite holds its implementations together.

    `dispatching.open_store(settings.jobs)` makes the store; `dispatching.make_dispatcher(settings.jobs, store, pool, handlers, artifacts,
    lanes)` the dispatcher that the configuration asks for. Open the store before the dispatcher, close it after."""

    async def open(self) -> None: ...
    async def close(self) -> None:
        """Stop claiming, stop what runs, give it back to the queue, in bounded time."""

    async def enqueued(self, job: Job) -> None:
        """A row was committed: wake who waits for it."""

    async def cancel(self, job: Job) -> None:
        """The fast path of a cancel, for a job that may run here or elsewhere."""
