"""The `jobs` table on both databases: what clients and housekeeping ask of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from antiphon.gateway.errors import SettingsError
from antiphon.gateway.jobs import schema
from antiphon.gateway.jobs.database import server_url, sqlite_url
from antiphon.gateway.jobs.dispatching import open_store
from antiphon.gateway.jobs.errors import (
    AttemptLostError,
    IdempotencyConflictError,
    JobLimitError,
    SchemaError,
    StoreUnavailableError,
    UnknownCursorError,
)
from antiphon.gateway.jobs.job import Artifact, Job, JobFault, JobKind, JobStatus
from antiphon.gateway.jobs.store import SqlJobStore
from antiphon.gateway.settings import JobSettings
from antiphon.tests.gateway.jobs.world import LANE, order
from sqlalchemy import select, update

PICTURE = Artifact(name="image-0.png", key="ada/2030/01/x/1/image-0.png", size=3, sha256="00", content_type="image/png")


@pytest.fixture
async def store(database: str) -> AsyncIterator[SqlJobStore]:
    """An open store on an empty database."""
    store = SqlJobStore(server_url(database))
    await store.open()
    yield store
    await store.close()


async def completed(store: SqlJobStore, now: float, **wishes: object) -> Job:
    """A job that was submitted, claimed and finished at that time."""
    job, _ = await store.submit(order(**wishes), now, max_active=99)  # type: ignore[arg-type]
    running = await store.claim([LANE], "w", now, 10.0, job_id=job.id)
    assert running is not None
    return await store.finish(running, now, artifacts=(PICTURE,), result={"seeds": [7], "ä": "☃"})


async def test_a_row_comes_back_as_it_was_written(store: SqlJobStore) -> None:
    wish = replace(
        order(JobKind.VIDEO, prompt="snow ☃ \u0000 'quoted'", n=1.5),
        idempotency_key="k",
        remixed_from="video_0",
        webhook="https://example.com/hook",
        expires_after=5.0,
    )
    job, fresh = await store.submit(wish, 100.25, max_active=1)
    assert fresh
    assert job.id.startswith("video_")
    assert await store.get(job.id) == job
    assert (job.request, job.idempotency_key, job.remixed_from, job.webhook) == (wish.request, "k", "video_0", wish.webhook)
    running = await store.claim([LANE], "w", 101.0, 10.0)
    assert running is not None
    done = await store.finish(running, 102.5, artifacts=(PICTURE,), result={"seeds": [7], "ä": "☃"})
    assert await store.get(job.id) == done
    assert (done.artifacts, done.result, done.started_at, done.finished_at, done.expires_at) == (
        (PICTURE,),
        {"seeds": [7], "ä": "☃"},
        101.0,
        102.5,
        107.5,
    )


async def test_a_job_belongs_to_its_tenant(store: SqlJobStore) -> None:
    job, _ = await store.submit(order(tenant="ada"), 1.0, max_active=9)
    assert await store.get(job.id, tenant="ada") == job
    assert await store.get(job.id, tenant="bob") is None
    assert await store.request_cancel(job.id, "bob", 2.0) is None
    assert (await store.list("bob", JobKind.IMAGE, after=None, limit=9, descending=True)).jobs == ()
    with pytest.raises(UnknownCursorError):
        await store.list("bob", JobKind.IMAGE, after=job.id, limit=9, descending=True)


async def test_lists_are_paged_in_both_orders(store: SqlJobStore) -> None:
    ids = [(await store.submit(order(), float(number), max_active=99))[0].id for number in range(7)]
    await store.submit(order(JobKind.VIDEO), 9.0, max_active=99)
    for descending in (False, True):
        seen: list[str] = []
        after: str | None = None
        pages = 0
        while True:
            page = await store.list("ada", JobKind.IMAGE, after=after, limit=3, descending=descending)
            seen += [job.id for job in page.jobs]
            pages += 1
            if not page.has_more:
                break
            after = page.jobs[-1].id
            if pages == 1:
                await store.submit(order(tenant="bob"), 10.0, max_active=99)  # somebody else's comes in meanwhile
        assert pages == 3
        assert seen == (ids[::-1] if descending else ids)
    assert not (await store.list("ada", JobKind.IMAGE, after=ids[-4], limit=3, descending=False)).has_more


# ---- idempotency and limits -----------------------------------------------------------------------------------------


async def test_an_idempotency_key_gives_the_first_job_again(store: SqlJobStore) -> None:
    first, _ = await store.submit(order(idempotency_key="k", prompt="a"), 1.0, max_active=1)
    assert await store.submit(order(idempotency_key="k", prompt="a"), 2.0, max_active=1) == (first, False)
    with pytest.raises(IdempotencyConflictError):
        await store.submit(order(idempotency_key="k", prompt="b"), 3.0, max_active=9)
    assert (await store.submit(order(tenant="bob", idempotency_key="k", prompt="b"), 4.0, max_active=1))[1]
    await store.remove(first.id)
    assert (await store.submit(order(idempotency_key="k", prompt="b"), 5.0, max_active=1))[1]


async def test_a_fingerprint_stands_for_a_body_in_which_something_was_drawn(store: SqlJobStore) -> None:
    first, _ = await store.submit(replace(order(idempotency_key="k", seed=1), fingerprint="same"), 1.0, max_active=9)
    assert (await store.submit(replace(order(idempotency_key="k", seed=2), fingerprint="same"), 2.0, max_active=9))[0] == first
    with pytest.raises(IdempotencyConflictError):
        await store.submit(replace(order(idempotency_key="k", seed=2), fingerprint="other"), 3.0, max_active=9)


async def test_of_many_submissions_with_one_key_at_once_one_becomes_the_job(store: SqlJobStore) -> None:
    async with AsyncExitStack() as stack:
        others = [SqlJobStore(store.database.url) for _ in range(3)]
        for other in others:
            await other.open()
            stack.push_async_callback(other.close)
        submissions = [each.submit(order(idempotency_key="k"), 1.0, max_active=9) for each in (store, *others) for _ in range(5)]
        answers = await asyncio.gather(*submissions)
    assert len({job.id for job, _ in answers}) == 1
    assert Counter(fresh for _, fresh in answers) == {True: 1, False: 19}


async def test_a_tenant_never_has_more_unfinished_jobs_than_allowed(store: SqlJobStore) -> None:
    async with AsyncExitStack() as stack:
        other = SqlJobStore(store.database.url)
        await other.open()
        stack.push_async_callback(other.close)
        submissions = [each.submit(order(), 1.0, max_active=5) for _ in range(6) for each in (store, other)]
        answers = await asyncio.gather(*submissions, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, JobLimitError)]
    assert len(refused) == 7
    assert refused[0].retry_after > 0
    await store.submit(order(tenant="bob"), 1.0, max_active=5)
    job = await store.claim([LANE], "w", 2.0, 10.0)
    assert job is not None
    with pytest.raises(JobLimitError):
        await store.submit(order(), 3.0, max_active=5)
    await store.fail(job, 4.0, JobFault(code="x", message="y"))
    assert (await store.submit(order(), 5.0, max_active=5))[1]


# ---- claims ---------------------------------------------------------------------------------------------------------


async def test_many_claimers_get_each_job_once(store: SqlJobStore) -> None:
    async with AsyncExitStack() as stack:
        other = SqlJobStore(store.database.url)
        await other.open()
        stack.push_async_callback(other.close)
        ids = {(await store.submit(order(), 1.0, max_active=99))[0].id for _ in range(20)}
        got: list[str] = []

        async def claimer(each: SqlJobStore, name: str) -> None:
            while await each.claimable([LANE], 2.0):
                if job := await each.claim([LANE], name, 2.0, 1000.0):
                    got.append(job.id)

        await asyncio.gather(*(claimer(each, f"w{number}") for number, each in enumerate((store, other) * 3)))
    assert sorted(got) == sorted(ids)


async def test_a_claim_keeps_to_its_lanes_and_kinds(store: SqlJobStore) -> None:
    picture, _ = await store.submit(order(), 1.0, max_active=9)
    video, _ = await store.submit(order(JobKind.VIDEO), 1.0, max_active=9)
    assert not await store.claimable(["elsewhere"], 2.0)
    assert await store.claim(["elsewhere"], "w", 2.0, 9.0) is None
    assert not await store.claimable([LANE], 2.0, [JobKind.BATCH])
    got = await store.claim([LANE], "w", 2.0, 9.0, kinds=[JobKind.VIDEO, JobKind.BATCH])
    assert got is not None
    assert got.id == video.id
    assert await store.claim([LANE], "w", 2.0, 9.0, job_id=video.id) is None
    got = await store.claim([LANE], "w", 2.0, 9.0, job_id=picture.id)
    assert got is not None
    assert got.id == picture.id


async def test_an_older_attempt_writes_nothing(store: SqlJobStore) -> None:
    job, _ = await store.submit(order(), 1.0, max_active=9)
    old = await store.claim([LANE], "zombie", 1.0, 10.0)
    new = await store.claim([LANE], "fresh", 11.0, 10.0)
    assert old is not None
    assert new is not None
    fault = JobFault(code="x", message="y")
    for write in (
        store.progress(old, 12.0, 10.0, progress=50, preview=1),
        store.finish(old, 12.0, artifacts=(PICTURE,), result={}),
        store.fail(old, 12.0, fault),
        store.cancelled(old, 12.0),
        store.requeue(old, 12.0),
        store.retry(old, 12.0, fault, 1.0),
    ):
        with pytest.raises(AttemptLostError):
            await write
    assert await store.get(job.id) == new
    await store.remove(job.id)
    with pytest.raises(AttemptLostError):
        await store.progress(new, 13.0, 10.0, progress=50, preview=1)


async def test_a_running_job_knows_that_it_is_to_be_cancelled(store: SqlJobStore) -> None:
    job, _ = await store.submit(order(), 1.0, max_active=9)
    mine = await store.claim([LANE], "me", 1.0, 10.0)
    assert mine is not None
    assert await store.cancel_requests("me") == ()
    assert not await store.progress(mine, 2.0, 10.0, progress=10, preview=0)
    marked = await store.request_cancel(job.id, "ada", 3.0)
    assert marked is not None
    assert (marked.status, marked.cancel_requested) == (JobStatus.IN_PROGRESS, True)
    assert await store.cancel_requests("me") == (job.id,)
    assert await store.cancel_requests("you") == ()
    assert await store.progress(mine, 4.0, 10.0, progress=20, preview=0)
    # Its worker dies before it has stopped: nobody starts it again.
    assert await store.claim([LANE], "you", 20.0, 10.0) is None
    row = await store.get(job.id)
    assert row is not None
    assert row.status is JobStatus.CANCELLED


# ---- housekeeping ---------------------------------------------------------------------------------------------------


async def test_ended_jobs_expire_and_others_do_not(store: SqlJobStore) -> None:
    old = await completed(store, 100.0, expires_after=50.0)
    await completed(store, 120.0, expires_after=50.0)
    await store.submit(order(expires_after=1.0), 0.0, max_active=9)
    assert await store.expired(149.0, 9) == []
    assert await store.expired(150.0, 9) == [old]
    await store.remove(old.id)
    assert await store.expired(150.0, 9) == []
    assert await store.get(old.id) is None


async def test_every_end_is_told_until_it_has_been(store: SqlJobStore) -> None:
    done = await completed(store, 100.0)
    waiting, _ = await store.submit(order(), 100.0, max_active=9)
    cancelled = await store.request_cancel(waiting.id, "ada", 101.0)
    assert await store.untold(99.0, 9, 30.0) == ()
    assert await store.untold(102.0, 1, 30.0) == ((done, 1),)
    assert await store.untold(102.0, 9, 30.0) == ((cancelled, 1),)
    await store.told(done.id)
    assert cancelled is not None
    await store.told(cancelled.id, again_at=110.0)
    assert await store.untold(109.0, 9, 30.0) == ()
    assert await store.untold(110.0, 9, 30.0) == ((cancelled, 2),)
    # Who took it up has died: it comes again when the hold is over.
    assert await store.untold(139.0, 9, 30.0) == ()
    assert await store.untold(140.0, 9, 30.0) == ((cancelled, 3),)


async def test_an_end_is_told_by_one_process_at_a_time(store: SqlJobStore) -> None:
    for _ in range(10):
        await completed(store, 100.0)
    answers = await asyncio.gather(*(store.untold(101.0, 4, 30.0) for _ in range(8)))
    assert sorted(Counter(job.id for answer in answers for job, _ in answer).values()) == [1] * 10


async def test_jobs_are_counted(store: SqlJobStore) -> None:
    await completed(store, 100.0)
    await store.submit(order(), 50.0, max_active=9)
    await store.submit(order(), 60.0, max_active=9)
    await store.submit(order(JobKind.VIDEO), 70.0, max_active=9)
    assert sorted(await store.counts()) == [("image", "completed", 1, 100.0), ("image", "queued", 2, 50.0), ("video", "queued", 1, 70.0)]


async def test_writes_of_another_process_are_heard_of(store: SqlJobStore) -> None:
    other = SqlJobStore(store.database.url)
    changes = store.changes(0.02)
    await changes.wait(0.1)
    assert not await changes.wait(0.1)
    listening = asyncio.create_task(changes.wait(10.0))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    job, _ = await other.submit(order(), 1.0, max_active=9)
    assert await listening
    assert time.monotonic() - began < 5.0
    await other.request_cancel(job.id, "ada", 2.0)
    assert await changes.wait(10.0)
    await changes.close()
    await other.close()


# ---- opening --------------------------------------------------------------------------------------------------------


async def test_many_may_open_an_empty_database_at_once(database: str) -> None:
    stores = [SqlJobStore(server_url(database)) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    job, _ = await stores[0].submit(order(), 1.0, max_active=9)
    assert await stores[5].get(job.id) == job
    await asyncio.gather(*(store.close() for store in stores))


async def test_what_was_written_is_there_after_a_restart(database: str) -> None:
    for expected in range(3):
        store = SqlJobStore(server_url(database))
        await store.open()
        page = await store.list("ada", JobKind.IMAGE, after=None, limit=9, descending=True)
        assert len(page.jobs) == expected
        await store.submit(order(), 1.0, max_active=9)
        await store.close()


async def test_a_database_of_a_newer_version_is_left_alone(store: SqlJobStore) -> None:
    async with store.database.write() as connection:
        await connection.execute(update(schema.versions).values(version="99"))
    again = SqlJobStore(store.database.url)
    with pytest.raises(SchemaError, match="version 99"):
        await again.open()
    await again.close()


async def test_migrations_run_once_and_in_order(store: SqlJobStore) -> None:
    ran: list[str] = []

    def step(name: str) -> tuple[str, schema.Migration]:
        async def run(_: object) -> None:
            ran.append(name)

        return name, run

    for steps in (["a"], ["a", "b", "c"], ["a", "b", "c"]):
        async with store.database.write() as connection:
            await schema.migrate(connection, "part", [step(name) for name in steps])
    assert ran == ["a", "b", "c"]
    async with store.database.read() as connection:
        rows = (await connection.execute(select(schema.versions).order_by(schema.versions.c.part))).all()
    assert [tuple(row) for row in rows] == [("jobs", "1"), ("part", "c")]


async def test_a_number_is_never_given_twice(store: SqlJobStore) -> None:
    """Lists page by it: the job after a removed one must not take its place."""
    first, _ = await store.submit(order(), 1.0, max_active=9)
    await store.remove(first.id)
    second, _ = await store.submit(order(), 1.0, max_active=9)
    assert second.seq > first.seq


async def test_the_settings_name_the_database(tmp_path: Path) -> None:
    store = open_store(JobSettings(folder=str(tmp_path / "new" / "place")))
    await store.open()
    await store.close()
    assert (tmp_path / "new" / "place" / "jobs.sqlite3").exists()
    with pytest.raises(SettingsError, match="must look like postgresql://"):
        open_store(JobSettings(database="mysql://ada:secret@somewhere/x"))
    with pytest.raises(SettingsError, match="needs a file"):
        open_store(JobSettings(database="sqlite://"))
    with pytest.raises(SettingsError, match="works on PostgreSQL only"):
        open_store(JobSettings(folder=str(tmp_path), dispatcher="procrastinate"))


async def test_a_database_that_cannot_be_had_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    store = SqlJobStore(sqlite_url(tmp_path / "file" / "jobs.sqlite3"))
    with pytest.raises(StoreUnavailableError):
        await store.open()
    await store.close()


@pytest.mark.postgres
async def test_a_server_that_is_not_there_is_a_clear_error() -> None:
    store = SqlJobStore(server_url("postgres://nobody:secret@127.0.0.1:1/nothing"))
    with pytest.raises(StoreUnavailableError) as refused:
        await store.open()
    assert str(refused.value) == "The job database cannot be used now: it does not answer."  # clients need not know where it is
    assert refused.value.retry_after > 0
    await store.close()
