"""Jobs as the API shows them: `video` objects, pictures, batches, and how soon to ask again. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..jobs.job import Job, JobPage, JobStatus

POLL_SHORTEST_MS, POLL_LONGEST_MS = 250, 2000
"""Stock clients keep to the first interval that they are told, so it must suit the whole job."""


def video(job: Job) -> dict[str, Any]:
    """A `video` object. A cancelled job has failed with the code "cancelled". The last six fields are ours."""
    request, result = job.request, job.result
    cancelled = job.status is JobStatus.CANCELLED
    return {
        "id": job.id,
        "object": "video",
        "created_at": int(job.created_at),
        "completed_at": _completed_at(job),
        "expires_at": _whole(job.expires_at),
        "status": "failed" if cancelled else job.status.value,
        "progress": progress(job),
        "model": job.model,
        "prompt": request.get("prompt"),
        "seconds": request.get("seconds", ""),
        "size": request.get("size", ""),
        "remixed_from_video_id": job.remixed_from,
        "error": fault(job),
        "started_at": _whole(job.started_at),
        "seed": result.get("seed", request.get("seed")),
        "steps": result.get("steps", request.get("steps")),
        "fps": request.get("output", {}).get("fps"),
        "revised_prompt": result.get("revised_prompt") or None,
        "warnings": warnings(job),
    }


def picture_job(job: Job) -> dict[str, Any]:
    """A job of pictures, as its list shows it; the whole object is ours."""
    request, result = job.request, job.result
    return {
        "id": job.id,
        "object": "image.job",
        "created_at": int(job.created_at),
        "started_at": _whole(job.started_at),
        "completed_at": _completed_at(job),
        "expires_at": _whole(job.expires_at),
        "status": "failed" if job.status is JobStatus.CANCELLED else job.status.value,
        "progress": progress(job),
        "model": job.model,
        "prompt": request.get("prompt"),
        "size": request.get("size", ""),
        "n": request.get("n", 1),
        "output_format": request.get("output", {}).get("format", "png"),
        "seed": request.get("seed"),
        "steps": result.get("steps", request.get("steps")),
        "revised_prompt": result.get("revised_prompt") or None,
        "warnings": warnings(job),
        "error": fault(job),
    }


def batch(job: Job, *, cancelling: bool = False) -> dict[str, Any]:
    """A `batch` object."""
    request = job.request
    counts = _counts(job)
    status = {
        JobStatus.QUEUED: "validating",
        JobStatus.IN_PROGRESS: "cancelling" if cancelling or job.cancel_requested else "in_progress",
        JobStatus.COMPLETED: "completed",
        JobStatus.FAILED: "failed",
        JobStatus.CANCELLED: "cancelled",
    }[job.status]
    ended = {
        f"{name}_at": _whole(job.finished_at) if job.status is JobStatus(name) else None for name in ("completed", "failed", "cancelled")
    }
    errors = None
    if job.status is JobStatus.FAILED and job.fault is not None:
        errors = {"object": "list", "data": [{"code": job.fault.code, "message": job.fault.message, "line": None, "param": None}]}
    names = {artifact.name for artifact in job.artifacts}
    return {
        "id": job.id,
        "object": "batch",
        "endpoint": request.get("endpoint", ""),
        "model": job.model or None,
        "errors": errors,
        "input_file_id": request.get("input_file_id", ""),
        "completion_window": request.get("completion_window", "24h"),
        "status": status,
        "output_file_id": batch_file_id(job, "output") if OUTPUT_NAME in names else None,
        "error_file_id": batch_file_id(job, "errors") if ERRORS_NAME in names else None,
        "created_at": int(job.created_at),
        "in_progress_at": _whole(job.started_at),
        "expires_at": _whole(job.expires_at),
        "finalizing_at": None,
        "expired_at": None,
        "cancelling_at": _whole(job.finished_at) if status == "cancelled" else None,
        **ended,
        "request_counts": counts,
        "metadata": request.get("metadata"),
        "progress": progress(job),
    }


OUTPUT_NAME, ERRORS_NAME = "output.jsonl", "errors.jsonl"
"""The artifacts of a batch."""


def batch_file_id(job: Job, which: str) -> str:
    """The id under which `/v1/files` gives a batch's artifact: `which` is "output" or "errors"."""
    return f"file-{job.id}-{which}"


def batch_of_file(file_id: str) -> tuple[str, str] | None:
    """The batch's id and the artifact's name of such an id; None for another one."""
    for which, name in (("-output", OUTPUT_NAME), ("-errors", ERRORS_NAME)):
        if file_id.startswith("file-batch_") and file_id.endswith(which):
            return file_id.removeprefix("file-").removesuffix(which), name
    return None


def page(found: JobPage, show: Callable[[Job], dict[str, Any]]) -> dict[str, Any]:
    """A page of a list."""
    return listed([show(job) for job in found.jobs], has_more=found.has_more)


def listed(data: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page of objects."""
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}


def progress(job: Job) -> int:
    """0 to 100; 100 only once it is done."""
    if job.status is JobStatus.COMPLETED:
        return 100
    return max(0, min(99, int(job.progress)))


def fault(job: Job) -> dict[str, Any] | None:
    """Why it failed."""
    if job.status is JobStatus.CANCELLED:
        return {"code": "cancelled", "message": "The job was cancelled."}
    if job.fault is None or job.status is not JobStatus.FAILED:
        return None
    return {"code": job.fault.code, "message": job.fault.message}


def warnings(job: Job) -> list[str]:
    """What the client should know of what was made: from before the work and from the work."""
    found: Iterable[str] = [*job.request.get("warnings", ()), *job.result.get("warnings", ())]
    return list(dict.fromkeys(found))


def poll_after_ms(job: Job, now: float) -> int:
    """When to ask again: a quarter of what remains, as far as the progress tells; of its age while it waits."""
    if job.status is JobStatus.IN_PROGRESS and job.started_at is not None and job.progress >= 1:
        remaining = (now - job.started_at) * (100 - job.progress) / job.progress
    else:
        remaining = now - job.created_at
    return int(max(POLL_SHORTEST_MS, min(POLL_LONGEST_MS, remaining * 250)))


def _completed_at(job: Job) -> int | None:
    return _whole(job.finished_at) if job.status is JobStatus.COMPLETED else None


def _whole(moment: float | None) -> int | None:
    return None if moment is None else int(moment)


def _counts(job: Job) -> dict[str, int]:
    """Lines of a batch: what the handler said once it has ended; before that from the progress."""
    total = int(job.request.get("total") or 0)
    said = job.result.get("request_counts") or {}
    if said:
        return {name: int(said.get(name, 0)) for name in ("total", "completed", "failed")}
    return {"total": total, "completed": min(total, int(job.progress * total / 100 + 1e-6)), "failed": 0}
