"""What a call gives that waited for its pictures: OpenAI's `ImagesResponse`, or the events of its stream."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from fastapi import Request

from ..errors import ApiError, from_job
from ..jobs.errors import JobError
from ..jobs.job import Artifact, Job
from .jobs import give_up, raise_fault, too_late
from .links import Link, Links
from .pictures import convert
from .views import warnings

if TYPE_CHECKING:
    from ..jobs.service import Jobs


def pictures_of(job: Job) -> list[Artifact]:
    """The pictures of a completed job, in order."""
    found = {}
    for artifact in job.artifacts:
        number = artifact.name.removeprefix("image-").partition(".")[0]
        if artifact.name.startswith("image-") and number.isdecimal():
            found[int(number)] = artifact
    return [found[number] for number in sorted(found)]


async def picture_answer(request: Request, jobs: Jobs, job: Job, links: Links) -> dict[str, Any]:
    """The answer for a completed job."""
    data: list[dict[str, Any]] = []
    revised = job.result.get("revised_prompt") or None
    by_url = job.request.get("extra", {}).get("response_format") == "url"
    for artifact in pictures_of(job):
        if by_url:
            token = links.token(Link(job.tenant, job.id, artifact.name), job.expires_at)
            where: dict[str, Any] = {"url": str(request.url_for("open_picture", token=token, name=artifact.name))}
        else:
            where = {"b64_json": base64.b64encode(await _bytes(jobs, artifact)).decode()}
        data.append({**where, "revised_prompt": revised})
    return {"created": int(job.finished_at or job.created_at), "data": data, **_about(job), "usage": usage(job), "warnings": warnings(job)}


async def picture_events(jobs: Jobs, job: Job, kind: str, seconds: float) -> AsyncGenerator[bytes, None]:
    """The events of a stream: up to `partial_images` partial ones, then a completed one a picture. Leaving the stream cancels the job.

    `kind` is "image_generation" or "image_edit"; after `seconds` the job is given up.
    """
    shown = index = 0
    try:
        async with aclosing(jobs.watch(job.tenant, job.id, deadline=time.monotonic() + seconds)) as states:
            async for state in states:
                job = state
                if job.preview > shown and index < job.request["previews"] and (preview := await jobs.preview(job)) is not None:
                    shown = job.preview
                    output = job.request["output"]
                    picture = await convert(preview, output["format"], output["quality"], (output["width"], output["height"]))
                    yield _event(f"{kind}.partial_image", job, picture, partial_image_index=index)
                    index += 1
        if not job.status.ended:
            raise too_late(job, seconds)
        raise_fault(job)
        for artifact in pictures_of(job):
            yield _event(f"{kind}.completed", job, await _bytes(jobs, artifact), usage=usage(job), warnings=warnings(job))
    except ApiError as fault:
        yield _error(fault)
    except JobError as fault:
        yield _error(from_job(fault))
    except FileNotFoundError:
        yield _error(ApiError(404, "not_found", "The pictures were removed."))
    finally:
        await give_up(jobs, job)


def usage(job: Job) -> dict[str, Any]:
    """What stands for tokens here: words of the prompt, pictures that were given, and rows that the network computed."""
    words = len(str(job.request.get("prompt", "")).split())
    given = sum(1 for name in ("image", "mask") if job.request.get(name))
    rows = int(job.result.get("rows") or 0)
    return {
        "input_tokens": words + given,
        "input_tokens_details": {"text_tokens": words, "image_tokens": given},
        "output_tokens": rows,
        "output_tokens_details": {"text_tokens": 0, "image_tokens": rows},
        "total_tokens": words + given + rows,
    }


async def _bytes(jobs: Jobs, artifact: Artifact) -> bytes:
    return b"".join([piece async for piece in jobs.read(artifact)])


def _about(job: Job) -> dict[str, Any]:
    extra = job.request.get("extra", {})
    about = {
        "background": "opaque",
        "output_format": job.request["output"]["format"],
        "quality": extra.get("quality", "medium"),
        "size": job.request["size"],
    }
    if extra.get("safety_identifier"):
        about["safety_identifier"] = extra["safety_identifier"]
    return about


def _event(kind: str, job: Job, picture: bytes, **more: Any) -> bytes:
    body = {"type": kind, "b64_json": base64.b64encode(picture).decode(), "created_at": int(time.time()), **_about(job), **more}
    return _sse(kind, body)


def _error(fault: ApiError) -> bytes:
    kind = "server_error" if fault.status >= 500 else "invalid_request_error"
    error = {"message": fault.message, "type": kind, "param": fault.param, "code": fault.code}
    return _sse("error", {"type": "error", "error": error})


def _sse(name: str, body: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(body, separators=(',', ':'))}\n\n".encode()
