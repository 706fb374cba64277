"""`/v1/images`: pictures, made while the caller waits, streamed as they emerge, or as jobs that are asked for later."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from .auth import require_key
from .errors import ApiError
from .jobs.job import Job, JobKind, JobStatus, NewJob
from .media.answers import picture_answer, picture_events, pictures_of
from .media.bodies import EditBody, ImageBody, image_request, new_seed
from .media.content import Content, GeneratedResponse, respond
from .media.engines import target_for
from .media.forms import OVERHEAD_BYTES, read_form
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
from .media.pictures import keep_mask, keep_pictures
from .media.schemas import Deleted, PictureJobList, PictureJobObject, PicturesObject
from .media.views import page, picture_job
from .openapi import answers, gives, gives_file, links_from, takes
from .service import Gateway

router = APIRouter(prefix="/v1/images", tags=["images"])
KEY = [Depends(require_key)]

PICTURE_TYPES = ("image/png", "image/webp", "image/jpeg")
LINKS = links_from("id", "image_id", ("retrieve_image", "delete_image", "download_image"))
MADE = {
    200: {
        "description": "The pictures; with `stream` their events.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "model": PicturesObject,
    },
    202: gives(PictureJobObject, "With `Prefer: respond-async`: the job, to be asked for later.", LINKS),
    **answers(400, 404, 409, 413, 415, 429, 500, 504, 507),
}

ImageId = Annotated[str, Path(max_length=100)]


@router.post(
    "/generations",
    operation_id="create_image",
    response_model=None,
    dependencies=KEY,
    responses=MADE,
    openapi_extra=takes(ImageBody),
)
async def create_image(request: Request) -> Response:
    """Make pictures and wait for them. Going away cancels them, unless `Prefer: respond-async` asks for the job alone."""
    return await _answer(request, *await _order(request, ImageBody), "image_generation")


@router.post(
    "/edits",
    operation_id="edit_image",
    response_model=None,
    dependencies=KEY,
    responses=MADE,
    openapi_extra=takes(EditBody, ["mask"], lists=["image"], json=False),
)
async def edit_image(request: Request) -> Response:
    """Make pictures that start from another: the first `image` of the form. Where the `mask` is opaque it stays as it is."""
    return await _answer(request, *await _order(request, EditBody), "image_edit")


@router.post("/variations", operation_id="vary_image", response_model=None, dependencies=KEY, responses=answers(400))
async def vary_image() -> Response:
    """Not possible (OpenAI's own does not accept requests any more, either); says so."""
    message = "There are no variations. Use POST /v1/images/edits with a prompt, or POST /v1/images/generations with another seed."
    raise ApiError(400, "not_supported", message)


@router.get(
    "", operation_id="list_images", response_model=None, dependencies=KEY, responses={200: gives(PictureJobList), **answers(400, 404)}
)
async def list_images(
    request: Request,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
) -> JSONResponse:
    """The jobs of pictures of this key, the newest first. (Not in OpenAI's API.)"""
    found = await list_jobs(request, JobKind.IMAGE, after, limit, order)
    return JSONResponse(page(found, picture_job), headers=poll_header(found.jobs))


@router.head("/content/{token}/{name}", include_in_schema=False)
@router.get("/content/{token}/{name}", name="open_picture", include_in_schema=False)
async def open_picture(token: str, name: str, request: Request) -> Response:
    """A picture by the URL that an answer gave: no key is needed."""
    link = Gateway.of(request).links.read(token)
    gone = ApiError(404, "not_found", "This link has expired, or never was one.")
    if link is None or link.name != name:
        raise gone
    jobs = jobs_of(request)
    job = await jobs.get(link.tenant, link.job_id)
    artifact = await jobs.artifact(job, link.name) if job is not None and job.status is JobStatus.COMPLETED else None
    if job is None or artifact is None:
        raise gone
    return await respond(request, content_of(jobs, job, artifact))


@router.get(
    "/{image_id}",
    operation_id="retrieve_image",
    response_model=None,
    dependencies=KEY,
    responses={200: gives(PictureJobObject), **answers(404)},
)
async def retrieve_image(image_id: ImageId, request: Request) -> JSONResponse:
    """A job of pictures as it stands. (Not in OpenAI's API.)"""
    return _shown(await find(request, JobKind.IMAGE, image_id))


@router.delete(
    "/{image_id}", operation_id="delete_image", response_model=None, dependencies=KEY, responses={200: gives(Deleted), **answers(404)}
)
async def delete_image(image_id: ImageId, request: Request) -> dict[str, Any]:
    """Remove a job of pictures and its files. One that is being made stops at its next step. (Not in OpenAI's API.)"""
    job = await find(request, JobKind.IMAGE, image_id)
    if not await jobs_of(request).delete(job.tenant, job.id):
        raise no_job(JobKind.IMAGE, image_id)
    return {"id": job.id, "object": "image.deleted", "deleted": True}


@router.head("/{image_id}/content", include_in_schema=False, dependencies=KEY)
@router.get(
    "/{image_id}/content",
    operation_id="download_image",
    response_model=None,
    dependencies=KEY,
    responses={
        200: gives_file(*PICTURE_TYPES),
        206: gives_file(*PICTURE_TYPES),
        304: {"description": "It is still what `if-none-match` says."},
        **answers(400, 404, 409, 416),
    },
)
async def download_image(
    image_id: ImageId,
    request: Request,
    index: Annotated[int, Query(ge=0, le=9)] = 0,
    variant: Literal["image", "preview"] = "image",
) -> Response:
    """One of a job's pictures, or (`preview`) what it looks like so far. (Not in OpenAI's API.)"""
    job = await find(request, JobKind.IMAGE, image_id)
    if variant == "preview":
        return await show_preview(request, job)
    return await respond(request, _content(request, job, index))


def _content(request: Request, job: Job, index: int) -> Content:
    if job.status is not JobStatus.COMPLETED:
        raise not_completed(job)
    pictures = pictures_of(job)
    if index >= len(pictures):
        raise ApiError(404, "not_found", f"'{job.id}' has {len(pictures)} pictures; the first has the index 0.", param="index")
    return content_of(jobs_of(request), job, pictures[index])


async def _order(request: Request, kind: type[ImageBody]) -> tuple[Job, ImageBody]:
    """The job that the body asks for, and the body."""
    gateway = Gateway.of(request)
    jobs = jobs_of(request)
    settings = gateway.settings.jobs
    tenant, key = tenant_of(request), idempotency_key(request)
    async with read_form(request, settings.upload_bytes + OVERHEAD_BYTES) as form:
        body = form.parse(kind)
        target = target_for(gateway, body.model or "", JobKind.IMAGE)
        seed = new_seed(body.seed, tenant, key)
        asked = image_request(body, target, seed)
        image = mask = None
        if kind is EditBody:
            image = await keep_pictures(jobs, tenant, target, form, key)
            mask = await keep_mask(jobs, tenant, form, key)
    job = await submit(
        request,
        NewJob(
            tenant=tenant,
            kind=JobKind.IMAGE,
            lane=target.lane,
            model=target.model,
            request={**asked, "image": image, "mask": mask},
            priority=body.priority,
            idempotency_key=key,
            expires_after=settings.expires_s,
            webhook=body.webhook_url,
            max_attempts=settings.max_attempts,
        ),
    )
    return job, body


async def _answer(request: Request, job: Job, body: ImageBody, kind: str) -> Response:
    """The job alone, its events, or its pictures."""
    gateway = Gateway.of(request)
    jobs = jobs_of(request)
    if "respond-async" in request.headers.get("prefer", "").lower():
        answer = _shown(job)
        answer.status_code = 202
        answer.headers["preference-applied"] = "respond-async"
        return answer
    if body.stream:
        events = picture_events(jobs, job, kind, gateway.settings.jobs.sync_s)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no", "x-image-id": job.id}
        return GeneratedResponse(events, media_type="text/event-stream", headers=headers)
    try:
        done = await wait_for(request, job, gateway.settings.jobs.sync_s)
    except ConnectionError:
        return Response(status_code=499)
    return JSONResponse(await picture_answer(request, jobs, done, gateway.links), headers={"x-image-id": job.id})


def _shown(job: Job) -> JSONResponse:
    return JSONResponse(picture_job(job), headers=poll_header((job,)))
