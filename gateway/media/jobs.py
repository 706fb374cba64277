"""What the media routes share: the job service, whose request it is, submitting, waiting for a job as long as its client waits."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

import anyio
from fastapi import Request, Response

from ..auth import offered_key
from ..errors import ApiError
from ..jobs.errors import StoreUnavailableError, UnknownCursorError
from ..jobs.job import Artifact, Job, JobKind, JobPage, JobStatus, NewJob
from ..logs import logger
from ..service import Gateway
from .content import Content
from .engines import MEND
from .views import poll_after_ms

if TYPE_CHECKING:
    from ..jobs.service import Jobs

LONGEST_KEY = 255
EVERYBODY = "public"
"""Whose jobs they are on a server without API keys."""
GONE_POLL = 0.2
CANCEL_S = 5.0
"""How long a cancel may take that nobody waits for."""
STATUS_OF_FAULT = {"invalid_request": 400, "not_supported": 400, "file_not_found": 404, "engine_busy": 503, "engine_unavailable": 503}
"""The HTTP status of a failed job's fault, for calls that wait for it; others: 500."""
NO_RETRY = {"x-should-retry": "false"}
"""Stock clients repeat some errors by themselves, which would not help with these."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)

T = TypeVar("T")

log = logger("gateway.media")


def jobs_of(request: Request) -> Jobs:
    """The job service. Raises a 404 `ApiError` on a server without media engines."""
    jobs = Gateway.of(request).jobs
    if jobs is None:
        raise ApiError(404, "model_not_found", f"This server makes no pictures and clips. {MEND}", param="model")
    return jobs


def tenant_of(request: Request) -> str:
    """Whose request it is: a digest of its API key, which names the owner without giving the key away."""
    key = offered_key(request.headers)
    if not Gateway.of(request).keys or key is None:
        return EVERYBODY
    return "key_" + hashlib.sha256(key.encode()).hexdigest()[:24]


def idempotency_key(request: Request) -> str | None:
    """The header `Idempotency-Key`. Raises a 400 `ApiError`."""
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= LONGEST_KEY:
        raise ApiError(
            400, "invalid_value", f"The header Idempotency-Key must have 1 to {LONGEST_KEY} characters.", param="Idempotency-Key"
        )
    return key


async def find(request: Request, kind: JobKind, job_id: str) -> Job:
    """The job of this id, of this kind and this key. Raises a 404 `ApiError`."""
    jobs = jobs_of(request)
    job = await jobs.get(tenant_of(request), job_id) if _ID.fullmatch(job_id) else None
    if job is None or job.kind is not kind:
        raise no_job(kind, job_id)
    return job


async def list_jobs(request: Request, kind: JobKind, after: str | None, limit: int, order: str) -> JobPage:
    """A page of this key's jobs. Raises `UnknownCursorError`."""
    if after is not None and not _ID.fullmatch(after):
        raise UnknownCursorError(f"There is no {kind.value} '{after[:100]}' to go on after.")
    return await jobs_of(request).list(tenant_of(request), kind, after=after, limit=limit, order=order)


def no_job(kind: JobKind, job_id: str) -> ApiError:
    """There is no such job, or it is somebody else's, which nobody is told."""
    return ApiError(404, f"{kind.value}_not_found", f"There is no {kind.value} '{job_id[:100]}'.", param=f"{kind.value}_id")


async def wait_for(request: Request, job: Job, seconds: float) -> Job:
    """The completed job. A client that leaves cancels it (see `give_up`), and so does the end of its time.

    Raises an `ApiError`: 504 after `seconds`, else what the job failed of; `ConnectionError` when the client left.
    """
    jobs = jobs_of(request)
    try:
        ended = await _while_here(request, jobs.wait(job.tenant, job.id, deadline=time.monotonic() + seconds))
    except TimeoutError:
        await give_up(jobs, job)
        raise too_late(job, seconds) from None
    except KeyError:
        raise ApiError(409, "cancelled", "The job was removed.", headers=NO_RETRY) from None
    except (asyncio.CancelledError, ConnectionError):
        await give_up(jobs, job)
        raise
    raise_fault(ended)
    return ended


