"""Batches: many pictures as one job, in the shape of OpenAI's Batch API.

Each line's answer is kept as soon as it is there (`work/{line}.ok` or `.bad`, below the job and not below the attempt), so that a second
attempt goes on where the first one died; at the end they become two files of JSON lines. A bad line does not fail the batch.
"""

from __future__ import annotations

import base64
import functools
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from ....engines.messages import DiffusionStep
from ...errors import ApiError
from ...media.batches import read_lines
from ...media.requests import BatchLine, BatchRequest, MediaRequest
from ...media.target import Target
from ..artifacts import FileStore, work_key
from ..errors import JobFailedError
from ..interface import Work
from ..job import Artifact, Job
from ..uploads import Uploads
from .generation import in_thread, origin_of, together
from .image import Drawn, draw, said_of

COUNTS = "counts"
"""Under this name lie the counts of a running batch, as JSON."""
AT_ONCE = 8
"""Lines that are drawn at the same time: enough to fill the engine's steps, few enough to be fair to others."""
COUNTS_EVERY = 1.0
"""Seconds between writes of the counts."""
DRAWN = 95.0
"""Percent at which every line is drawn."""
JSON_LINES = "application/jsonl"
FATAL = frozenset({"storage_failed"})
"""Faults of a line that are really the job's."""

_KEPT = re.compile(r"(\d{6})\.(ok|bad)")


class BatchHandler:
    """Does jobs of the kind `batch`."""

    def __init__(self, uploads: Uploads, files: FileStore, *, clock: Callable[[], float]) -> None:
        self._uploads = uploads
        self._files = files
        self._clock = clock

    async def run(self, work: Work) -> tuple[tuple[Artifact, ...], dict[str, Any]]:
        began = time.monotonic()
        job = work.job
        lines = await self._lines(work)
        batch = _Progress(work, self._files, total=len(lines))
        for number, good in (await self._kept(job)).items():
            batch.note(number, good)
        await batch.tell(force=True)
        todo = [number for number in range(len(lines)) if number not in batch.ended]

        async def one(number: int) -> None:
            good, answer = await self._answer(work, batch, number, lines[number])
            await self._files.replace(work_key(job, _name(number, good)), msgspec.json.encode(answer), "application/json")
            batch.note(number, good)
            await batch.tell()

        await together([lambda number=number: one(number) for number in todo], at_once=AT_ONCE)  # type: ignore[misc]
        await batch.tell(force=True)
        artifacts = await self._files_of(work, batch)
        timing = {"drawing_s": round(time.monotonic() - began, 3), "resumed_lines": len(lines) - len(todo)}
        return artifacts, {"request_counts": batch.counts, "warnings": [], "timing": timing}

    async def _lines(self, work: Work) -> list[BatchLine]:
        """The lines of the input file. Raises `JobFailedError`."""
        job = work.job
        request = cast(BatchRequest, job.request)
        media = work.lease.engine.capabilities.media
        upload = await self._uploads.get(job.tenant, request["input_file_id"], self._clock())
        if upload is None or media is None:
            message = f"The input file '{request['input_file_id']}' is gone: it was removed, or its time was over."
            raise JobFailedError("file_not_found", message)
        data = await self._uploads.data(upload)
        try:
            return await in_thread(lambda: read_lines(data, request["endpoint"], lambda model: Target(job.lane, model, media)))
        except ApiError as error:
            raise JobFailedError(error.code, error.message) from error

    async def _kept(self, job: Job) -> dict[int, bool]:
        """The lines that an earlier attempt has answered: number and whether it went well."""
        folder = work_key(job, "")
        names = [key.rpartition("/")[2] for key, _ in await self._files.keys(folder.rstrip("/"))]
        return {int(match[1]): match[2] == "ok" for name in names if (match := _KEPT.fullmatch(name))}

    async def _answer(self, work: Work, batch: _Progress, number: int, line: BatchLine) -> tuple[bool, dict[str, Any]]:
        """Whether a line went well, and its line of an output file."""
        request, error = line["request"], line["error"]
        if request is not None:
            try:
                origin = await origin_of(request, work.job.tenant, self._uploads, self._clock())
                step = functools.partial(batch.step, number, request["n"])
                drawn = await draw(work, {**request, "previews": 0}, origin, step, name=f"-{number}")
                return True, _line(work.job, number, line, 200, _body(request, drawn, self._clock()))
            except JobFailedError as fault:
                if fault.code in FATAL:
                    raise
                error = {"code": fault.code, "message": str(fault), "param": None}
        return False, _line(work.job, number, line, 400, {"error": {"type": "invalid_request_error", **(error or {})}})

    async def _files_of(self, work: Work, batch: _Progress) -> tuple[Artifact, ...]:
        """The output file, also when it has no lines, and the file of errors, if there are any."""
        artifacts = []
        for name, good in (("output.jsonl", True), ("errors.jsonl", False)):
            numbers = sorted(number for number, well in batch.ended.items() if well is good)
            if not numbers and not good:
                continue
            with tempfile.TemporaryDirectory(prefix="antiphon-batch-") as folder:
                path = Path(folder) / name
                await self._write(work.job, path, numbers, good)
                artifacts.append(await work.keep(name, path, JSON_LINES))
            await work.report(DRAWN + 2.0 * len(artifacts))
        return tuple(artifacts)

    async def _write(self, job: Job, path: Path, numbers: list[int], good: bool) -> None:
        with path.open("wb") as file:
            for number in numbers:
                line = await self._files.get(work_key(job, _name(number, good)))
                if line is None:
                    raise JobFailedError("storage_failed", f"The answer of line {number + 1} is gone.")
                await in_thread(lambda line=line: file.write(line + b"\n"))  # type: ignore[misc]


