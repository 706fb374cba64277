"""Files that clients send (`/v1/files`, pictures to start from) and that batches leave. They live in the artifact store alone: the data,
and beside it a small file that says what it is and makes it exist.

    {tenant}/uploads/{id}/data     written first, removed last
    {tenant}/uploads/{id}/about    JSON of `Upload`

The files of a batch are artifacts of its job, under the names `file-{job}-output` and `file-{job}-errors`: they exist if and only if the
batch is completed, and go with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from .artifacts import FileStore
from .errors import JobFailedError
from .interface import JobStore
from .job import Artifact, Job, JobKind, JobStatus

BATCH_FILES = {"output": "output.jsonl", "errors": "errors.jsonl"}
"""What a batch leaves: the end of the file's id, and the artifact's name."""

_ID = re.compile(r"file-[0-9a-f]{27}")
_BATCH_ID = re.compile(r"file-(batch_[A-Za-z0-9_-]{1,80})-(output|errors)")
_PAGE = 100


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """A file. Times are Unix seconds. Ids sort by the time of their making, but for those of `add(once=)`."""

    id: str
    tenant: str
    filename: str
    purpose: str
    size: int
    sha256: str
    content_type: str
    created_at: float
    expires_at: float
    key: str
    """Where the artifact store keeps the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPage:
    """A page of a list, in the asked order."""

    uploads: tuple[Upload, ...]
    has_more: bool


