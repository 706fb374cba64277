"""The database is locked, full, or away for a while: clients hear so, and nothing is lost."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from antiphon.engines.pool import Lease
from antiphon.gateway.jobs import database as database_module
from antiphon.gateway.jobs import lease as lease_module
from antiphon.gateway.jobs.errors import StoreUnavailableError
from antiphon.gateway.jobs.job import Job, JobStatus
from antiphon.tests.gateway.conftest import eventually
from antiphon.tests.gateway.jobs.postgres_server import PostgresServer
from antiphon.tests.gateway.jobs.world import OPTIONS, Backend, Worker, ended, order, running
from sqlalchemy import event

PATIENT = replace(OPTIONS, lease=10.0)


@asynccontextmanager
async def locked(file: Path) -> AsyncIterator[None]:
    """Nobody else can write to the file."""
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as connection:
        await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@pytest.fixture
def sqlite(tmp_path: Path) -> Backend:
    """The lease dispatcher on SQLite."""
    return Backend(dispatcher="lease", database=f"sqlite:///{tmp_path / 'jobs.sqlite3'}", files=tmp_path / "files")


async def test_a_lock_of_three_seconds_is_waited_for(sqlite: Backend, tmp_path: Path) -> None:
    async with sqlite.worker(options=PATIENT) as worker:
        job = await worker.submit(order(steps=10, pause=0.05))
        await running(worker.store, job)
        async with locked(tmp_path / "jobs.sqlite3"):
            submission = asyncio.create_task(worker.submit(order()))
            await asyncio.sleep(3.0)
            assert not submission.done()
        done = await ended(worker.store, job)
        assert (done.status, done.attempt) == (JobStatus.COMPLETED, 1)
        assert (await ended(worker.store, await submission)).status is JobStatus.COMPLETED
        assert worker.handler.done[0] == (job.id, 1)


async def test_a_lock_that_lasts_is_told_to_clients_and_sat_out_by_workers(
    sqlite: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_S", 0.2)
    async with sqlite.worker(options=PATIENT) as worker:
        job = await worker.submit(order(steps=10, pause=0.05))
        await running(worker.store, job)
        async with locked(tmp_path / "jobs.sqlite3"):
            with pytest.raises(StoreUnavailableError, match="locked"):
                await worker.submit(order())
            await eventually(lambda: bool(worker.handler.done), within=10)  # the work goes on
            await asyncio.sleep(1.0)
            row = await worker.store.get(job.id)  # and can be looked at
            assert row is not None
            assert row.status is JobStatus.IN_PROGRESS
        done = await ended(worker.store, job)
        assert (done.status, done.attempt) == (JobStatus.COMPLETED, 1)
        assert worker.handler.done == [(job.id, 1)]


async def test_an_engine_that_is_away_for_long_is_complained_of_once(sqlite: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    tries = 0
    monkeypatch.setattr(lease_module, "TROUBLE_S", 0.02)
    monkeypatch.setattr(lease_module.log, "warning", lambda what, **about: said.append(about["error"]))
    async with sqlite.worker() as worker:
        acquire = worker.pool.acquire

        async def counted(*arguments: Any, **options: Any) -> Lease:
            nonlocal tries
            tries += 1
            return await acquire(*arguments, **options)

        monkeypatch.setattr(worker.pool, "acquire", counted)
        await worker.pool.close()
        job = await worker.submit(order())
        await eventually(lambda: tries > 5)
        assert said == ["the engine pool is not open"]
        await worker.pool.open()
        assert (await ended(worker.store, job)).status is JobStatus.COMPLETED


class Disk:
    """Lets a SQLite database grow to so many pages."""

    def __init__(self, worker: Worker) -> None:
        self.pages = 1_000_000
        event.listen(worker.store.database._engine.sync_engine, "begin", self._begun)

    def _begun(self, connection: Any) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count={self.pages}")


async def test_a_full_disk_is_told_to_clients_and_sat_out_by_workers(sqlite: Backend) -> None:
    async with sqlite.worker(options=PATIENT) as worker:
        disk = Disk(worker)
        job = await worker.submit(order(steps=10, pause=0.05))
        await running(worker.store, job)
        disk.pages = 1  # SQLite takes it for as many as there are
        answers = [await asyncio.gather(worker.submit(order(filler="x" * 4000)), return_exceptions=True) for _ in range(20)]
        taken = [answer for (answer,) in answers if isinstance(answer, Job)]
        refusals = [answer for (answer,) in answers if isinstance(answer, StoreUnavailableError)]
        assert "disk is full" in str(refusals[0])
        assert len(taken) + len(refusals) == 20
        await eventually(lambda: bool(worker.handler.done), within=10)
        disk.pages = 1_000_000
        for each in (job, *taken, await worker.submit(order(filler="x" * 4000))):
            assert (await ended(worker.store, each)).status is JobStatus.COMPLETED
        assert sorted(set(worker.handler.done)) == sorted(worker.handler.done)
        with closing(sqlite3.connect(sqlite.database.removeprefix("sqlite:///"))) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.postgres
@pytest.mark.parametrize("dispatcher", ["lease", "procrastinate"])
async def test_a_restart_of_the_server_is_sat_out(dispatcher: str, postgres_server: PostgresServer, tmp_path: Path) -> None:
    """Jobs run, wait and come in while the server is killed and comes back: all are done, none twice."""
    backend = Backend(dispatcher=dispatcher, database=postgres_server.empty_database(), files=tmp_path / "files")
    async with backend.worker(slots=2, options=PATIENT) as worker:
        long = [await worker.submit(order(steps=20, pause=0.1)) for _ in range(2)]
        for job in long:
            await running(worker.store, job)
        waiting = [await worker.submit(order()) for _ in range(3)]
        await asyncio.to_thread(postgres_server.stop)
        with pytest.raises(StoreUnavailableError):
            await worker.submit(order())
        await asyncio.sleep(0.5)
        await asyncio.to_thread(postgres_server.start)
        late = await submitted(worker)
        jobs = [*long, *waiting, late]
        for job in jobs:
            done = await ended(worker.store, job, within=60.0)
            assert done.status is JobStatus.COMPLETED
        for job in long:  # what ran went on, and nobody else took it
            assert worker.handler.started.count((job.id, 1)) == 1
        assert sorted(worker.handler.done) == sorted({(job.id, 1) for job in jobs})


async def submitted(worker: Worker) -> Any:
    """A submission that is repeated as a client repeats it."""
    ends = time.monotonic() + 30
    while True:
        try:
            return await worker.submit(order())
        except StoreUnavailableError as error:
            assert time.monotonic() < ends
            await asyncio.sleep(min(0.2, error.retry_after))
