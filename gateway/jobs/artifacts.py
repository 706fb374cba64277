"""The files of jobs, in a folder or a bucket, through obstore. A file appears whole or not at all.

{tenant}/{yyyy}/{mm}/{job}/{attempt}/{name}    an artifact, written once
{tenant}/{yyyy}/{mm}/{job}/preview-{n}.webp    what the job looks like so far, gone when it has ended
{tenant}/{yyyy}/{mm}/{job}/work/{name}         what an attempt leaves for the next one, gone when the job has ended
{tenant}/uploads/{file}                        what a client sent
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import JobFailedError
from .job import Artifact, Job

READ_CHUNK = 256 * 1024
PAGE = 1000
"""Keys of a listing that are held at a time."""
PREVIEWS_KEPT = 8
"""Previews of a job share so many names, so that a long job does not leave many."""


def job_prefix(job: Job) -> str:
    """Where everything of a job lies."""
    made = datetime.fromtimestamp(job.created_at, UTC)
    return f"{job.tenant}/{made:%Y/%m}/{job.id}"


def artifact_key(job: Job, name: str) -> str:
    """Where this attempt of the job keeps a file."""
    return f"{job_prefix(job)}/{job.attempt}/{name}"


def preview_key(job: Job, number: int) -> str:
    """Where the job's preview `number` (1 is the first) lies."""
    return f"{job_prefix(job)}/preview-{number % PREVIEWS_KEPT}.webp"


def work_key(job: Job, name: str) -> str:
    """Where an attempt leaves something for the next one."""
    return f"{job_prefix(job)}/work/{name}"


