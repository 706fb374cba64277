"""Pictures that come with a request: checked, and kept as uploads, where the job that starts from them finds them, in whichever process."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

import pybase64
from starlette.datastructures import UploadFile

from ..errors import ApiError
from ..jobs.errors import JobFailedError
from ..jobs.handlers.pictures import encode, fit, read_picture
from .bodies import Reference
from .forms import Form
from .target import Target

if TYPE_CHECKING:
    from ..jobs.service import Jobs

PURPOSE = "vision"
KEPT_S = 7 * 86_400.0
"""A picture must outlive the wait of its job."""

_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+)?(;[a-z-]+=[^;,]*)*;base64,", re.ASCII | re.IGNORECASE)


async def keep_reference(jobs: Jobs, tenant: str, target: Target, form: Form, reference: Reference | None, key: str | None) -> str | None:
    """The upload of a clip's `input_reference`: a file of the form, a data URL, or an upload already. None: there is none.

    `key` is the idempotency key: with it the same picture has the same id. Raises a 400 or 404 `ApiError`.
    """
    param = "input_reference"
    file = form.file(param)
    if file is None and reference is None:
        return None
    _require_edits(target, param)
    if file is not None:
        return await _keep(jobs, tenant, await file.read(), param, key)
    assert reference is not None
    if (reference.image_url is None) == (reference.file_id is None):
        raise ApiError(400, "invalid_value", "input_reference needs either image_url or file_id.", param=param)
    if reference.image_url is not None:
        return await _keep(jobs, tenant, _from_data_url(reference.image_url, param), param, key)
    upload = await jobs.uploads.get(tenant, reference.file_id or "", time.time())
    if upload is None:
        raise ApiError(404, "file_not_found", f"There is no file '{(reference.file_id or '')[:100]}'.", param=f"{param}.file_id")
    await _check(await jobs.uploads.data(upload), param)
    return upload.id


async def keep_pictures(jobs: Jobs, tenant: str, target: Target, form: Form, key: str | None) -> str:
    """The upload of the first `image` of an edit; the models take one. Raises a 400 `ApiError`."""
    files = form.files.get("image", [])
    if not files:
        raise ApiError(400, "missing_required_parameter", "Missing required parameter: 'image', a file.", param="image")
    _require_edits(target, "image")
    if len(files) > 1:
        raise ApiError(400, "not_supported", f"The model '{target.lane}' starts from one picture, not from {len(files)}.", param="image")
    return await _keep(jobs, tenant, await files[0].read(), "image", key)


async def keep_mask(jobs: Jobs, tenant: str, form: Form, key: str | None) -> str | None:
    """The upload of an edit's `mask`, if there is one. Raises a 400 `ApiError`."""
    file: UploadFile | None = form.file("mask")
    return None if file is None else await _keep(jobs, tenant, await file.read(), "mask", key)


async def convert(data: bytes, picture_format: str, quality: int, size: tuple[int, int]) -> bytes:
    """A picture in another format, fitted into (width, height)."""

    def work() -> bytes:
        return encode(fit(read_picture(data)[None], *size)[0], picture_format, quality)

    return await asyncio.to_thread(work)


async def _keep(jobs: Jobs, tenant: str, data: bytes, param: str, key: str | None) -> str:
    await _check(data, param)
    upload = await jobs.uploads.add(
        tenant,
        data,
        time.time(),
        filename=f"{param}.bin",
        purpose=PURPOSE,
        content_type="application/octet-stream",
        keep_s=KEPT_S,
        once=key,
    )
    return upload.id


async def _check(data: bytes, param: str) -> None:
    """It must be a picture, and of a bearable size once unpacked."""
    try:
        await asyncio.to_thread(read_picture, data)
    except JobFailedError as error:
        raise ApiError(400, "invalid_image", str(error), param=param) from None


def _from_data_url(url: str, param: str) -> bytes:
    match = _DATA_URL.match(url)
    if match is None:
        message = "image_url must be a data URL ('data:image/png;base64,…'): this server fetches nothing from elsewhere."
        raise ApiError(400, "not_supported", message, param=f"{param}.image_url")
    try:
        return pybase64.b64decode(url[match.end() :].encode("ascii", "replace"), validate=True)
    except ValueError:
        raise ApiError(400, "invalid_value", "image_url is no valid base64.", param=f"{param}.image_url") from None


def _require_edits(target: Target, param: str) -> None:
    if not target.media.edits:
        raise ApiError(400, "not_supported", f"The model '{target.lane}' cannot start from a picture.", param=param)
