"""The life of a job under every order of events: the pure machine, and the same rules over the real store."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from antiphon.gateway.jobs import machine
from antiphon.gateway.jobs.database import sqlite_url
from antiphon.gateway.jobs.errors import AttemptLostError, IdempotencyConflictError, JobLimitError
from antiphon.gateway.jobs.job import MAY_FOLLOW, Artifact, Job, JobFault, JobKind, JobStatus, NewJob
from antiphon.gateway.jobs.store import SqlJobStore
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

T = TypeVar("T")

LANES = ("painter", "filmer")
LEASE = 10.0
MAX_ACTIVE = 6
FAULT = JobFault(code="engine_error", message="it broke")
PICTURE = Artifact(name="image-0.png", key="k", size=1, sha256="0", content_type="image/png")


class PureQueue:
    """The store as it would be with nothing but the machine and a list. What the real one is held against."""

    def __init__(self) -> None:
        self.rows: dict[str, Job] = {}
        self._seq = 0

    def submit(self, new: NewJob, now: float, job_id: str) -> tuple[Job, bool]:
        for row in self.rows.values():
            if new.idempotency_key is not None and (row.tenant, row.idempotency_key) == (new.tenant, new.idempotency_key):
                if row.request_hash != machine.request_hash(new):
                    raise IdempotencyConflictError
                return row, False
        if sum(row.tenant == new.tenant and not row.status.ended for row in self.rows.values()) >= MAX_ACTIVE:
            raise JobLimitError("full", 1.0)
        self._seq += 1
        job = machine.submit(new, job_id, self._seq, now)
        self.rows[job_id] = job
        return job, True

    def claim(self, lanes: tuple[str, ...], owner: str, now: float) -> Job | None:
        while ready := [row for row in self.rows.values() if row.lane in lanes and machine.claimable(row, now)]:
            job = machine.claim(min(ready, key=machine.turn), owner, now, LEASE)
            self.rows[job.id] = job
            if not job.status.ended:
                return job
        return None

    def step(self, job: Job, write: Any) -> Job:
        if job.id not in self.rows:
            raise AttemptLostError("removed")
        self.rows[job.id] = write(self.rows[job.id])
        return self.rows[job.id]


class Life(RuleBasedStateMachine):
    """Clients submit and cancel; workers claim, work, die, come back as zombies; time passes. Two queues live through it side by side: the
    pure one and (in the subclass) the real store, and must agree about every answer and every row."""

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.pure = PureQueue()
        self.now = 1000.0
        self.seen: dict[str, Job] = {}
        self.ids = 0

    # ---- both queues -------------------------------------------------------------------------------------------

    def both(self, pure: Any, real: str, *arguments: Any, **options: Any) -> Any:
        """Do it to the pure queue; the subclass does it to the store as well and compares."""
        return pure()

    def submitted(self, new: NewJob) -> tuple[Job, bool]:
        self.ids += 1
        return self.pure.submit(new, self.now, f"job_{self.ids}")

    def write(self, job: Job, pure: Any, real: str, *arguments: Any, **options: Any) -> Job | None:
        """A write of an attempt; None when it was refused, which it must be exactly when the attempt is not the running one."""
        row = self.pure.rows.get(job.id)
        current = row is not None and row.status is JobStatus.IN_PROGRESS and row.attempt == job.attempt
        try:
            after: Job | None = self.both(lambda: self.pure.step(job, pure), real, job, *arguments, **options)
        except AttemptLostError:
            assert not current, "the running attempt was refused"
            return None
        assert current, "an attempt that is over has written"
        return after

    # ---- clients -----------------------------------------------------------------------------------------------

    @rule(
        lane=st.sampled_from(LANES),
        priority=st.integers(-2, 2),
        key=st.sampled_from([None, None, "a", "b"]),
        body=st.integers(0, 1),
        tenant=st.sampled_from(["ada", "bob"]),
        attempts=st.integers(1, 3),
    )
    def submit(self, lane: str, priority: int, key: str | None, body: int, tenant: str, attempts: int) -> None:
        new = NewJob(
            tenant=tenant,
            kind=JobKind.IMAGE,
            lane=lane,
            model="tiny",
            request={"body": body},
            priority=priority,
            idempotency_key=key,
            max_attempts=attempts,
            expires_after=100.0,
        )
        before = [row for row in self.pure.rows.values() if key is not None and (row.tenant, row.idempotency_key) == (tenant, key)]
        active = sum(row.tenant == tenant and not row.status.ended for row in self.pure.rows.values())
        try:
            job, fresh = self.submitted(new)
        except IdempotencyConflictError:
            assert before
            assert before[0].request_hash != machine.request_hash(new)
        except JobLimitError:
            assert active >= MAX_ACTIVE
        else:
            assert fresh != bool(before)
            assert not before or job.id == before[0].id

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if not self.pure.rows:
            return
        job = data.draw(st.sampled_from(sorted(self.pure.rows.values(), key=lambda row: row.seq)))

        def pure() -> Job:
            self.pure.rows[job.id] = machine.request_cancel(job, self.now)
            return self.pure.rows[job.id]

        after = self.both(pure, "request_cancel", job.id, job.tenant, self.now)
        assert after.status.ended or after.cancel_requested

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        old = [row for row in self.pure.rows.values() if machine.expired(row, self.now)]
        if old:
            job = data.draw(st.sampled_from(sorted(old, key=lambda row: row.seq)))
            self.both(lambda: self.pure.rows.pop(job.id) and None, "remove", job.id)

    # ---- workers -----------------------------------------------------------------------------------------------

    @rule(target=claims, worker=st.sampled_from("xyz"), lanes=st.sampled_from([LANES, LANES[:1], LANES[1:]]))
    def claim(self, worker: str, lanes: tuple[str, ...]) -> Any:
        ready = [row for row in self.pure.rows.values() if row.lane in lanes and machine.claimable(row, self.now)]
        job = self.both(lambda: self.pure.claim(lanes, worker, self.now), "claim", lanes, worker, self.now, LEASE)
        if job is None:
            assert all(self.pure.rows[row.id].status.ended for row in ready), "there was something to claim"
            return multiple()
        passed_over = [row for row in ready if not self.pure.rows[row.id].status.ended]
        assert (-job.priority, job.seq) == min((-row.priority, row.seq) for row in passed_over), "the wrong one was first"
        assert job.owner == worker
        return job

    @rule(job=claims, reports=st.lists(st.tuples(st.floats(0, 100), st.integers(0, 3)), min_size=1, max_size=3))
    def report(self, job: Job, reports: list[tuple[float, int]]) -> None:
        for progress, preview in reports:
            self.write(
                job,
                lambda row, progress=progress, preview=preview: machine.progress(
                    row, job.attempt, self.now, LEASE, progress=progress, preview=preview
                ),
                "progress",
                self.now,
                LEASE,
                progress=progress,
                preview=preview,
            )
            self.rows_are_sound()

    @rule(job=claims)
    def finish(self, job: Job) -> None:
        result = {"by": job.attempt}
        self.write(
            job,
            lambda row: machine.finish(row, job.attempt, self.now, (PICTURE,), result),
            "finish",
            self.now,
            artifacts=(PICTURE,),
            result=result,
        )

    @rule(job=claims)
    def fail(self, job: Job) -> None:
        self.write(job, lambda row: machine.fail(row, job.attempt, self.now, FAULT), "fail", self.now, FAULT)

    @rule(job=claims)
    def stop_as_asked(self, job: Job) -> None:
        self.write(job, lambda row: machine.cancelled(row, job.attempt, self.now), "cancelled", self.now)

    @rule(job=claims)
    def give_back(self, job: Job) -> None:
        self.write(job, lambda row: machine.requeue(row, job.attempt, self.now), "requeue", self.now)

    @rule(job=claims, delay=st.sampled_from([0.0, 5.0]))
    def try_again(self, job: Job, delay: float) -> None:
        self.write(job, lambda row: machine.retry(row, job.attempt, self.now, FAULT, delay), "retry", self.now, FAULT, delay)

    @rule(job=consumes(claims))
    def die(self, job: Job) -> None:
        """A worker is gone for good: nothing is written."""

    # ---- time --------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0, 120.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def rows_are_sound(self) -> None:
        for row in self.pure.rows.values():
            assert not machine.faults(row), (machine.faults(row), row)
            before = self.seen.get(row.id)
            if before is not None:
                self.follows(before, row)
        self.seen = dict(self.pure.rows)

    @staticmethod
    def follows(before: Job, row: Job) -> None:
        """A row may have become this one by one event (an expired lease that is claimed anew is two)."""
        if before.status.ended:
            assert row == before, "an ended job has changed"
        if row.status is not before.status:
            steps = MAY_FOLLOW[before.status]
            assert row.status in steps
        assert row.attempt in (before.attempt, before.attempt + 1)
        if row.attempt == before.attempt and row.status is JobStatus.IN_PROGRESS:
            assert row.progress >= before.progress, "progress went backwards within an attempt"
            assert row.preview >= before.preview
        assert row.cancel_requested >= before.cancel_requested
        assert (row.id, row.seq, row.tenant, row.request, row.created_at) == (
            before.id,
            before.seq,
            before.tenant,
            before.request,
            before.created_at,
        )


class RealLife(Life):
    """The same, with the real store on SQLite beside the pure queue; and servers restart."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.store = self.opened()

    def opened(self) -> SqlJobStore:
        store = SqlJobStore(sqlite_url(self.folder / "jobs.sqlite3"))
        self.run(store.open())
        return store

    def run(self, work: Awaitable[T]) -> T:
        return self.loop.run_until_complete(work)  # type: ignore[arg-type]

    def both(self, pure: Any, real: str, *arguments: Any, **options: Any) -> Any:
        refused: Exception | None = None
        answer: Any = None
        try:
            answer = self.run(getattr(self.store, real)(*arguments, **options))
        except AttemptLostError as error:
            refused = error
        try:
            expected = pure()
        except AttemptLostError:
            assert refused is not None, f"{real} should have been refused"
            raise
        assert refused is None, f"{real} was refused: {refused}"
        if isinstance(answer, Job) or (real in ("claim", "request_cancel") and answer is None):
            assert answer == expected
        elif real == "progress":
            assert answer == expected.cancel_requested
        return expected

    def submitted(self, new: NewJob) -> tuple[Job, bool]:
        refused: type[Exception] | None = None
        job_id = ""
        fresh = False
        try:
            job, fresh = self.run(self.store.submit(new, self.now, max_active=MAX_ACTIVE))
            job_id = job.id
        except (IdempotencyConflictError, JobLimitError) as error:
            refused = type(error)
        if refused is not None:
            with pytest.raises(refused) as caught:
                self.pure.submit(new, self.now, job_id)
            raise caught.value
        expected = self.pure.submit(new, self.now, job_id)
        assert (job_id, fresh) == (expected[0].id, expected[1])
        return expected

    @rule()
    def restart(self) -> None:
        self.run(self.store.close())
        self.store = self.opened()

    @invariant()
    def the_table_agrees(self) -> None:
        for tenant in ("ada", "bob"):
            page = self.run(self.store.list(tenant, JobKind.IMAGE, after=None, limit=1000, descending=False))
            assert list(page.jobs) == [row for row in self.pure.rows.values() if row.tenant == tenant]

    @invariant()
    def each_end_is_to_be_told_once(self) -> None:
        ends = {job.id for job, _ in self.run(self.store.untold(float("inf"), 1000, 0.0))}
        assert ends == {row.id for row in self.pure.rows.values() if row.status.ended}

    @invariant()
    def it_says_what_can_be_claimed(self) -> None:
        for lane in LANES:
            ready = any(row.lane == lane and machine.claimable(row, self.now) for row in self.pure.rows.values())
            assert self.run(self.store.claimable([lane], self.now)) == ready

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()
        shutil.rmtree(self.folder)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestRealLife = RealLife.TestCase