class FileStore:
    """The `ArtifactStore` over obstore. `place` is a folder or `s3://bucket/prefix`; credentials, region and endpoint of a bucket come from
    the AWS_* environment variables."""

    def __init__(self, place: str | Path) -> None:
        self.place = str(place)
        self._folder = None if "://" in self.place else Path(self.place).expanduser()
        self._store: Any = None

    async def open(self) -> None:
        """Make the folder, or the client of the bucket. Raises `JobFailedError("storage_failed")` when that cannot be."""
        from obstore.exceptions import BaseError

        try:
            self._store = await asyncio.to_thread(self._connect)
        except (BaseError, OSError, ValueError) as error:
            raise _failed(self.place, error) from error

    def _connect(self) -> Any:
        from obstore.store import LocalStore, from_url

        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            return LocalStore(self._folder, automatic_cleanup=True)
        retries: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}
        options: Any = {"timeout": "60s", "connect_timeout": "10s"}
        if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            options["allow_http"] = True
        return from_url(self.place, client_options=options, retry_config=retries)

    # ---- writing ----------------------------------------------------------------------------------------------------

    async def put(self, key: str, data: bytes | Path, content_type: str) -> Artifact:
        """Keep a file that is never overwritten. The same bytes again are the same file; other bytes under its key, or no room, raise
        `JobFailedError("storage_failed")`."""
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            size, digest = await asyncio.to_thread(_measure, data)
            try:
                await self._write(key, data, content_type, mode="create")
            except AlreadyExistsError as error:
                if await self._digest(key) != digest:
                    raise _failed(key, error) from error
        except (BaseError, OSError) as error:
            raise _failed(key, error) from error
        return Artifact(name=key.rpartition("/")[2], key=key, size=size, sha256=digest, content_type=content_type)

    async def replace(self, key: str, data: bytes, content_type: str) -> None:
        """Keep a file that may be overwritten: previews, notes. Raises like `put`."""
        from obstore.exceptions import BaseError

        try:
            await self._write(key, data, content_type, mode="overwrite")
        except (BaseError, OSError) as error:
            raise _failed(key, error) from error

    async def _write(self, key: str, data: bytes | Path, content_type: str, *, mode: str) -> None:
        import obstore

        local = self._folder is not None
        attributes: Any = None if local else {"Content-Type": content_type}  # a folder keeps none
        await obstore.put_async(self._store, key, data, mode=mode, attributes=attributes, use_multipart=False)  # type: ignore[arg-type]
        if self._folder is not None and mode == "create":
            await asyncio.to_thread(_settle, self._folder / key)

    # ---- reading ----------------------------------------------------------------------------------------------------

    async def read(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`, piece by piece. Raises `FileNotFoundError`, `JobFailedError`."""
        import obstore
        from obstore.exceptions import BaseError

        if end is not None and end <= start:
            return
        wanted: Any = {"range": {"offset": start} if end is None else (start, end)} if start or end is not None else None
        try:
            found = await obstore.get_async(self._store, key, options=wanted)
            async for piece in found.stream(min_chunk_size=READ_CHUNK):
                yield bytes(piece)
        except BaseError as error:
            raise _failed(key, error, done="read") from error

    async def get(self, key: str) -> bytes | None:
        """A small file whole; None when there is none."""
        try:
            return b"".join([piece async for piece in self.read(key)])
        except FileNotFoundError:
            return None

    async def _digest(self, key: str) -> str:
        digest = hashlib.sha256()
        async for piece in self.read(key):
            digest.update(piece)
        return digest.hexdigest()

    # ---- tidying ----------------------------------------------------------------------------------------------------

    async def pages(self, prefix: str = "") -> AsyncIterator[list[tuple[str, float]]]:
        """(key, modified at in Unix seconds) of everything under `prefix`, a page at a time. Raises `JobFailedError`."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            async for page in obstore.list(self._store, prefix or None, chunk_size=PAGE):
                yield [(entry["path"], entry["last_modified"].timestamp()) for entry in page]
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise _failed(prefix or self.place, error, done="listed") from error

    async def keys(self, prefix: str) -> list[tuple[str, float]]:
        """(key, modified at) of everything under `prefix`."""
        return [entry async for page in self.pages(prefix) for entry in page]

    async def remove(self, prefix: str) -> int:
        """Remove everything under `prefix`; returns how many files there were. Raises `JobFailedError`."""
        removed = 0
        async for page in self.pages(prefix):
            removed += await self.remove_keys([key for key, _ in page])
        return removed

    async def remove_keys(self, keys: list[str]) -> int:
        """Remove these files; one that is gone already is no fault (a bucket counts it all the same). Raises `JobFailedError`."""
        import obstore
        from obstore.exceptions import BaseError

        if self._folder is None and keys:
            try:
                await obstore.delete_async(self._store, keys)
            except BaseError as error:
                raise _failed(keys[0], error, done="removed") from error
            return len(keys)
        removed = 0
        for key in keys:
            try:
                await obstore.delete_async(self._store, key)
                removed += 1
            except FileNotFoundError:
                continue
            except (BaseError, OSError) as error:
                raise _failed(key, error, done="removed") from error
        return removed

    async def remove_halves(self, before: float) -> int:
        """Remove what a process that was killed in the middle of a write left in the folder (no listing shows it), if it is older than
        `before`. A bucket has no such things."""
        return await asyncio.to_thread(_remove_halves, self._folder, before) if self._folder is not None else 0


def storage_place(folder: Path, artifacts: str) -> str:
    """The place that the settings name: `artifacts`, or a folder beside the database. Raises `ValueError` for an unknown scheme."""
    if not artifacts:
        return str(folder / "artifacts")
    scheme = urlsplit(artifacts).scheme if "://" in artifacts else ""
    if scheme not in ("", "s3"):
        raise ValueError(f"jobs.artifacts is {artifacts!r}: name a folder or s3://bucket/prefix")
    return artifacts


def _measure(data: bytes | Path) -> tuple[int, str]:
    """Size and SHA-256."""
    if isinstance(data, bytes):
        return len(data), hashlib.sha256(data).hexdigest()
    with data.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


def _remove_halves(folder: Path, before: float) -> int:
    removed = 0
    for path in folder.rglob("*#*"):
        if path.is_file() and path.stat().st_mtime < before:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _settle(path: Path) -> None:
    """Have the disk hold the file and its name, so that a row that says "completed" is true after a power cut as well."""
    for place, flags in ((path, os.O_RDONLY), (path.parent, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))):
        descriptor = os.open(place, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _failed(what: str, error: Exception, *, done: str = "kept") -> JobFailedError:
    reason = " ".join(str(error).partition("Debug source:")[0].split())[:300]
    return JobFailedError("storage_failed", f"The file {what} could not be {done}: {reason}")
