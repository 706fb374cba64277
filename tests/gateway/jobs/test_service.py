"""`Jobs` as the routes use it: orders, limits, watching, cancelling, removing, uploads, expiry, across processes that share a queue."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from antiphon.gateway.errors import SettingsError
from antiphon.gateway.jobs.artifacts import artifact_key, job_prefix
from antiphon.gateway.jobs.errors import IdempotencyConflictError, JobLimitError
from antiphon.gateway.jobs.figures import JobFigures
from antiphon.gateway.jobs.job import Job, JobKind, JobStatus
from antiphon.gateway.jobs.limits import SubmitLimit
from antiphon.gateway.jobs.sweep import Sweep
from antiphon.gateway.jobs.uploads import Uploads
from antiphon.tests.gateway.jobs.service_kit import TENANT, Service, clip, eventually, picture, service
from antiphon.tests.gateway.media.conftest import client_of, media_server


async def begun(running: Service, job: Job) -> Job:
    """The job as it runs."""
    async with asyncio.timeout(10):
        async for state in running.jobs.watch(job.tenant, job.id):
            if state.status is JobStatus.IN_PROGRESS and state.progress > 0:
                return state
    raise AssertionError("it never ran")


# ---- orders ---------------------------------------------------------------------------------------------------------


async def test_a_key_has_a_bounded_number_of_unfinished_jobs(tmp_path: Path) -> None:
    async with service(tmp_path, step_s=0.05, max_active=3) as running:
        jobs = [await running.jobs.submit(clip(steps=100, seed=seed)) for seed in range(3)]
        with pytest.raises(JobLimitError) as refused:
            await running.jobs.submit(clip())
        assert refused.value.retry_after > 0
        await running.jobs.submit(replace(clip(), tenant="another"))
        await running.jobs.cancel(TENANT, jobs[0].id)
        await running.done(jobs[0])
        await running.jobs.submit(clip())


async def test_a_key_submits_so_many_a_minute(tmp_path: Path) -> None:
    async with service(tmp_path, per_minute=2) as running:
        await running.jobs.submit(picture())
        await running.jobs.submit(picture())
        with pytest.raises(JobLimitError) as refused:
            await running.jobs.submit(picture())
        assert 55 < refused.value.retry_after <= 60
        await running.jobs.submit(picture(tenant="another"))


def test_the_limit_slides() -> None:
    limit = SubmitLimit(3)
    for now in (0.0, 10.0, 20.0):
        limit.require("a", now)
    with pytest.raises(JobLimitError) as refused:
        limit.require("a", 30.0)
    assert refused.value.retry_after == pytest.approx(30.0)
    limit.require("a", 60.1)
    with pytest.raises(JobLimitError):
        limit.require("a", 60.2)
    for number in range(20_000):
        limit.require(f"tenant {number}", 60.2)
    limit.require("a", 60.3)  # silent longest, so forgotten: memory is bounded


async def test_an_idempotency_key_makes_one_job(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        new = replace(picture(), idempotency_key="k")
        first, second = await asyncio.gather(running.jobs.submit(new), running.jobs.submit(new))
        assert first.id == second.id
        with pytest.raises(IdempotencyConflictError):
            await running.jobs.submit(replace(picture("a blue disc"), idempotency_key="k"))
        assert (await running.jobs.submit(replace(new, tenant="another"))).id != first.id
        assert running.metrics.value("antiphon_jobs_submitted_total", {"kind": "image"}) == 2


async def test_nobody_sees_another_tenants_jobs(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(picture())
        assert await running.jobs.get("another", job.id) is None
        assert await running.jobs.cancel("another", job.id) is None
        assert not await running.jobs.delete("another", job.id)
        assert not (await running.jobs.list("another", JobKind.IMAGE)).jobs
        with pytest.raises(LookupError):
            await running.jobs.wait("another", job.id, deadline=time.monotonic() + 1)
        assert await running.jobs.get(TENANT, job.id) == job


# ---- watching -------------------------------------------------------------------------------------------------------


async def test_a_job_is_watched_from_a_process_that_does_not_work_on_it(tmp_path: Path) -> None:
    async with service(tmp_path, work=False) as taking:
        submitted = await taking.jobs.submit(clip(steps=20, previews=3))
        await asyncio.sleep(0.3)
        state = await taking.jobs.get(TENANT, submitted.id)
        assert state is not None
        assert state.status is JobStatus.QUEUED, "it only takes jobs"
        async with service(tmp_path, step_s=0.05):
            states = [state async for state in taking.jobs.watch(TENANT, submitted.id, deadline=time.monotonic() + 20)]
        assert [state.status for state in states][:1] == [JobStatus.QUEUED]
        assert states[-1].status is JobStatus.COMPLETED
        assert any(state.status is JobStatus.IN_PROGRESS for state in states)
        assert len(await taking.file(states[-1], "video.mp4")) > 500


async def test_a_picture_is_there_soon_after_it_was_asked_for(tmp_path: Path) -> None:
    async with service(tmp_path, poll_s=30.0) as running:
        await running.make(picture())
        began = time.monotonic()
        await running.make(picture(seed=8))
        assert time.monotonic() - began < 3, "in one process nobody waits for the next look at the queue"


async def test_waiting_ends_at_its_deadline(tmp_path: Path) -> None:
    async with service(tmp_path, step_s=0.1) as running:
        job = await running.jobs.submit(clip(steps=400))
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await running.jobs.wait(TENANT, job.id, deadline=began + 0.5)
        assert time.monotonic() - began < 4
        assert not running.jobs._watching, "who stops watching leaves nothing behind"


# ---- ending ---------------------------------------------------------------------------------------------------------


async def test_cancelling_in_each_phase(tmp_path: Path) -> None:
    async with service(tmp_path, step_s=0.05, slots=1) as running:
        first = await running.jobs.submit(clip(steps=400))
        await begun(running, first)
        waiting = await running.jobs.submit(clip())
        cancelled = await running.jobs.cancel(TENANT, waiting.id)
        assert cancelled is not None
        assert cancelled.status is JobStatus.CANCELLED
        began = time.monotonic()
        await running.jobs.cancel(TENANT, first.id)
        ended = await running.done(first)
        assert (ended.status, ended.artifacts) == (JobStatus.CANCELLED, ())
        assert time.monotonic() - began < 3
        assert running.painter.aborted == 1
        after = await running.make(clip())
        again = await running.jobs.cancel(TENANT, after.id)
        assert again is not None
        assert again.status is JobStatus.COMPLETED
        assert await running.jobs.cancel(TENANT, "video_nothing") is None


async def test_removing_takes_row_and_files(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job, other = await running.make(clip()), await running.make(clip(seed=8))
        assert await running.jobs.files.keys(job_prefix(job))
        assert await running.jobs.delete(TENANT, job.id)
        assert await running.jobs.get(TENANT, job.id) is None
        assert not await running.jobs.files.keys(job_prefix(job))
        assert not await running.jobs.delete(TENANT, job.id)
        assert len(await running.file(other, "video.mp4")) > 500


async def test_removing_a_running_job_stops_it_and_ends_its_watch(tmp_path: Path) -> None:
    async with service(tmp_path, step_s=0.05) as running:
        job = await running.jobs.submit(clip(steps=400, previews=20))
        await begun(running, job)
        waiting = asyncio.create_task(running.done(job))
        await asyncio.sleep(0.1)
        assert await running.jobs.delete(TENANT, job.id)
        assert (await waiting).status is JobStatus.CANCELLED
        await eventually(lambda: running.painter.running == 0)


async def test_an_engine_that_fails_is_tried_again_and_then_the_job_fails(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        job = await running.make(replace(picture("break"), max_attempts=2))
        assert job.status is JobStatus.FAILED
        assert job.fault is not None
        assert (job.attempt, job.fault.message) == (2, "the brush broke")
        value = running.metrics.value
        assert value("antiphon_job_attempts_total", {"kind": "image", "outcome": "engine_failed"}) == 2
        assert value("antiphon_job_recoveries_total", {"kind": "image"}) == 1


async def test_a_stopped_service_gives_its_jobs_back_and_another_does_them(tmp_path: Path) -> None:
    async with service(tmp_path, step_s=0.05) as running:
        job = await running.jobs.submit(clip(steps=400))
        await begun(running, job)
        began = time.monotonic()
    assert time.monotonic() - began < 8
    async with service(tmp_path) as running:
        ended = await running.done(job)
        assert ended.status is JobStatus.COMPLETED
        assert ended.max_attempts > job.max_attempts, "giving back does not count as an attempt"


async def test_a_full_disk_fails_the_job_after_its_tries(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        folder = tmp_path / "artifacts"
        (folder / TENANT).write_bytes(b"a file where a folder has to be")
        job = await running.make(replace(clip(), max_attempts=1))
        assert job.fault is not None
        assert job.fault.code == "storage_failed"


# ---- uploads --------------------------------------------------------------------------------------------------------


async def test_uploads_are_listed_in_pages_read_and_removed(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        uploads = running.jobs.uploads
        kept = [
            await uploads.add(
                TENANT, f"file {number}".encode(), 1000.0 + number, filename=f"{number}.txt", purpose="vision", content_type="x"
            )
            for number in range(5)
        ]
        other = await uploads.add(TENANT, b"{}", 1010.0, filename="b", purpose="batch", content_type="x")
        newest = await uploads.list(TENANT, 1010.0, limit=2)
        assert ([upload.id for upload in newest.uploads], newest.has_more) == ([other.id, kept[4].id], True)
        page = await uploads.list(TENANT, 1010.0, purpose="vision", descending=False, after=kept[1].id, limit=3)
        assert ([upload.id for upload in page.uploads], page.has_more) == ([upload.id for upload in kept[2:]], False)
        assert await uploads.data(kept[3]) == b"file 3"
        assert b"".join([piece async for piece in uploads.read(kept[3], start=5)]) == b"3"
        assert await uploads.get("another", kept[3].id, 1010.0) is None
        assert not await uploads.delete("another", kept[3].id, 1010.0)
        assert await uploads.delete(TENANT, kept[3].id, 1010.0)
        assert await uploads.get(TENANT, kept[3].id, 1010.0) is None
        assert await uploads.get(TENANT, kept[2].id, 1000.0 + 2 + 604_800.0) is None, "its time is over"


@pytest.mark.parametrize(
    "upload_id", ["", "../..", "file-../../x", "file-" + "0" * 26, "file-" + "g" * 27, "file-batch_../x-output", "a" * 500]
)
async def test_ids_that_are_none(tmp_path: Path, upload_id: str) -> None:
    async with service(tmp_path, work=False) as running:
        assert await running.jobs.uploads.get(TENANT, upload_id, 0.0) is None
        assert not await running.jobs.uploads.delete(TENANT, upload_id, 0.0)


# ---- the sweep ------------------------------------------------------------------------------------------------------


def sweep(running: Service, now: float, *, grace: float = 0.0) -> Sweep:
    jobs = running.jobs
    clock = lambda: now  # noqa: E731
    return Sweep(jobs.store, jobs.files, Uploads(jobs.files, jobs.store, keep_s=100), running.metrics, clock=clock, grace=grace)


async def test_expired_jobs_go_with_their_files(tmp_path: Path) -> None:
    async with service(tmp_path) as running:
        old = await running.make(replace(clip(), expires_after=10.0))
        new = await running.make(clip(seed=8))
        await asyncio.sleep(0.2)
        assert await sweep(running, time.time() + 100).expired() == 1
        assert await running.jobs.get(TENANT, old.id) is None
        assert not await running.jobs.files.keys(job_prefix(old))
        assert len(await running.jobs.files.keys(job_prefix(new))) == 3
        assert running.metrics.value("antiphon_jobs_expired_total") == 1


async def test_orphans_go_and_nothing_else(tmp_path: Path) -> None:
    async with service(tmp_path, step_s=0.05) as running:
        jobs, files = running.jobs, running.jobs.files
        done = await running.make(clip(steps=2))
        runs = await begun(running, await jobs.submit(clip(steps=400)))
        removed = await running.make(clip(steps=2, seed=8))
        await files.remove(job_prefix(removed))
        await jobs.store.remove(removed.id)
        upload = await jobs.uploads.add(TENANT, b"x", time.time(), filename="x", purpose="vision", content_type="x")
        stale = [
            artifact_key(replace(done, attempt=7), "video.mp4"),
            artifact_key(replace(runs, attempt=0), "video.mp4"),
            artifact_key(removed, "video.mp4"),
            f"{TENANT}/uploads/file-{'0' * 27}/data",
        ]
        fresh = [artifact_key(runs, "video.mp4"), f"{job_prefix(runs)}/work/000001.ok", f"{TENANT}/unknown"]
        for key in (*stale, *fresh):
            await files.put(key, b"x", "x")
        assert await sweep(running, time.time(), grace=3600).orphans() == 0, "what is young is left alone"
        assert await sweep(running, time.time() + 1).orphans() == len(stale)
        left = {key for key, _ in await files.keys("")}
        assert left >= {*fresh, upload.key, *(artifact.key for artifact in done.artifacts)}
        assert not left & set(stale)
        await sweep(running, time.time() + 604_801).orphans()
        assert upload.key not in {key for key, _ in await files.keys("")}, "its time is over"


# ---- figures --------------------------------------------------------------------------------------------------------


async def test_the_figures_of_the_queue(tmp_path: Path) -> None:
    async with service(tmp_path, step_s=0.05, slots=1) as running:
        await running.make(picture(steps=2))
        runs = await begun(running, await running.jobs.submit(clip(steps=400)))
        await running.jobs.submit(clip(steps=400))
        figures = JobFigures()
        running.metrics.watch(figures.read)
        await figures.refresh(running.jobs.store, running.pool, running.jobs.lanes)
        value = running.metrics.value
        assert value("antiphon_jobs", {"kind": "video", "status": "in_progress"}) == 1
        assert value("antiphon_jobs", {"kind": "video", "status": "queued"}) == 1
        assert value("antiphon_jobs", {"kind": "image", "status": "completed"}) == 1
        assert 0 < value("antiphon_jobs_oldest_queued_seconds", {"kind": "video"}) < 60
        assert value("antiphon_jobs_oldest_queued_seconds", {"kind": "batch"}) == 0
        assert value("antiphon_job_wait_seconds_count", {"kind": "image"}) == 1
        assert value("antiphon_job_work_seconds_count", {"kind": "image"}) == 1
        assert value("antiphon_artifact_bytes_total", {"kind": "image"}) > 100
        await running.jobs.cancel(TENANT, runs.id)
        await running.done(runs)
        await eventually(lambda: value("antiphon_jobs_ended_total", {"kind": "video", "status": "cancelled"}) == 1)


async def test_a_server_tells_its_figures_and_gives_its_jobs_back_when_it_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with media_server(tmp_path, engine={"step_s": 0.05}) as server:
        assert server.gateway.jobs is not None
        job = await server.gateway.jobs.submit(clip(steps=400))
        async for state in server.gateway.jobs.watch(TENANT, job.id, deadline=time.monotonic() + 10):
            if state.progress > 0:
                break
        async with client_of(server) as http:
            text = (await http.get("/metrics")).text
        assert 'antiphon_jobs{kind="video",status="in_progress"} 1.0' in text
        assert 'antiphon_engine_running{class="batch",engine="painter"} 1.0' in text
    async with service(tmp_path / "jobs") as running:
        state = await running.done(job)
        assert (state.status, state.max_attempts) == (JobStatus.COMPLETED, job.max_attempts + 1)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("webhooks", ("ftp://host",), "https://host/path"),
        ("webhook_secret", "whsec_%", "webhook_secret"),
        ("artifacts", "ftp://host", "s3://bucket/prefix"),
        ("database", "mysql://host/name", "postgresql://"),
        ("artifacts", "/dev/null/folder", "could not be kept"),
    ],
)
async def test_a_wrong_setting_is_named_at_the_start(tmp_path: Path, key: str, value: object, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        async with service(tmp_path, **{key: value}):
            pass


async def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    async with service(tmp_path / "jobs", step_s=0.02) as running:
        await running.make(clip(steps=3))
        job = await begun(running, await running.jobs.submit(clip(steps=400)))
        await running.jobs.cancel(TENANT, job.id)
        await running.done(job)
    assert not os.listdir(scratch)
