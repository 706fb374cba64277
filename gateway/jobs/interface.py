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

from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any, Protocol

from ...engines.pool import Lease
from .job import Artifact, Job, JobFault, JobKind, JobPage, NewJob


class JobStore(Protocol):
    """The `jobs` table. Every write of a running attempt is fenced: `WHERE id = ? AND attempt = ? AND status = 'in_progress'`, and raises
    `AttemptLostError` when it hits no row. `now` is Unix seconds and comes from the caller."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def submit(self, new: NewJob, now: float, *, max_active: int) -> tuple[Job, bool]:
        """The row and whether it is new. Same idempotency key and body: the first job. Counts the tenant's unfinished jobs in the same
        transaction. Raises `JobLimitError`, `IdempotencyConflictError`."""

    async def get(self, job_id: str, *, tenant: str | None = None) -> Job | None: ...
    async def list(self, tenant: str, kind: JobKind, *, after: str | None, limit: int, descending: bool) -> JobPage: ...
    async def claimable(self, lanes: Collection[str], now: float) -> bool:
        """Is there a job that `claim` would give?"""

    async def claim(self, lanes: Collection[str], owner: str, now: float, lease: float) -> Job | None:
        """The next queued job of these lanes (or one whose lease ran out), highest priority then oldest, now `in_progress` with
        `attempt` + 1. A job whose attempts are used up is failed (`worker_died`) instead of given."""

    async def progress(self, job: Job, now: float, lease: float, *, progress: float, preview: int) -> bool:
        """Write progress (never backwards), extend the lease; returns whether a cancel was asked for."""

    async def finish(self, job: Job, now: float, *, artifacts: tuple[Artifact, ...], result: dict[str, Any]) -> Job: ...
    async def fail(self, job: Job, now: float, fault: JobFault) -> Job: ...
    async def cancelled(self, job: Job, now: float) -> Job: ...
    async def requeue(self, job: Job, now: float) -> None:
        """Give a running job back (an orderly stop): it does not count as an attempt."""

    async def request_cancel(self, job_id: str, tenant: str, now: float) -> Job | None:
        """Queued: cancelled at once. Running: marked, for its worker to see. Ended: as it is."""

    async def remove(self, job_id: str) -> None: ...
    async def expired(self, now: float, limit: int) -> list[Job]: ...
    async def counts(self) -> list[tuple[str, str, int, float]]:
        """(kind, status, how many, created_at of the oldest), for the gauges."""


class ArtifactStore(Protocol):
    """Files by key, in a folder or a bucket. A file appears whole or not at all, and is never overwritten."""

    async def put(self, key: str, data: bytes | Path, content_type: str) -> Artifact:
        """Raises `JobFailedError("storage_failed")` when it cannot be kept (a full disk); nothing half-written stays visible."""

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
    """Hands the rows to workers in this process. One conformance suite holds its implementations together."""

    async def open(self) -> None: ...
    async def close(self) -> None:
        """Stop claiming, stop what runs, give it back to the queue, in bounded time."""

    async def enqueued(self, job: Job) -> None:
        """A row was committed: wake who waits for it."""

    async def cancel(self, job: Job) -> None:
        """The fast path of a cancel, for a job that may run here or elsewhere."""