TestRealLife.settings = settings(max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


NEW = NewJob(tenant="ada", kind=JobKind.VIDEO, lane="filmer", model="tiny", request={})


def test_a_job_with_nothing_to_show_cannot_be_completed() -> None:
    job = machine.claim(machine.submit(NEW, "video_1", 1, 0.0), "x", 0.0, LEASE)
    with pytest.raises(ValueError, match="without an artifact"):
        machine.finish(job, 1, 1.0, (), {})
    with pytest.raises(ValueError, match="two artifacts of one name"):
        machine.finish(job, 1, 1.0, (PICTURE, PICTURE), {})


def test_a_job_that_runs_under_a_lease_is_not_to_be_claimed() -> None:
    job = machine.claim(machine.submit(NEW, "video_1", 1, 0.0), "x", 0.0, LEASE)
    with pytest.raises(ValueError, match="cannot be claimed"):
        machine.claim(job, "y", 5.0, LEASE)


def test_an_unsound_row_is_found_out() -> None:
    job = machine.submit(NEW, "video_1", 1, 0.0)
    assert not machine.faults(job)
    assert machine.faults(replace(job, status=JobStatus.COMPLETED, progress=100.0, finished_at=1.0, expires_at=2.0)) == [
        "a completed job, and no other, has artifacts"
    ]
    assert machine.faults(replace(job, attempt=4)) == ["it was tried no more often than it may"]


def test_the_same_order_is_the_same_whatever_was_drawn_for_it() -> None:
    first, second = replace(NEW, request={"seed": 1}), replace(NEW, request={"seed": 2})
    assert machine.request_hash(first) != machine.request_hash(second)
    assert machine.request_hash(replace(first, fingerprint="f")) == machine.request_hash(replace(second, fingerprint="f"))
