"""The life of a job, as functions from a row to the next row. Pure: no clock, no database; the store reads a row, asks here, writes.

A running attempt is known by its number. Whatever an attempt writes goes through `_fenced`: unless the job is running *that* attempt, the
write raises `AttemptLostError` and nothing changes. `faults` lists which invariants a row breaks; a row that came from here breaks none.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from .errors import AttemptLostError
from .job import MAY_FOLLOW, Artifact, Job, JobFault, JobStatus, NewJob

WORKER_DIED = JobFault(code="worker_died", message="The workers that had this job died or went silent, each time that it was tried.")


def request_hash(new: NewJob) -> str:
    """The same for the same order: what an idempotency key is checked against."""
    if new.fingerprint is not None:
        return new.fingerprint
    order = (new.kind, new.model, new.request, new.priority, new.remixed_from, new.webhook)
    return hashlib.sha256(json.dumps(order, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def submit(new: NewJob, job_id: str, seq: int, now: float) -> Job:
    """The row of a new job."""
    return Job(
        id=job_id,
        seq=seq,
        tenant=new.tenant,
        kind=new.kind,
        lane=new.lane,
        model=new.model,
        request=new.request,
        request_hash=request_hash(new),
        status=JobStatus.QUEUED,
        progress=0.0,
        priority=new.priority,
        attempt=0,
        max_attempts=new.max_attempts,
        owner=None,
        lease_until=None,
        cancel_requested=False,
        created_at=now,
        expires_after=new.expires_after,
        idempotency_key=new.idempotency_key,
        remixed_from=new.remixed_from,
        webhook=new.webhook,
    )


# ---- who may take it ------------------------------------------------------------------------------------------------


def claimable(job: Job, now: float) -> bool:
    """It waits and its time has come, or its worker's lease ran out."""
    if job.status is JobStatus.QUEUED:
        return job.not_before is None or job.not_before <= now
    return job.status is JobStatus.IN_PROGRESS and job.lease_until is not None and job.lease_until <= now


def turn(job: Job) -> tuple[int, int]:
    """The claimable job with the smallest turn goes first: the highest priority, then the oldest."""
    return (-job.priority, job.seq)


def claim(job: Job, owner: str, now: float, lease: float) -> Job:
    """A claimable job, taken: a new attempt of `owner`. Its end instead, when it was to be cancelled or its attempts are used up."""
    if not claimable(job, now):
        raise ValueError(f"job {job.id} cannot be claimed: it is {job.status}")
    if job.cancel_requested:
        return _end(job, now, JobStatus.CANCELLED)
    if job.attempt >= job.max_attempts:
        return _end(job, now, JobStatus.FAILED, fault=WORKER_DIED)
    if job.status is JobStatus.IN_PROGRESS:  # its worker is taken for dead
        job = _waiting(job, now)
    return _become(
        job,
        JobStatus.IN_PROGRESS,
        attempt=job.attempt + 1,
        owner=owner,
        lease_until=now + lease,
        not_before=None,
        started_at=job.started_at if job.started_at is not None else now,
    )


# ---- what a running attempt writes ----------------------------------------------------------------------------------


def progress(job: Job, attempt: int, now: float, lease: float, *, progress: float, preview: int) -> Job:
    """It goes on: the lease is extended, progress and previews never go backwards."""
    job = _fenced(job, attempt)
    return replace(job, lease_until=now + lease, progress=max(job.progress, min(100.0, progress)), preview=max(job.preview, preview))


def finish(job: Job, attempt: int, now: float, artifacts: tuple[Artifact, ...], result: dict[str, Any]) -> Job:
    """It is done. Raises `ValueError` when there is nothing to show for it."""
    job = _fenced(job, attempt)
    if not artifacts:
        raise ValueError(f"job {job.id} cannot be completed without an artifact")
    if len({artifact.name for artifact in artifacts}) != len(artifacts):
        raise ValueError(f"job {job.id} has two artifacts of one name: {', '.join(artifact.name for artifact in artifacts)}")
    return _end(job, now, JobStatus.COMPLETED, progress=100.0, artifacts=artifacts, result=result)