class _Progress:
    """How far a batch is. `ended`: lines by number, and whether they went well."""

    def __init__(self, work: Work, files: FileStore, *, total: int) -> None:
        self.ended: dict[int, bool] = {}
        self._work = work
        self._files = files
        self._total = total
        self._share: dict[int, dict[int, float]] = {}
        self._told = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """As OpenAI's `request_counts`."""
        good = sum(self.ended.values())
        return {"total": self._total, "completed": good, "failed": len(self.ended) - good}

    def note(self, number: int, good: bool) -> None:
        """A line is answered."""
        self.ended[number] = good
        self._share.pop(number, None)

    async def step(self, number: int, count: int, picture: int, chunk: DiffusionStep) -> None:
        """One of the `count` pictures of a line made a step."""
        self._share.setdefault(number, {})[picture] = chunk.step / chunk.steps / count
        await self._report()

    async def tell(self, *, force: bool = False) -> None:
        """Show the counts to who asks for the batch, at most once a second."""
        await self._report()
        if force or time.monotonic() - self._told >= COUNTS_EVERY:
            self._told = time.monotonic()
            await self._files.replace(work_key(self._work.job, COUNTS), msgspec.json.encode(self.counts), "application/json")

    async def _report(self) -> None:
        begun = sum(sum(pictures.values()) for pictures in self._share.values())
        await self._work.report(DRAWN * (len(self.ended) + begun) / self._total)


def _name(number: int, good: bool) -> str:
    return f"{number:06d}.{'ok' if good else 'bad'}"


def _line(job: Job, number: int, line: BatchLine, status: int, body: dict[str, Any]) -> dict[str, Any]:
    """A line of an output file."""
    request_id = f"{job.id}-{number}"
    response = {"status_code": status, "request_id": request_id, "body": body}
    return {"id": f"batch_req_{request_id}", "custom_id": line["custom_id"], "response": response, "error": None}


def _body(request: MediaRequest, pictures: list[Drawn], now: float) -> dict[str, Any]:
    """What `POST /v1/images/generations` would have answered."""
    about = said_of(pictures)
    data = [
        {"b64_json": base64.b64encode(picture.data).decode(), "revised_prompt": picture.generated.revised_prompt or None}
        for picture in pictures
    ]
    return {
        "created": int(now),
        "data": data,
        "background": "opaque",
        "output_format": request["output"]["format"],
        "quality": request["extra"].get("quality", "medium"),
        "size": request["size"],
        "seeds": about["seeds"],
        "warnings": list(dict.fromkeys([*request["warnings"], *about["warnings"]])),
    }