def too_late(job: Job, seconds: float) -> ApiError:
    """A job took longer than a call may wait."""
    then = "was cancelled" if job.idempotency_key is None else "goes on: ask again with the same Idempotency-Key"
    return ApiError(504, "job_timeout", f"It was not done within {seconds:g} s and {then}.", headers=NO_RETRY)


async def give_up(jobs: Jobs, job: Job) -> None:
    """Cancel a job that nobody waits for any more, even while the caller itself is being cancelled.

    One with an idempotency key goes on: its client means to come back for it with the same key.
    """
    if job.status.ended or job.idempotency_key is not None:
        return
    with anyio.move_on_after(CANCEL_S, shield=True):
        try:
            await jobs.cancel(job.tenant, job.id)
        except StoreUnavailableError as error:
            log.warning("a job that nobody waits for could not be cancelled", job=job.id, reason=str(error))


def raise_fault(job: Job) -> None:
    """Raise the `ApiError` of a job that ended without a result."""
    if job.status is JobStatus.CANCELLED:
        raise ApiError(409, "cancelled", "The job was cancelled.", headers=NO_RETRY)
    if job.status is JobStatus.FAILED:
        code, message = (job.fault.code, job.fault.message) if job.fault else ("job_failed", "The job failed.")
        status = STATUS_OF_FAULT.get(code, 500)
        headers = {"retry-after": "5"} if status == 503 else NO_RETRY
        raise ApiError(status, code, message, headers=headers)


async def _while_here(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is given up when the client goes away (`ConnectionError`)."""
    working = asyncio.ensure_future(work)
    watching = asyncio.create_task(_gone(request), name="client gone")
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ConnectionError("the client went away")
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(request: Request) -> None:
    while not await request.is_disconnected():  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(GONE_POLL)


def content_of(jobs: Jobs, job: Job, artifact: Artifact) -> Content:
    """A job's file, for `content.respond`."""
    return Content(
        size=artifact.size,
        etag=artifact.sha256,
        content_type=artifact.content_type,
        filename=f"{job.id}-{artifact.name}",
        read=lambda start, end: jobs.read(artifact, start=start, end=end),
    )


async def show_preview(request: Request, job: Job) -> Response:
    """What a job looks like so far. Raises a 404 `ApiError` when nothing is to be seen."""
    data = await jobs_of(request).preview(job)
    if data is None:
        hint = "The job has ended." if job.status.ended else "It has not begun, or the model shows none."
        raise ApiError(404, "no_preview", f"There is no preview. {hint}", headers=poll_header((job,)))
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff", **poll_header((job,))}
    return Response(data, media_type="image/webp", headers=headers)


def not_completed(job: Job) -> ApiError:
    """A job has no files (yet)."""
    if job.status.ended:
        why = job.fault.message if job.fault is not None else "It was cancelled."
        return ApiError(409, "job_failed", f"'{job.id}' has no files, because it failed: {why}", headers=NO_RETRY)
    message = f"'{job.id}' is not completed yet: it is {job.status.value}, {int(job.progress)} % done."
    return ApiError(409, "job_not_completed", message, headers={**NO_RETRY, **poll_header((job,))})


def poll_header(jobs: tuple[Job, ...]) -> dict[str, str]:
    """`openai-poll-after-ms` while one of these jobs has not ended: the soonest."""
    now = time.time()
    waits = [poll_after_ms(job, now) for job in jobs if not job.status.ended]
    return {"openai-poll-after-ms": str(min(waits))} if waits else {}


async def submit(request: Request, new: NewJob) -> Job:
    """Put a job into the queue. Raises the `JobError`s of `Jobs.submit`, and a 503 `ApiError` while the server stops."""
    Gateway.of(request).require_open()
    return await jobs_of(request).submit(new)
