"""A job service over a real pool with the painter, in a folder of the test's; and orders for it."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from antiphon.engines.pool import EnginePool
from antiphon.gateway.jobs.job import Job, JobKind, NewJob
from antiphon.gateway.jobs.service import Jobs, open_jobs
from antiphon.gateway.metrics import Metrics
from antiphon.gateway.settings import JobSettings
from antiphon.tests.gateway.media.painter import Painter, PainterOptions

PATIENCE = 20.0
TENANT = "tenant"
LANE = "painter"


@dataclass
class Service:
    """What runs."""

    jobs: Jobs
    pool: EnginePool
    painter: Painter
    metrics: Metrics

    async def done(self, job: Job) -> Job:
        """The ended job."""
        return await self.jobs.wait(job.tenant, job.id, deadline=time.monotonic() + PATIENCE)

    async def make(self, new: NewJob) -> Job:
        """Submit and wait."""
        return await self.done(await self.jobs.submit(new))

    async def file(self, job: Job, name: str) -> bytes:
        artifact = await self.jobs.artifact(job, name)
        assert artifact is not None, f"{job.id} has no {name}: {job}"
        return b"".join([piece async for piece in self.jobs.read(artifact)])


@asynccontextmanager
async def service(
    folder: Path, *, step_s: float = 0.0, slots: int = 4, most: int = 1000, metrics: Metrics | None = None, **jobs: Any
) -> AsyncIterator[Service]:
    """A service in `folder`; `jobs` are keys of `[jobs]`."""
    pool = EnginePool()
    painter = Painter(PainterOptions(step_s=step_s, slots=slots, most=most))
    pool.add(LANE, painter, reserved=0)
    await pool.open()
    metrics = metrics or Metrics()
    settings = JobSettings(**{"folder": str(folder), "poll_s": 0.02, "lease_s": 2.0, **jobs})
    opened = await open_jobs(settings, pool, [LANE], metrics)
    try:
        yield Service(opened, pool, painter, metrics)
    finally:
        await opened.close()
        await pool.close()


async def eventually(true: Callable[[], Any], within: float = 10.0) -> None:
    """Wait until something holds, which may take awaiting; fail when it does not in time."""
    async with asyncio.timeout(within):
        while True:
            found = true()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(0.02)


def request(prompt: str = "a red disc", **fields: Any) -> dict[str, Any]:
    """A row's request for a picture of 64x64."""
    output = {"format": "png", "width": 64, "height": 64, "fps": 8.0, "quality": 90, **fields.pop("output", {})}
    return {
        "prompt": prompt,
        "negative_prompt": "",
        "width": 64,
        "height": 64,
        "frames": 1,
        "fps": None,
        "steps": 6,
        "guidance": None,
        "seed": 7,
        "cache": None,
        "previews": 0,
        "strength": 0.6,
        "image": None,
        "mask": None,
        "n": 1,
        "output": output,
        "size": f"{output['width']}x{output['height']}",
        "seconds": "",
        "warnings": [],
        "extra": {},
        **fields,
    }


def picture(prompt: str = "a red disc", *, tenant: str = TENANT, priority: int = 0, webhook: str | None = None, **fields: Any) -> NewJob:
    """An order for pictures."""
    return NewJob(
        tenant=tenant,
        kind=JobKind.IMAGE,
        lane=LANE,
        model="painter",
        request=request(prompt, **fields),
        priority=priority,
        webhook=webhook,
    )


def clip(prompt: str = "a red disc moving right", *, seconds: float = 2.0, webhook: str | None = None, **fields: Any) -> NewJob:
    """An order for a clip at 8 frames a second."""
    output = {"format": "mp4", **fields.pop("output", {})}
    asked = request(prompt, frames=round(seconds * 8), seconds=f"{seconds:g}", output=output, **fields)
    return NewJob(tenant=TENANT, kind=JobKind.VIDEO, lane=LANE, model="painter", request=asked, webhook=webhook)


def batch(input_file_id: str, total: int, *, max_attempts: int = 3) -> NewJob:
    """An order for a batch."""
    asked = {
        "endpoint": "/v1/images/generations",
        "input_file_id": input_file_id,
        "completion_window": "24h",
        "metadata": None,
        "total": total,
        "output_expires_s": None,
    }
    return NewJob(tenant=TENANT, kind=JobKind.BATCH, lane=LANE, model="painter", request=asked, max_attempts=max_attempts)
