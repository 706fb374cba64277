"""`/v1/files`: what clients send for later (input of batches, pictures to start from) and what batches leave."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from .auth import require_key
from .errors import ApiError
from .jobs.uploads import Upload
from .media.content import Content, respond
from .media.forms import OVERHEAD_BYTES, read_form
from .media.jobs import jobs_of, tenant_of
from .media.schemas import Deleted, FileList, FileObject
from .media.views import listed
from .openapi import answers, gives, gives_file, links_from, takes
from .service import Gateway

router = APIRouter(prefix="/v1/files", tags=["files"], dependencies=[Depends(require_key)])

SHOWN_TYPES = frozenset({"application/json", "application/jsonl", "text/plain", "image/png", "image/jpeg", "image/webp", "image/gif"})
"""Media types that are given back as they were said; everything else is just bytes."""
LONGEST_NAME = 255
LINKS = links_from("id", "file_id", ("retrieve_file", "delete_file", "download_file"))

FileId = Annotated[str, Path(max_length=150)]
Purpose = Literal["batch", "vision", "user_data"]


class ExpiresAfter(BaseModel):
    """How long the file is kept, from now on; at most the server's own `jobs.uploads_s`."""

    model_config = ConfigDict(extra="ignore")

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=3600, le=2_592_000)]


class FileBody(BaseModel):
    """`POST /v1/files`. The part `file` is not among the fields."""

    model_config = ConfigDict(extra="ignore")

    purpose: Purpose
    expires_after: ExpiresAfter | None = None


@router.post(
    "",
    operation_id="create_file",
    response_model=None,
    responses={200: gives(FileObject, links=LINKS), **answers(400, 404, 413, 415, 507)},
    openapi_extra=takes(FileBody, ["file"], json=False),
)
async def create_file(request: Request) -> dict[str, Any]:
    """Keep a file."""
    gateway = Gateway.of(request)
    gateway.require_open()
    jobs = jobs_of(request)
    async with read_form(request, gateway.settings.jobs.upload_bytes + OVERHEAD_BYTES) as form:
        body = form.parse(FileBody)
        file = form.file("file")
        if file is None:
            raise ApiError(400, "missing_required_parameter", "Missing required parameter: 'file'.", param="file")
        data = await file.read()
        name, kind = _name(file.filename), _media_type(file.content_type)
    limit = gateway.settings.jobs.upload_bytes
    if len(data) > limit:
        raise ApiError(413, "request_too_large", f"The file has {len(data)} bytes; {limit} are accepted.", param="file")
    if not data:
        raise ApiError(400, "empty_file", "The file is empty.", param="file")
    upload = await jobs.uploads.add(
        tenant_of(request),
        data,
        time.time(),
        filename=name,
        purpose=body.purpose,
        content_type=kind,
        keep_s=float(body.expires_after.seconds) if body.expires_after is not None else None,
    )
    return _shown(upload)


@router.get("", operation_id="list_files", response_model=None, responses={200: gives(FileList), **answers(400, 404)})
async def list_files(
    request: Request,
    after: Annotated[str | None, Query(max_length=150)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    order: Literal["asc", "desc"] = "desc",
    purpose: Literal["batch", "vision", "user_data", "batch_output"] | None = None,
) -> dict[str, Any]:
    """The files that this key sent; with the purpose `batch_output` those that its batches left."""
    found = await jobs_of(request).uploads.list(
        tenant_of(request), time.time(), purpose=purpose, after=after, limit=limit, descending=order == "desc"
    )
    return listed([_shown(upload) for upload in found.uploads], has_more=found.has_more)


@router.get("/{file_id}", operation_id="retrieve_file", response_model=None, responses={200: gives(FileObject), **answers(404)})
async def retrieve_file(file_id: FileId, request: Request) -> dict[str, Any]:
    """A file's description."""
    return _shown(await _find(request, file_id))


@router.delete("/{file_id}", operation_id="delete_file", response_model=None, responses={200: gives(Deleted), **answers(404, 409)})
async def delete_file(file_id: FileId, request: Request) -> dict[str, Any]:
    """Remove a file."""
    upload = await _find(request, file_id)
    if not await jobs_of(request).uploads.delete(upload.tenant, upload.id, time.time()):
        if upload.purpose == "batch_output":
            raise ApiError(409, "file_in_use", "A batch's files go with the batch: they cannot be removed alone.", param="file_id")
        raise _none(file_id)
    return {"id": upload.id, "object": "file", "deleted": True}


@router.head("/{file_id}/content", include_in_schema=False)
@router.get(
    "/{file_id}/content",
    operation_id="download_file",
    response_model=None,
    responses={
        200: gives_file("application/octet-stream", *sorted(SHOWN_TYPES)),
        206: gives_file("application/octet-stream", *sorted(SHOWN_TYPES)),
        304: {"description": "It is still what `if-none-match` says."},
        **answers(404, 416),
    },
)
async def download_file(file_id: FileId, request: Request) -> Response:
    """A file's bytes."""
    upload = await _find(request, file_id)
    uploads = jobs_of(request).uploads
    content = Content(
        size=upload.size,
        etag=upload.sha256,
        content_type=upload.content_type if upload.content_type in SHOWN_TYPES else "application/octet-stream",
        filename=upload.filename,
        read=lambda start, end: uploads.read(upload, start=start, end=end),
    )
    return await respond(request, content)


async def _find(request: Request, file_id: str) -> Upload:
    upload = await jobs_of(request).uploads.get(tenant_of(request), file_id, time.time())
    if upload is None:
        raise _none(file_id)
    return upload


def _none(file_id: str) -> ApiError:
    return ApiError(404, "file_not_found", f"There is no file '{file_id[:100]}'.", param="file_id")


def _shown(upload: Upload) -> dict[str, Any]:
    return {
        "id": upload.id,
        "object": "file",
        "bytes": upload.size,
        "created_at": int(upload.created_at),
        "expires_at": int(upload.expires_at),
        "filename": upload.filename,
        "purpose": upload.purpose,
        "status": "processed",
    }


def _name(said: str | None) -> str:
    """The last part of the name that the client gave, without what no file name has."""
    name = re.sub(r"[\x00-\x1f\x7f]", "", (said or "").replace("\\", "/").rpartition("/")[2]).strip()
    name = name.encode(errors="replace").decode()
    return name[-LONGEST_NAME:] or "file"


def _media_type(said: str | None) -> str:
    kind = (said or "").partition(";")[0].strip().lower()
    return kind if re.fullmatch(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,80}", kind) else "application/octet-stream"
