"""Procrastinate's tokens: written with the row, withdrawn with it, made anew when they were lost, and none is left behind."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from antiphon.gateway.jobs.errors import JobLimitError
from antiphon.gateway.jobs.job import JobStatus
from antiphon.gateway.jobs.runner import Runner
from antiphon.gateway.jobs.store import SqlJobStore
from antiphon.tests.gateway.conftest import eventually
from antiphon.tests.gateway.jobs.postgres_server import PostgresServer
from antiphon.tests.gateway.jobs.world import LANE, OPTIONS, Backend, ended, order, running
from sqlalchemy import text

pytestmark = pytest.mark.postgres


@pytest.fixture
def backend(postgres_server: PostgresServer, tmp_path: Path) -> Backend:
    """Procrastinate on an empty database."""
    return Backend(dispatcher="procrastinate", database=postgres_server.empty_database(), files=tmp_path / "files")


async def tokens(store: SqlJobStore) -> list[tuple[str, str]]:
    """(job, status) of every token."""
    async with store.database.read() as connection:
        rows = await connection.execute(text("SELECT args->>'job_id', status::text FROM procrastinate_jobs ORDER BY id"))
        return [(row[0], row[1]) for row in rows]


async def test_row_and_token_are_one_transaction(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    async with backend.store() as store:
        job, _ = await store.submit(order(), 1.0, max_active=1)
        assert await tokens(store) == [(job.id, "todo")]
        with pytest.raises(JobLimitError):
            await store.submit(order(), 1.0, max_active=1)

        async def broken(*_: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(store.database, "announce", broken)  # the last thing in the transaction
        with pytest.raises(ZeroDivisionError):
            await store.submit(order(), 2.0, max_active=9)
        monkeypatch.undo()
        assert await tokens(store) == [(job.id, "todo")]
        assert [count for _, _, count, _ in await store.counts()] == [1]


async def test_a_cancelled_job_leaves_no_token(backend: Backend) -> None:
    async with backend.store() as store:
        job, _ = await store.submit(order(), 1.0, max_active=9)
        await store.request_cancel(job.id, "ada", 2.0)
        assert await tokens(store) == []


async def test_a_cancel_reaches_another_process_by_notify(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: Runner) -> None:
        """The slow path is closed."""

    monkeypatch.setattr(Runner, "look_for_cancels", nothing)
    options = replace(OPTIONS, lease=60.0, report_every=60.0)
    async with backend.worker(options=options) as worker, backend.store() as elsewhere:
        job = await worker.submit(order(steps=1000, pause=0.05))
        await eventually(lambda: bool(worker.handler.started), within=20)
        await elsewhere.request_cancel(job.id, "ada", time.time())
        assert (await ended(elsewhere, job, within=10.0)).status is JobStatus.CANCELLED


async def test_jobs_whose_tokens_were_lost_are_done_all_the_same(backend: Backend) -> None:
    async with backend.worker() as worker:
        long = await worker.submit(order(steps=40, pause=0.05))
        await running(worker.store, long)
        waiting = await worker.submit(order())
        async with worker.store.database.write() as connection:
            await connection.execute(text("DELETE FROM procrastinate_jobs"))
        assert (await ended(worker.store, waiting)).status is JobStatus.COMPLETED
        assert worker.handler.done == [(long.id, 1), (waiting.id, 1)]


async def test_the_token_of_a_dead_worker_is_buried(backend: Backend) -> None:
    async with backend.worker() as worker:
        async with worker.store.database.write() as connection:
            await connection.execute(text("INSERT INTO procrastinate_workers (last_heartbeat) VALUES (NOW() - INTERVAL '1 hour')"))
            values = f"('{LANE}', 'antiphon.job', 'doing', '{{\"job_id\": \"x\"}}', (SELECT MIN(id) FROM procrastinate_workers))"
            await connection.execute(
                text(f"INSERT INTO procrastinate_jobs (queue_name, task_name, status, args, worker_id) VALUES {values}".replace(":", "\\:"))
            )
        for job in [await worker.submit(order(errors=["engine"] if number % 2 else [])) for number in range(4)]:
            assert (await ended(worker.store, job)).status is JobStatus.COMPLETED
        ends = time.monotonic() + 20
        while left := await tokens(worker.store):
            assert time.monotonic() < ends, left


async def test_the_other_dispatcher_takes_over_a_database_in_use(backend: Backend) -> None:
    """Somebody changes `jobs.dispatcher`: jobs with tokens are done without them, jobs without tokens get some."""
    async with backend.store() as store:
        first, _ = await store.submit(order(), time.time(), max_active=9)
    without = replace(backend, dispatcher="lease")
    async with without.worker() as worker:
        assert (await ended(worker.store, first)).status is JobStatus.COMPLETED
    async with without.store() as store:
        second, _ = await store.submit(order(), time.time(), max_active=9)
    async with backend.worker() as worker:
        assert (await ended(worker.store, second)).status is JobStatus.COMPLETED
