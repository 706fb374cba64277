"""What every dispatcher does, on every database: the conformance suite."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from antiphon.engines.interface import WorkClass
from antiphon.gateway.jobs.attempt import DispatchOptions
from antiphon.gateway.jobs.errors import AttemptLostError
from antiphon.gateway.jobs.job import JobFault, JobKind, JobStatus
from antiphon.tests.gateway.conftest import eventually
from antiphon.tests.gateway.jobs.world import LANE, OPTIONS, Backend, ended, order, running, until


async def test_a_job_is_done_and_its_file_is_there(backend: Backend) -> None:
    async with backend.worker() as worker:
        job = await worker.submit(order())
        done = await ended(worker.store, job)
        assert (done.status, done.progress, done.attempt, done.result) == (JobStatus.COMPLETED, 100.0, 1, {"steps": 2})
        [artifact] = done.artifacts
        assert await worker.files.get(artifact.key) == f"{job.id} by attempt 1".encode()
        assert (artifact.name, artifact.content_type) == ("image-0.png", "image/png")
        assert not worker.pool.running()


async def test_higher_priorities_go_first_and_among_equals_the_oldest(backend: Backend) -> None:
    async with backend.worker(opened=False) as worker:
        jobs = [await worker.submit(order(priority=priority)) for priority in (0, 5, 0, -3, 5)]
        wanted = [jobs[index].id for index in (1, 4, 0, 2, 3)]
        await worker.dispatcher.open()
        for job in jobs:
            await ended(worker.store, job)
        assert [job_id for job_id, _ in worker.handler.started] == wanted


async def test_a_picture_that_somebody_waits_for_goes_before_videos(backend: Backend) -> None:
    async with backend.worker() as worker:
        videos = [await worker.submit(order(JobKind.VIDEO, priority=9, steps=10, pause=0.02)) for _ in range(3)]
        await running(worker.store, videos[0])
        picture = await worker.submit(order(JobKind.IMAGE))
        for job in (*videos, picture):
            await ended(worker.store, job)
        assert [job_id for job_id, _ in worker.handler.started].index(picture.id) == 1


async def test_pictures_without_end_do_not_keep_a_video_out(backend: Backend) -> None:
    async with backend.worker(options=replace(OPTIONS, age=0.3)) as worker:
        await worker.submit(order(JobKind.IMAGE, steps=4, pause=0.02))
        video = await worker.submit(order(JobKind.VIDEO))
        async with asyncio.timeout(20):
            while not (row := await worker.store.get(video.id)) or not row.status.ended:
                while sum(count for _, status, count, _ in await worker.store.counts() if status == "queued") < 4:
                    await worker.submit(order(JobKind.IMAGE, steps=4, pause=0.02))
                await asyncio.sleep(0.02)
        assert row.status is JobStatus.COMPLETED


async def test_workers_share_the_queue_and_nothing_is_done_twice(backend: Backend) -> None:
    async with backend.worker(slots=2) as one, backend.worker(slots=2) as two:
        jobs = [await (one, two)[number % 2].submit(order(pause=0.02)) for number in range(24)]
        for job in jobs:
            assert (await ended(one.store, job)).status is JobStatus.COMPLETED
        started = one.handler.started + two.handler.started
        assert sorted(started) == sorted((job.id, 1) for job in jobs)
        assert one.handler.started
        assert two.handler.started


async def test_no_more_run_than_the_engine_has_slots(backend: Backend) -> None:
    async with backend.worker(slots=2) as worker:
        jobs = [await worker.submit(order(JobKind.VIDEO, steps=5, pause=0.02)) for _ in range(6)]
        most = 0
        while len(worker.handler.done) < len(jobs):
            counts = {status: count for _, status, count, _ in await worker.store.counts()}
            most = max(most, counts.get(JobStatus.IN_PROGRESS.value, 0))
            await asyncio.sleep(0.005)
        assert most == 2


async def test_nobody_takes_a_job_without_a_slot_for_it(backend: Backend) -> None:
    async with backend.worker() as worker:
        async with await worker.pool.acquire(LANE, WorkClass.BATCH):
            job = await worker.submit(order())
            await asyncio.sleep(0.3)
            row = await worker.store.get(job.id)
            assert row is not None
            assert row.status is JobStatus.QUEUED
        assert (await ended(worker.store, job)).status is JobStatus.COMPLETED


async def test_a_worker_hears_at_once_of_a_job_that_another_process_took_in(backend: Backend) -> None:
    async with backend.worker(options=replace(OPTIONS, lease=60.0)) as worker, backend.store() as elsewhere:
        await asyncio.sleep(0.3)
        job, _ = await elsewhere.submit(order(), time.time(), max_active=9)
        await ended(worker.store, job, within=5.0)


# ---- cancel ---------------------------------------------------------------------------------------------------------


async def test_a_waiting_job_is_cancelled_at_once_and_never_started(backend: Backend) -> None:
    async with backend.worker() as worker:
        first = await worker.submit(order(steps=30, pause=0.02))
        await running(worker.store, first)
        waiting = await worker.submit(order())
        cancelled = await worker.cancel(waiting)
        assert cancelled is not None
        assert cancelled.status is JobStatus.CANCELLED
        await worker.cancel(first)
        last = await worker.submit(order())
        await ended(worker.store, last)
        assert waiting.id not in [job_id for job_id, _ in worker.handler.started]


async def test_a_running_job_is_cancelled_at_its_next_step(backend: Backend) -> None:
    async with backend.worker(options=replace(OPTIONS, lease=60.0, report_every=60.0)) as worker:
        job = await worker.submit(order(steps=1000, pause=0.05))
        await eventually(lambda: bool(worker.handler.started), within=20)
        await worker.cancel(job)
        done = await ended(worker.store, job, within=3.0)
        assert (done.status, done.artifacts, done.fault) == (JobStatus.CANCELLED, (), None)
        assert worker.handler.stopped == [(job.id, 1)]
        assert not worker.pool.running()


async def test_a_job_that_runs_elsewhere_is_cancelled_as_soon(backend: Backend) -> None:
    """Long leases and rare reports: the cancel does not wait for them."""
    options = replace(OPTIONS, lease=60.0, report_every=60.0)
    async with backend.worker(options=options) as worker, backend.worker(options=options, opened=False) as elsewhere:
        job = await worker.submit(order(steps=1000, pause=0.05))
        await eventually(lambda: bool(worker.handler.started), within=20)
        await elsewhere.cancel(job)
        assert (await ended(elsewhere.store, job, within=5.0)).status is JobStatus.CANCELLED
        assert worker.handler.stopped == [(job.id, 1)]


async def test_a_job_that_waits_for_its_next_attempt_is_cancelled(backend: Backend) -> None:
    async with backend.worker(options=replace(OPTIONS, backoff=30.0)) as worker:
        job = await worker.submit(order(errors=["engine"]))
        await until(worker.store, job, lambda row: row.attempt == 1 and row.status is JobStatus.QUEUED)
        await worker.cancel(job)
        assert (await ended(worker.store, job)).status is JobStatus.CANCELLED


async def test_an_ended_job_stays_what_it_is(backend: Backend) -> None:
    async with backend.worker() as worker:
        job = await worker.submit(order())
        done = await ended(worker.store, job)
        assert await worker.cancel(job) == done


async def test_a_job_whose_row_is_removed_while_it_runs_is_stopped(backend: Backend) -> None:
    async with backend.worker() as worker:
        job = await worker.submit(order(steps=1000, pause=0.02))
        await running(worker.store, job)
        await worker.cancel(job)
        await worker.store.remove(job.id)
        await eventually(lambda: bool(worker.handler.stopped) and not worker.pool.running(), within=10)
        assert await worker.store.get(job.id) is None


# ---- failures -------------------------------------------------------------------------------------------------------


async def test_a_broken_engine_is_worth_another_attempt(backend: Backend) -> None:
    async with backend.worker() as worker:
        job = await worker.submit(order(errors=["engine", "storage"]))
        done = await ended(worker.store, job)
        assert (done.status, done.attempt) == (JobStatus.COMPLETED, 3)
        assert await worker.files.get(done.artifacts[0].key) == f"{job.id} by attempt 3".encode()


async def test_after_the_last_attempt_the_job_fails_with_the_last_fault(backend: Backend) -> None:
    async with backend.worker() as worker:
        job = await worker.submit(order(errors=["storage", "engine"], max_attempts=2))
        done = await ended(worker.store, job)
        assert (done.status, done.attempt) == (JobStatus.FAILED, 2)
        assert done.fault == JobFault(code="engine_error", message="the engine broke")


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"errors": ["invalid"]}, "invalid_request"),
        ({"errors": ["failed"]}, "too_hard"),
        ({"errors": ["bug"]}, "internal_error"),
        ({"nothing": True}, "internal_error"),
    ],
)
async def test_what_cannot_be_done_fails_at_the_first_attempt(backend: Backend, wish: dict[str, object], code: str) -> None:
    async with backend.worker() as worker:
        job = await worker.submit(order(**wish))
        done = await ended(worker.store, job)
        assert (done.status, done.attempt, done.artifacts) == (JobStatus.FAILED, 1, ())
        assert done.fault is not None
        assert done.fault.code == code
        after = await worker.submit(order())
        assert (await ended(worker.store, after)).status is JobStatus.COMPLETED


async def test_a_job_that_kills_its_workers_is_given_up(backend: Backend) -> None:
    async with backend.store() as store:
        job, _ = await store.submit(order(max_attempts=2), time.time(), max_active=9)
        for attempt in (1, 2):
            row = await store.claim([LANE], "a worker that dies", time.time(), 0.01)
            assert row is not None
            assert row.attempt == attempt
            await asyncio.sleep(0.05)
        async with backend.worker() as worker:
            done = await ended(worker.store, job)
            assert (done.status, done.attempt, worker.handler.started) == (JobStatus.FAILED, 2, [])
            assert done.fault is not None
            assert done.fault.code == "worker_died"


# ---- leases ---------------------------------------------------------------------------------------------------------


async def test_a_handler_that_reports_nothing_keeps_its_lease(backend: Backend) -> None:
    async with backend.worker(options=replace(OPTIONS, lease=0.5)) as one, backend.worker(options=replace(OPTIONS, lease=0.5)) as two:
        job = await one.submit(order(steps=1, pause=2.0))
        done = await ended(one.store, job)
        assert (done.status, done.attempt) == (JobStatus.COMPLETED, 1)
        assert one.handler.started + two.handler.started == [(job.id, 1)]


async def test_a_worker_that_lost_its_job_stops_and_writes_nothing(backend: Backend) -> None:
    async with backend.worker() as worker:
        job = await worker.submit(order(steps=1000, pause=0.02))
        await running(worker.store, job)
        # Another worker saw the lease run out (this process was asleep), and is done already.
        row = await worker.store.claim([LANE], "another", time.time() + 60, 60.0, job_id=job.id)
        assert row is not None
        artifact = await worker.files.put("elsewhere/image-0.png", b"theirs", "image/png")
        theirs = await worker.store.finish(row, time.time(), artifacts=(artifact,), result={})
        await eventually(lambda: bool(worker.handler.stopped) and not worker.pool.running(), within=10)
        assert await worker.store.get(job.id) == theirs


async def test_an_orderly_stop_gives_the_job_back_and_does_not_count(backend: Backend) -> None:
    async with backend.worker() as one:
        job = await one.submit(order(steps=1000, pause=0.02, max_attempts=1))
        await running(one.store, job)
        await one.dispatcher.close()
        row = await one.store.get(job.id)
        assert row is not None
        assert (row.status, row.owner, row.progress) == (JobStatus.QUEUED, None, 0.0)
        assert one.handler.stopped == [(job.id, 1)]
        with pytest.raises(AttemptLostError):
            await one.store.progress(replace(row, attempt=1), time.time(), 1.0, progress=5, preview=0)
    async with backend.worker() as two:
        await running(two.store, job)
        assert two.handler.started == [(job.id, 2)]
        await two.cancel(job)


# ---- progress -------------------------------------------------------------------------------------------------------


async def test_progress_is_written_seldom_however_often_it_is_reported(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    async with backend.worker(options=DispatchOptions(poll=0.05)) as worker:
        written: list[float] = []
        real = worker.store.progress

        async def counting(*arguments: object, **options: float) -> bool:
            written.append(options["progress"])
            return await real(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(worker.store, "progress", counting)
        job = await worker.submit(order(steps=500, pause=0.002))
        began = time.monotonic()
        await ended(worker.store, job)
        assert len(written) <= time.monotonic() - began + 1
        assert written == sorted(written)


async def test_the_latest_preview_can_be_seen_while_the_job_runs(backend: Backend) -> None:
    from antiphon.gateway.jobs.artifacts import preview_key

    async with backend.worker() as worker:
        job = await worker.submit(order(steps=1000, pause=0.01, previews=True))
        row = await until(worker.store, job, lambda row: row.preview >= 2)
        assert await worker.files.get(preview_key(row, row.preview)) == b"preview"
        await worker.cancel(job)
