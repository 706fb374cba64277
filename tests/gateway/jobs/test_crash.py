"""Processes are killed, stopped and started; databases go away and come back. No job is lost, none is done twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

from antiphon.gateway.jobs.artifacts import FileStore
from antiphon.gateway.jobs.job import Job, JobKind, JobStatus
from antiphon.gateway.jobs.store import SqlJobStore
from antiphon.gateway.jobs.sweep import orphaned
from antiphon.tests.gateway.jobs.worker_process import PHASES, Plan, fleet, lines, noted
from antiphon.tests.gateway.jobs.world import Backend, ended, order, running

KILLS = 50


async def test_the_job_of_a_killed_worker_is_done_by_another(backend: Backend, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with fleet() as ships:
        async with backend.store() as store:
            victim = ships.start(Plan(backend=backend, log=log))
            await noted(log, "open")
            job, _ = await store.submit(order(steps=40, pause=0.05), time.time(), max_active=9)
            row = await running(store, job)
            ships.kill(victim)
            ships.start(Plan(backend=backend, log=log))
            done = await ended(store, job)
            assert (done.status, done.attempt) == (JobStatus.COMPLETED, row.attempt + 1)
            assert [line[1:] for line in lines(log) if line[0] == "done"] == [[job.id, "2"]]


async def test_a_worker_that_slept_through_its_lease_changes_nothing_when_it_wakes(backend: Backend, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with fleet() as ships:
        async with backend.store() as store:
            sleeper = ships.start(Plan(backend=backend, log=log))
            await noted(log, "open")
            job, _ = await store.submit(order(steps=10, pause=0.1), time.time(), max_active=9)
            await running(store, job)
            async with store.database.write():  # it is not in the midst of a write, which would keep everybody out
                os.kill(sleeper.pid, signal.SIGSTOP)
            ships.start(Plan(backend=backend, log=log))
            done = await ended(store, job)
            assert done.attempt == 2
            os.kill(sleeper.pid, signal.SIGCONT)
            # It finds out and goes on with other work.
            after, _ = await store.submit(order(), time.time(), max_active=9)
            await ended(store, after)
            await asyncio.sleep(1.0)
            assert await store.get(job.id) == done


async def test_killed_at_fifty_moments_of_all_phases(backend: Backend, tmp_path: Path) -> None:
    """Two processes take in jobs and work on them, and are killed in turn: half of the times in the midst of a submission, a claim, a
    progress write, a file or an end, half of the times whenever it may be. (A fifth of that where a server keeps the rows.)"""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # shown when the test fails
    chance = random.Random(seed)
    log = tmp_path / "log"
    wish = {"steps": 3, "pause": 0.01, "max_attempts": 20, "previews": True}

    def plan(number: int) -> Plan:
        doom = (PHASES[number // 2 % len(PHASES)], chance.randrange(3), chance.uniform(0, 0.008)) if number % 4 < 2 else None
        return Plan(backend=backend, log=log, submits=5, wish=wish, slots=2, doom=doom)

    with fleet() as ships:
        async with backend.store() as store:
            plans = [plan(number) for number in range(KILLS // 5 if backend.postgres else KILLS)]
            pair = [(ships.start(plans[number]), plans[number]) for number in range(2)]
            for number in range(2, len(plans) + 2):
                await noted(log, "open", min(number, len(plans)))
                victim, its_plan = pair.pop(0)
                if its_plan.doom is None:
                    await asyncio.sleep(chance.uniform(0, 0.2))
                else:
                    victim.join(1.0)
                ships.kill(victim)
                if number < len(plans):
                    pair.append((ships.start(plans[number]), plans[number]))
            for _ in range(2):
                ships.start(Plan(backend=backend, log=log, slots=2))
            rows = await all_ended(store)
            ships.close()
            await check(store, rows, backend.files, log)


async def all_ended(store: SqlJobStore, within: float = 60.0) -> list[Job]:
    """Every row, once all have ended."""
    async with asyncio.timeout(within):
        while True:
            page = await store.list("ada", JobKind.IMAGE, after=None, limit=10_000, descending=False)
            if page.jobs and all(job.status.ended for job in page.jobs):
                return list(page.jobs)
            await asyncio.sleep(0.1)


async def check(store: SqlJobStore, rows: list[Job], folder: Path, log: Path) -> None:
    """Nothing was lost, nothing is there twice, files and rows agree."""
    by_id = {row.id: row for row in rows}
    promised = [line[1] for line in lines(log) if line[0] == "submitted"]
    assert len(promised) == len(set(promised)) > 10
    assert not [job_id for job_id in promised if job_id not in by_id], "a job was lost"
    assert Counter(row.status for row in rows) == {JobStatus.COMPLETED: len(rows)}
    assert any(row.attempt > 1 for row in rows), "nobody was killed at work"
    files = FileStore(folder)
    await files.open()
    kept = {artifact.key for row in rows for artifact in row.artifacts}
    for row in rows:
        [artifact] = row.artifacts
        # Written by the attempt that finished, whole: an older attempt's file lies elsewhere.
        assert await files.get(artifact.key) == f"{row.id} by attempt {row.attempt}".encode()
    for key, _ in await files.keys(""):
        _, _, _, job_id, rest = key.split("/", 4)
        assert orphaned(key, rest, by_id.get(job_id)) == (key not in kept), "the sweep would take the wrong files"
