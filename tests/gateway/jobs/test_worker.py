"""`antiphon worker`: processes that share a queue, die, stop in order and are looked at; one with the real default engine."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from antiphon.__main__ import app
from antiphon.engines.errors import EngineUnavailableError
from antiphon.engines.interface import EngineRequest
from antiphon.engines.messages import GenerateBody
from antiphon.engines.pool import EnginePool
from antiphon.gateway.engine_room import DescribedEngine
from antiphon.gateway.jobs.job import Job, JobStatus, NewJob
from antiphon.gateway.jobs.service import Jobs, open_jobs
from antiphon.gateway.metrics import Metrics
from antiphon.gateway.settings import load_settings
from antiphon.tests.gateway.jobs.service_kit import TENANT, clip, picture, service
from antiphon.tests.gateway.media.painter import Painter, PainterOptions
from typer.testing import CliRunner

PAINTING = """
import sys, typer
from antiphon.tests.gateway.media import painter
from antiphon.gateway.cli_worker import worker
painter.register()
typer.run(worker)
"""
CONFIGURATION = """
[server]
pipelines = ["tone"]
media = ["painter"]
log_format = "json"
[engines.painter]
kind = "painter"
options = {{ step_s = {step_s}, slots = 2 }}
[jobs]
folder = "{folder}"
poll_s = 0.05
lease_s = 2.0
"""


@dataclass
class Running:
    """A worker's process."""

    process: subprocess.Popen[str]
    line: str

    @property
    def url(self) -> str:
        match = re.search(r"http://\S+(?=/metrics)", self.line)
        assert match is not None, self.line
        return match[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, within: float = 20.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within)


@contextmanager
def worker(folder: Path, *arguments: str, command: tuple[str, ...] = ("-c", PAINTING), step_s: float = 0.02) -> Iterator[Running]:
    """A worker with the painter, on the queue in `folder`; killed at the end if it still runs."""
    config = folder / "antiphon.toml"
    if not config.exists():
        config.write_text(CONFIGURATION.format(folder=folder, step_s=step_s))
    line = [sys.executable, *command, "--config", str(config), *arguments]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=(folder / "worker.log").open("a"), text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert "works with" in said, (said, (folder / "worker.log").read_text()[-2000:])
        yield Running(process, said)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def until(jobs: Jobs, job: Job, true: Any, within: float = 30.0) -> Job:
    """The job once `true(job)` holds."""
    async with asyncio.timeout(within):
        async for state in jobs.watch(job.tenant, job.id):
            if true(state):
                return state
    raise AssertionError(f"it never came about: {await jobs.get(job.tenant, job.id)}")


def under_way(job: Job) -> bool:
    return job.status is JobStatus.IN_PROGRESS and job.progress > 3


async def test_a_worker_that_is_killed_loses_no_job(tmp_path: Path) -> None:
    async with service(tmp_path, work=False) as server:
        with worker(tmp_path) as first:
            jobs = [await server.jobs.submit(clip(steps=120, seed=seed, previews=4)) for seed in range(2)]
            for job in jobs:
                await until(server.jobs, job, under_way)
            first.kill()
        began = time.monotonic()
        with worker(tmp_path, step_s=0.0):
            for job in jobs:
                ended = await server.jobs.wait(TENANT, job.id, deadline=time.monotonic() + 30)
                assert (ended.status, ended.attempt) == (JobStatus.COMPLETED, 2), ended.fault
                assert len(await server.file(ended, "video.mp4")) > 500
                assert all(f"/{ended.attempt}/" in artifact.key for artifact in ended.artifacts)
        assert time.monotonic() - began < 30


async def test_a_worker_is_looked_at_hears_a_cancel_and_gives_back_what_it_has_when_it_stops(tmp_path: Path) -> None:
    async with service(tmp_path, work=False) as server:
        with worker(tmp_path, "--port", "0") as running:
            await server.make(picture())
            async with httpx.AsyncClient(trust_env=False, base_url=running.url) as http:
                assert (await http.get("/livez")).text == "ok\n"
                assert (await http.get("/health")).json()["engines"]["painter-0"]["ok"]
                text = (await http.get("/metrics")).text
            assert 'antiphon_job_attempts_total{kind="image",outcome="completed"} 1.0' in text
            assert 'antiphon_jobs{kind="image",status="completed"} 1.0' in text

            job = await server.jobs.submit(clip(steps=1000))
            await until(server.jobs, job, under_way)
            began = time.monotonic()
            await server.jobs.cancel(TENANT, job.id)
            assert (await server.done(job)).status is JobStatus.CANCELLED
            assert time.monotonic() - began < 5

            job = await server.jobs.submit(clip(steps=1000))
            await until(server.jobs, job, under_way)
            assert await asyncio.to_thread(running.stop) == 0
            state = await server.jobs.get(TENANT, job.id)
            assert state is not None
            assert (state.status, state.max_attempts) == (JobStatus.QUEUED, job.max_attempts + 1)
        assert "Traceback" not in (tmp_path / "worker.log").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nmedia = []\n", "There is no engine to work with"),
        ("[server]\nmedia = ['hibari']\n", "make no pictures"),
        ("[server]\nmedia = ['nobody']\n", "there is no [engines.nobody]"),
    ],
)
def test_a_worker_without_work_says_so(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "antiphon.toml"
    config.write_text(text)
    ended = CliRunner().invoke(app, ["worker", "--config", str(config)])
    assert ended.exit_code == 1
    assert said in ended.output


async def test_a_server_that_only_takes_jobs_knows_what_its_engines_can(tmp_path: Path) -> None:
    engine = DescribedEngine(Painter(PainterOptions()))
    await engine.open()
    assert engine.capabilities.media is not None
    request = EngineRequest(request_id="r", body=GenerateBody(prompt="a red disc"))
    with pytest.raises(EngineUnavailableError, match="only takes jobs"):
        await anext(engine.stream(request))
    assert (await engine.health()).ok
    await engine.close()


# ---- the real engine ------------------------------------------------------------------------------------------------

REAL = """
[server]
pipelines = ["tone"]
media = ["tinyflow"]
[jobs]
folder = "{folder}"
poll_s = 0.05
"""


async def test_a_worker_with_the_default_engine_makes_a_picture_and_a_clip(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(REAL.format(folder=tmp_path))
    settings = load_settings(tmp_path / "antiphon.toml", jobs={"work": False})
    pool = EnginePool()
    await pool.open()
    jobs = await open_jobs(settings.jobs, pool, ["tinyflow"], Metrics())

    async def made(new: NewJob) -> Job:
        job = await jobs.submit(replace(new, lane="tinyflow"))
        return await jobs.wait(TENANT, job.id, deadline=time.monotonic() + 60)

    try:
        with worker(tmp_path, command=("-m", "antiphon", "worker")) as running:
            done = await made(picture("a red circle and zebras", width=None, height=None, steps=4, previews=2))
            assert done.status is JobStatus.COMPLETED, done.fault
            assert "zebras" in done.result["warning_details"][0]["words"]
            assert done.result["revised_prompt"]
            done = await made(clip("a red circle moving right", width=None, height=None, steps=2, seconds=1))
            assert done.status is JobStatus.COMPLETED, done.fault
            assert {artifact.name for artifact in done.artifacts} == {"video.mp4", "thumbnail.webp", "spritesheet.jpg"}
            assert await asyncio.to_thread(running.stop) == 0
    finally:
        await jobs.close()
        await pool.close()
