"""`/v1/batches`: many pictures as one job, from a file of requests to a file of answers."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from .auth import require_key
from .errors import ApiError
from .jobs.job import Job, JobKind, NewJob
from .media.batches import ENDPOINTS, read_lines
from .media.bodies import Text
from .media.engines import target_for
from .media.forms import read_body
from .media.jobs import find, idempotency_key, jobs_of, list_jobs, no_job, submit, tenant_of
from .media.requests import BatchRequest
from .media.schemas import BatchList, BatchObject
from .media.views import batch, page
from .openapi import answers, gives, links_from, takes
from .service import Gateway

router = APIRouter(prefix="/v1/batches", tags=["batches"], dependencies=[Depends(require_key)])

LINKS = links_from("id", "batch_id", ("retrieve_batch", "cancel_batch"))

BatchId = Annotated[str, Path(max_length=100)]
Label = Annotated[Text, Field(max_length=64)]
Value = Annotated[Text, Field(max_length=512)]


class OutputExpiresAfter(BaseModel):
    """How long the batch and its files are kept once it has ended; at most the server's own `jobs.expires_s`."""

    model_config = ConfigDict(extra="ignore")

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3600, le=2_592_000)]


class BatchBody(BaseModel):
    """`POST /v1/batches`. The window is noted; a batch is done as soon as the engine has time for it."""

    model_config = ConfigDict(extra="ignore")

    input_file_id: Annotated[Text, Field(max_length=150)]
    endpoint: Annotated[Text, Field(max_length=100)]
    completion_window: Annotated[Text, Field(max_length=20)] = "24h"
    metadata: Annotated[dict[Label, Value], Field(max_length=16)] | None = None
    output_expires_after: OutputExpiresAfter | None = None
    priority: Annotated[int, Field(ge=-10, le=10)] = 0


@router.post(
    "",
    operation_id="create_batch",
    response_model=None,
    responses={200: gives(BatchObject, links=LINKS), **answers(400, 404, 409, 413, 415, 429)},
    openapi_extra=takes(BatchBody),
)
async def create_batch(request: Request) -> dict[str, Any]:
    """Order what an uploaded file of JSON lines asks for. A file that is no batch is refused at once, with the number of the line."""
    gateway = Gateway.of(request)
    jobs = jobs_of(request)
    tenant, key = tenant_of(request), idempotency_key(request)
    body = await read_body(request, BatchBody)
    if body.endpoint not in ENDPOINTS:
        raise ApiError(400, "not_supported", f"Batches go to {', '.join(ENDPOINTS)}, not to {body.endpoint[:80]!r}.", param="endpoint")
    upload = await jobs.uploads.get(tenant, body.input_file_id, time.time())
    if upload is None:
        raise ApiError(404, "file_not_found", f"There is no file '{body.input_file_id[:100]}'.", param="input_file_id")
    data = await jobs.uploads.data(upload)
    lines = await asyncio.to_thread(read_lines, data, body.endpoint, lambda model: target_for(gateway, model, JobKind.IMAGE))
    target = target_for(gateway, next((line["model"] for line in lines if line["request"] is not None), ""), JobKind.IMAGE)
    settings = gateway.settings.jobs
    kept = body.output_expires_after.seconds if body.output_expires_after is not None else None
    asked = BatchRequest(
        endpoint=body.endpoint,
        input_file_id=upload.id,
        completion_window=body.completion_window,
        metadata=body.metadata,
        total=len(lines),
        output_expires_s=float(kept) if kept is not None else None,
    )
    job = await submit(
        request,
        NewJob(
            tenant=tenant,
            kind=JobKind.BATCH,
            lane=target.lane,
            model=target.model,
            request=dict(asked),
            priority=body.priority,
            idempotency_key=key,
            expires_after=min(settings.expires_s, kept or settings.expires_s),
            max_attempts=settings.max_attempts,
        ),
    )
    return batch(job)


@router.get("", operation_id="list_batches", response_model=None, responses={200: gives(BatchList), **answers(400, 404)})
async def list_batches(
    request: Request,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> dict[str, Any]:
    """The batches of this key, the newest first."""
    return page(await list_jobs(request, JobKind.BATCH, after, limit, "desc"), batch)


@router.get("/{batch_id}", operation_id="retrieve_batch", response_model=None, responses={200: gives(BatchObject), **answers(404)})
async def retrieve_batch(batch_id: BatchId, request: Request) -> dict[str, Any]:
    """A batch as it stands."""
    return batch(await find(request, JobKind.BATCH, batch_id))


@router.post("/{batch_id}/cancel", operation_id="cancel_batch", response_model=None, responses={200: gives(BatchObject), **answers(404)})
async def cancel_batch(batch_id: BatchId, request: Request) -> dict[str, Any]:
    """Cancel a batch: at once while it waits, at the next step when it runs. One that has ended stays as it is."""
    job = await find(request, JobKind.BATCH, batch_id)
    cancelled: Job | None = await jobs_of(request).cancel(job.tenant, job.id)
    if cancelled is None:
        raise no_job(JobKind.BATCH, batch_id)
    return batch(cancelled)
