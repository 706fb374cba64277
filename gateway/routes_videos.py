"""`/v1/videos`: clips as durable jobs, in OpenAI's shapes, with more on top (seeds, ranges, idempotency, previews)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from .auth import require_key
from .errors import ApiError
from .jobs.job import Job, JobKind, JobStatus, NewJob
from .media.bodies import RemixBody, VideoBody, new_seed, video_request
from .media.content import Content, respond
from .media.engines import media_targets, target_for
from .media.forms import OVERHEAD_BYTES, PICTURE_JSON_BYTES, read_body, read_form
from .media.jobs import (
    content_of,
    find,
    idempotency_key,
    jobs_of,
    list_jobs,
    no_job,
    not_completed,
    poll_header,
    show_preview,
    submit,
    tenant_of,
    wait_for,
)
from .media.pictures import keep_reference
from .media.schemas import Deleted, VideoList, VideoObject
from .media.views import page, video
from .openapi import answers, gives, gives_file, links_from, takes
from .service import Gateway

router = APIRouter(prefix="/v1/videos", tags=["videos"], dependencies=[Depends(require_key)])

FILES = {"video": "video.mp4", "thumbnail": "thumbnail.webp", "spritesheet": "spritesheet.jpg"}
"""The artifact of each variant of a clip."""
LINKS = links_from("id", "video_id", ("retrieve_video", "delete_video", "download_video", "remix_video"))

VideoId = Annotated[str, Path(max_length=100)]


@router.post(
    "",
    operation_id="create_video",
    response_model=None,
    responses={200: gives(VideoObject, links=LINKS), **answers(400, 404, 409, 413, 415, 429, 507)},
    openapi_extra=takes(VideoBody, files=["input_reference"]),
)
async def create_video(request: Request) -> JSONResponse:
    """Order a clip. The answer comes at once; ask for its `status`, or have `webhook_url` told."""
    return _shown(await _order(request))


@router.get("", operation_id="list_videos", response_model=None, responses={200: gives(VideoList), **answers(400, 404)})
async def list_videos(
    request: Request,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
) -> JSONResponse:
    """The clips of this key, the newest first. `after` is the `last_id` of the page before."""
    found = await list_jobs(request, JobKind.VIDEO, after, limit, order)
    return JSONResponse(page(found, video), headers=poll_header(found.jobs))


@router.post(
    "/sync",
    operation_id="create_video_sync",
    response_model=None,
    responses={200: gives_file("video/mp4"), **answers(400, 404, 409, 413, 415, 429, 500, 504, 507)},
    openapi_extra=takes(VideoBody, files=["input_reference"]),
)
async def create_video_sync(request: Request) -> Response:
    """Order a clip and wait for it: the answer is the MP4 file. Going away cancels it."""
    gateway = Gateway.of(request)
    try:
        job = await wait_for(request, await _order(request), gateway.settings.jobs.sync_s)
    except ConnectionError:
        return Response(status_code=499)
    headers = {"x-video-id": job.id, "x-seed": str(job.request["seed"])}
    if job.started_at is not None and job.finished_at is not None:
        headers["x-inference-time-s"] = f"{job.finished_at - job.started_at:.3f}"
    answer = await respond(request, await _content(request, job, "video"))
    answer.headers.update(headers)
    return answer


@router.post("/edits", operation_id="edit_video", response_model=None, responses=answers(400))
async def edit_video() -> Response:
    """Not possible with the models of this server; says so."""
    message = (
        "No model here changes a clip that exists. A remix (POST /v1/videos/{id}/remix) draws it anew, with its seed and another prompt."
    )
    raise ApiError(400, "not_supported", message)


@router.post("/extensions", operation_id="extend_video", response_model=None, responses=answers(400))
async def extend_video() -> Response:
    """Not possible with the models of this server; says so."""
    raise ApiError(400, "not_supported", "No model here goes on with a clip that exists. Ask for a longer one with 'seconds'.")


@router.post("/characters", operation_id="create_video_character", response_model=None, responses=answers(400))
async def create_character() -> Response:
    """Not possible with the models of this server; says so."""
    raise ApiError(400, "not_supported", "No model here knows characters. Describe them in the prompt.")


@router.get("/{video_id}", operation_id="retrieve_video", response_model=None, responses={200: gives(VideoObject), **answers(404)})
async def retrieve_video(video_id: VideoId, request: Request) -> JSONResponse:
    """A clip as it stands. One that failed is a good answer, too: `status` and `error` say so."""
    return _shown(await find(request, JobKind.VIDEO, video_id))


@router.delete("/{video_id}", operation_id="delete_video", response_model=None, responses={200: gives(Deleted), **answers(404)})
async def delete_video(video_id: VideoId, request: Request) -> dict[str, Any]:
    """Remove a clip and its files. One that is being made stops at its next step."""
    job = await find(request, JobKind.VIDEO, video_id)
    if not await jobs_of(request).delete(job.tenant, job.id):
        raise no_job(JobKind.VIDEO, video_id)
    return {"id": job.id, "object": "video.deleted", "deleted": True}


@router.head("/{video_id}/content", include_in_schema=False)
@router.get(
    "/{video_id}/content",
    operation_id="download_video",
    response_model=None,
    responses={
        200: gives_file("video/mp4", "image/webp", "image/jpeg"),
        206: gives_file("video/mp4", "image/webp", "image/jpeg"),
        304: {"description": "It is still what `if-none-match` says."},
        **answers(400, 404, 409, 416),
    },
)
async def download_video(
    video_id: VideoId, request: Request, variant: Literal["video", "thumbnail", "spritesheet", "preview"] = "video"
) -> Response:
    """A file of a clip. `preview` shows, as WebP, what it looks like so far; the others are there once it is completed."""
    job = await find(request, JobKind.VIDEO, video_id)
    if variant == "preview":
        return await show_preview(request, job)
    return await respond(request, await _content(request, job, variant))


@router.post(
    "/{video_id}/remix",
    operation_id="remix_video",
    response_model=None,
    responses={200: gives(VideoObject, links=LINKS), **answers(400, 404, 409, 413, 415, 429, 507)},
    openapi_extra=takes(RemixBody),
)
async def remix_video(video_id: VideoId, request: Request) -> JSONResponse:
    """Order a clip like a completed one, from the same noise (its seed), with another prompt."""
    body = await read_body(request, RemixBody)
    source = await find(request, JobKind.VIDEO, video_id)
    if source.status is not JobStatus.COMPLETED:
        raise not_completed(source)
    if source.lane not in media_targets(Gateway.of(request)):
        raise ApiError(404, "model_not_found", f"The model '{source.model}' that made it is not served any more.", param="video_id")
    asked = {**source.request, "prompt": body.prompt}
    settings = Gateway.of(request).settings.jobs
    new = NewJob(
        tenant=source.tenant,
        kind=JobKind.VIDEO,
        lane=source.lane,
        model=source.model,
        request=asked,
        priority=source.priority,
        idempotency_key=idempotency_key(request),
        remixed_from=source.id,
        expires_after=settings.expires_s,
        max_attempts=settings.max_attempts,
    )
    return _shown(await submit(request, new))


async def _order(request: Request) -> Job:
    """The job that the body asks for."""
    gateway = Gateway.of(request)
    jobs = jobs_of(request)
    settings = gateway.settings.jobs
    tenant, key = tenant_of(request), idempotency_key(request)
    async with read_form(request, settings.upload_bytes + OVERHEAD_BYTES, json_limit=PICTURE_JSON_BYTES) as form:
        body = form.parse(VideoBody)
        target = target_for(gateway, body.model, JobKind.VIDEO)
        seed = new_seed(body.seed, tenant, key)
        asked = video_request(body, target, seed)
        image = await keep_reference(jobs, tenant, target, form, body.input_reference, key)
    return await submit(
        request,
        NewJob(
            tenant=tenant,
            kind=JobKind.VIDEO,
            lane=target.lane,
            model=target.model,
            request={**asked, "image": image},
            priority=body.priority,
            idempotency_key=key,
            expires_after=settings.expires_s,
            webhook=body.webhook_url,
            max_attempts=settings.max_attempts,
        ),
    )


async def _content(request: Request, job: Job, variant: str) -> Content:
    jobs = jobs_of(request)
    if job.status is not JobStatus.COMPLETED:
        raise not_completed(job)
    artifact = await jobs.artifact(job, FILES[variant])
    if artifact is None:
        raise ApiError(404, "not_found", f"'{job.id}' has no {variant}.", param="variant")
    return content_of(jobs, job, artifact)


def _shown(job: Job) -> JSONResponse:
    return JSONResponse(video(job), headers=poll_header((job,)))