def fail(job: Job, attempt: int, now: float, fault: JobFault) -> Job:
    """It cannot be done."""
    return _end(_fenced(job, attempt), now, JobStatus.FAILED, fault=fault)


def cancelled(job: Job, attempt: int, now: float) -> Job:
    """Its worker stopped it because somebody asked."""
    return _end(_fenced(job, attempt), now, JobStatus.CANCELLED)


def requeue(job: Job, attempt: int, now: float) -> Job:
    """Its worker gives it back, through no fault of the job: the attempt does not count. `attempt` is a fence and never falls, so
    `max_attempts` rises instead."""
    job = _fenced(job, attempt)
    if job.cancel_requested:
        return _end(job, now, JobStatus.CANCELLED)
    return replace(_waiting(job, now), max_attempts=job.max_attempts + 1)


def retry(job: Job, attempt: int, now: float, fault: JobFault, delay: float) -> Job:
    """The attempt failed for a reason that may pass: once more after `delay` seconds, or failed when that was the last attempt."""
    job = _fenced(job, attempt)
    if job.cancel_requested:
        return _end(job, now, JobStatus.CANCELLED)
    if job.attempt >= job.max_attempts:
        return _end(job, now, JobStatus.FAILED, fault=fault)
    return _waiting(job, now + delay)


# ---- what others ask ------------------------------------------------------------------------------------------------


def request_cancel(job: Job, now: float) -> Job:
    """Waiting: cancelled at once. Running: marked. Ended: as it is."""
    if job.status is JobStatus.QUEUED:
        return _end(job, now, JobStatus.CANCELLED)
    return job if job.status.ended else replace(job, cancel_requested=True)


def expired(job: Job, now: float) -> bool:
    """It ended so long ago that row and files may go."""
    return job.status.ended and job.expires_at is not None and job.expires_at <= now


# ---- the invariants -------------------------------------------------------------------------------------------------


def faults(job: Job) -> list[str]:
    """Which invariants the row breaks, in words; of a sound row, none."""
    running = job.status is JobStatus.IN_PROGRESS
    rules = {
        "an ended job, and no other, has an end and an expiry": job.status.ended
        == (job.finished_at is not None)
        == (job.expires_at is not None),
        "a completed job, and no other, has artifacts": (job.status is JobStatus.COMPLETED) == bool(job.artifacts),
        "a failed job, and no other, has a fault": (job.status is JobStatus.FAILED) == (job.fault is not None),
        "a running job, and no other, has an owner and a lease": running == (job.owner is not None) == (job.lease_until is not None),
        "only a waiting job waits for a time": job.not_before is None or job.status is JobStatus.QUEUED,
        "it was tried no more often than it may": 0 <= job.attempt <= job.max_attempts,
        "who runs was started": not running or (job.attempt >= 1 and job.started_at is not None),
        "progress lies between 0 and 100": 0.0 <= job.progress <= 100.0,
        "a completed job is done": job.status is not JobStatus.COMPLETED or job.progress == 100.0,
        "a waiting job has no progress": job.status is not JobStatus.QUEUED or job.progress == 0.0 == job.preview,
    }
    return [rule for rule, holds in rules.items() if not holds]


def _fenced(job: Job, attempt: int) -> Job:
    if job.status is not JobStatus.IN_PROGRESS or job.attempt != attempt:
        raise AttemptLostError(f"attempt {attempt} of job {job.id} may not write: the job is {job.status} in attempt {job.attempt}")
    return job


def _waiting(job: Job, not_before: float) -> Job:
    return _become(job, JobStatus.QUEUED, owner=None, lease_until=None, not_before=not_before, progress=0.0, preview=0)


def _end(job: Job, now: float, status: JobStatus, **changes: Any) -> Job:
    expires_at = now + job.expires_after
    return _become(job, status, owner=None, lease_until=None, not_before=None, finished_at=now, expires_at=expires_at, **changes)


def _become(job: Job, status: JobStatus, **changes: Any) -> Job:
    if status not in MAY_FOLLOW[job.status]:
        raise ValueError(f"job {job.id} is {job.status} and cannot become {status}")
    return replace(job, status=status, **changes)