class Uploads:
    """See the module's docstring. `keep_s`: how long an upload is kept, in seconds."""

    def __init__(self, files: FileStore, jobs: JobStore, *, keep_s: float) -> None:
        self._files = files
        self._jobs = jobs
        self._keep_s = keep_s

    async def add(
        self,
        tenant: str,
        data: bytes | Path,
        now: float,
        *,
        filename: str,
        purpose: str,
        content_type: str,
        keep_s: float | None = None,
        once: str | None = None,
    ) -> Upload:
        """Keep a file. The same bytes with the same `once` are kept but once. Raises `JobFailedError("storage_failed")`."""
        if once is not None:
            return await self._add_once(
                tenant, data, now, once, filename=filename, purpose=purpose, content_type=content_type, keep_s=keep_s
            )
        upload_id = f"file-{int(now * 1000):011x}{secrets.token_hex(8)}"
        return await self._add(tenant, upload_id, data, now, filename=filename, purpose=purpose, content_type=content_type, keep_s=keep_s)

    async def _add_once(self, tenant: str, data: bytes | Path, now: float, once: str, **about: Any) -> Upload:
        whole = data if isinstance(data, bytes) else await asyncio.to_thread(data.read_bytes)
        digest = hashlib.sha256(once.encode() + b"\n" + whole)
        upload_id = f"file-{digest.hexdigest()[:27]}"
        if (known := await self.get(tenant, upload_id, now)) is not None:
            return known
        try:
            return await self._add(tenant, upload_id, data, now, **about)
        except JobFailedError:
            if (known := await self.get(tenant, upload_id, now)) is not None:  # somebody else was quicker
                return known
            raise

    async def _add(
        self,
        tenant: str,
        upload_id: str,
        data: bytes | Path,
        now: float,
        *,
        filename: str,
        purpose: str,
        content_type: str,
        keep_s: float | None,
    ) -> Upload:
        folder = f"{tenant}/uploads/{upload_id}"
        kept = await self._files.put(f"{folder}/data", data, content_type)
        upload = Upload(
            id=upload_id,
            tenant=tenant,
            filename=filename,
            purpose=purpose,
            size=kept.size,
            sha256=kept.sha256,
            content_type=content_type,
            created_at=now,
            expires_at=now + (self._keep_s if keep_s is None else min(keep_s, self._keep_s)),
            key=kept.key,
        )
        await self._files.put(f"{folder}/about", msgspec.json.encode(upload), "application/json")
        return upload

    async def get(self, tenant: str, upload_id: str, now: float) -> Upload | None:
        """A file of this tenant, one of its batches' included; None when there is none (any more)."""
        if match := _BATCH_ID.fullmatch(upload_id):
            job = await self._jobs.get(match[1], tenant=tenant)
            return batch_file(job, match[2]) if job is not None else None
        if _ID.fullmatch(upload_id) is None:
            return None
        about = await self._files.get(f"{tenant}/uploads/{upload_id}/about")
        try:
            upload = msgspec.json.decode(about, type=Upload) if about is not None else None
        except msgspec.DecodeError:
            return None  # not ours
        return upload if upload is not None and upload.expires_at > now else None

    async def list(
        self, tenant: str, now: float, *, purpose: str | None = None, after: str | None = None, limit: int = 100, descending: bool = True
    ) -> UploadPage:
        """A page of what the tenant sent. With the purpose "batch_output": what its batches left."""
        if purpose == "batch_output":
            return await self._batch_files(tenant, after=after, limit=limit, descending=descending)
        ids = {key.split("/")[2] for key, _ in await self._files.keys(f"{tenant}/uploads") if key.endswith("/about")}
        found: list[Upload] = []
        for upload_id in sorted(ids, reverse=descending):
            if after is not None and (upload_id >= after if descending else upload_id <= after):
                continue
            upload = await self.get(tenant, upload_id, now)
            if upload is not None and purpose in (None, upload.purpose):
                if len(found) == limit:
                    return UploadPage(uploads=tuple(found), has_more=True)
                found.append(upload)
        return UploadPage(uploads=tuple(found), has_more=False)

    async def _batch_files(self, tenant: str, *, after: str | None, limit: int, descending: bool) -> UploadPage:
        found: list[Upload] = []
        last: str | None = None
        passed = after is None
        while True:
            page = await self._jobs.list(tenant, JobKind.BATCH, after=last, limit=_PAGE, descending=descending)
            for job in page.jobs:
                for end in BATCH_FILES:
                    upload = batch_file(job, end)
                    if upload is None:
                        continue
                    if not passed:
                        passed = upload.id == after
                        continue
                    if len(found) == limit:
                        return UploadPage(uploads=tuple(found), has_more=True)
                    found.append(upload)
            if not page.has_more or not page.jobs:
                return UploadPage(uploads=tuple(found), has_more=False)
            last = page.jobs[-1].id

    async def delete(self, tenant: str, upload_id: str, now: float) -> bool:
        """Remove a file that was sent; False when there is none. A batch's files go with the batch: they cannot be removed alone."""
        if _ID.fullmatch(upload_id) is None or await self.get(tenant, upload_id, now) is None:
            return False
        await self.forget(tenant, upload_id)
        return True

    async def forget(self, tenant: str, upload_id: str) -> None:
        """Remove what says that the file is there, then the file."""
        folder = f"{tenant}/uploads/{upload_id}"
        await self._files.remove_keys([f"{folder}/about", f"{folder}/data"])

    def read(self, upload: Upload, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`. Raises `FileNotFoundError` when it was removed meanwhile."""
        return self._files.read(upload.key, start=start, end=end)

    async def data(self, upload: Upload) -> bytes:
        """All of it. Raises `FileNotFoundError`."""
        return b"".join([piece async for piece in self.read(upload)])


def batch_file(job: Job, end: str) -> Upload | None:
    """The file of a completed batch whose id ends in `end`; None when it left none."""
    artifact = next((artifact for artifact in job.artifacts if artifact.name == BATCH_FILES[end]), None)
    if artifact is None or job.status is not JobStatus.COMPLETED:
        return None
    return _upload_of(job, artifact, end)


def batch_file_id(job_id: str, end: str) -> str:
    """The id of a batch's file: `end` is "output" or "errors"."""
    return f"file-{job_id}-{end}"


def _upload_of(job: Job, artifact: Artifact, end: str) -> Upload:
    made = job.finished_at or job.created_at
    return Upload(
        id=batch_file_id(job.id, end),
        tenant=job.tenant,
        filename=f"{job.id}_{artifact.name}",
        purpose="batch_output",
        size=artifact.size,
        sha256=artifact.sha256,
        content_type=artifact.content_type,
        created_at=made,
        expires_at=job.expires_at or made + job.expires_after,
        key=artifact.key,
    )
