"""What a job is: a row with a life of its own. Pure: no clock, no database.

    queued -> in_progress -> completed | failed | cancelled
       ^__________|   (its worker died or stopped: a new attempt)

A job ends once. Each claim raises `attempt`; whatever an older attempt still wants to write is refused.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any


class JobStatus(enum.StrEnum):
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


class JobKind(enum.StrEnum):
    """What is made. `batch` is many pictures as one job."""

    VIDEO = "video"
    IMAGE = "image"
    BATCH = "batch"


ID_PREFIX = {JobKind.VIDEO: "video_", JobKind.IMAGE: "imgjob_", JobKind.BATCH: "batch_"}

MAY_FOLLOW: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.QUEUED: frozenset({JobStatus.IN_PROGRESS, JobStatus.CANCELLED, JobStatus.FAILED}),
    JobStatus.IN_PROGRESS: frozenset({JobStatus.QUEUED, JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.COMPLETED: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELLED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFault:
    """Why a job failed: a stable code for programs, a sentence for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file of a completed job. `name` is unique in the job: "video.mp4", "thumbnail.webp", "spritesheet.jpg", "image-0.png" ..."""

    name: str
    key: str
    """Where the artifact store keeps it."""
    size: int
    sha256: str
    content_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job as it is submitted. Times are seconds. `request` is the validated body; `lane` the engine that will do the work."""

    tenant: str
    kind: JobKind
    lane: str
    model: str
    """The model's name as the client said it; it is given back."""
    request: dict[str, Any]
    priority: int = 0
    """Higher goes first. -10 to 10."""
    idempotency_key: str | None = None
    fingerprint: str | None = None
    """What an idempotency key is checked against: a hash of the body as the client sent it. None: `request` and what stands beside it,
    which will not do where the request holds something drawn at random (a seed)."""
    remixed_from: str | None = None
    expires_after: float = 86_400.0
    """After it has ended the job and its files are kept for so long."""
    webhook: str | None = None
    """A URL that is told when the job ends, besides the server's own."""
    max_attempts: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A row. Times are Unix seconds; `progress` is 0 to 100; `result` is what the handler said about what it made (warnings, seeds ...)."""

    id: str
    seq: int
    """Order of submission; lists page by it."""
    tenant: str
    kind: JobKind
    lane: str
    model: str
    request: dict[str, Any]
    request_hash: str
    status: JobStatus
    progress: float
    priority: int
    attempt: int
    max_attempts: int
    owner: str | None
    lease_until: float | None
    cancel_requested: bool
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    expires_at: float | None = None
    expires_after: float = 86_400.0
    idempotency_key: str | None = None
    remixed_from: str | None = None
    webhook: str | None = None
    fault: JobFault | None = None
    artifacts: tuple[Artifact, ...] = ()
    result: dict[str, Any] = field(default_factory=dict)
    not_before: float | None = None
    """A queued job is not to be claimed before this (it waits after an engine failed)."""
    preview: int = 0
    """How many previews this attempt has shown; the latest is the artifact store's `preview` of the job. 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """A page of a list, in the asked order."""

    jobs: tuple[Job, ...]
    has_more: bool
