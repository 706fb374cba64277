"""The objects that the media routes give, for the API's description. `views` makes them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """What was wrong. `param` names the part of the request, `code` is for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Every error of the API."""

    error: ErrorDetail


class JobFaultObject(BaseModel):
    """Why a job failed."""

    code: str
    message: str


class VideoObject(BaseModel):
    """A clip, from its order to its end."""

    id: str
    object: Literal["video"]
    created_at: int
    started_at: int | None
    completed_at: int | None
    expires_at: int | None
    status: Literal["queued", "in_progress", "completed", "failed"]
    progress: int
    model: str
    prompt: str | None
    seconds: str
    size: str
    remixed_from_video_id: str | None
    error: JobFaultObject | None
    seed: int | None
    steps: int | None
    fps: float | None
    revised_prompt: str | None
    warnings: list[str]


class PictureJobObject(BaseModel):
    """A job of `n` pictures, from its order to its end."""

    id: str
    object: Literal["image.job"]
    created_at: int
    started_at: int | None
    completed_at: int | None
    expires_at: int | None
    status: Literal["queued", "in_progress", "completed", "failed"]
    progress: int
    model: str
    prompt: str | None
    size: str
    n: int
    output_format: str
    seed: int | None
    steps: int | None
    revised_prompt: str | None
    warnings: list[str]
    error: JobFaultObject | None


class Listed(BaseModel):
    """A page of a list; `after=last_id` asks for the next one."""

    object: Literal["list"]
    first_id: str | None
    last_id: str | None
    has_more: bool


class VideoList(Listed):
    """A page of clips."""

    data: list[VideoObject]


class PictureJobList(Listed):
    """A page of jobs of pictures."""

    data: list[PictureJobObject]


class PictureObject(BaseModel):
    """A picture of an answer: in it, or at a URL that opens without a key for an hour."""

    b64_json: str | None = None
    url: str | None = None
    revised_prompt: str | None = None


class PicturesObject(BaseModel):
    """The answer to a call that waited for its pictures."""

    created: int
    data: list[PictureObject]
    background: Literal["opaque"]
    output_format: Literal["png", "webp", "jpeg"]
    quality: str
    size: str
    usage: dict[str, Any]
    warnings: list[str]


class FileObject(BaseModel):
    """A file that was uploaded or that a batch made."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]


class FileList(Listed):
    """A page of files."""

    data: list[FileObject]


class Deleted(BaseModel):
    """It is gone."""

    id: str
    object: str
    deleted: bool


class BatchCounts(BaseModel):
    """Lines of a batch."""

    total: int
    completed: int
    failed: int


class BatchObject(BaseModel):
    """A batch, from its order to its end."""

    id: str
    object: Literal["batch"]
    endpoint: str
    model: str | None
    errors: dict[str, Any] | None
    input_file_id: str
    completion_window: str
    status: Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int | None
    completed_at: int | None
    failed_at: int | None
    cancelled_at: int | None
    request_counts: BatchCounts
    metadata: dict[str, str] | None


class BatchList(Listed):
    """A page of batches."""

    data: list[BatchObject]
