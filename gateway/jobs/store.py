"""The `jobs` table on SQLite or PostgreSQL. What may become of a row is decided in `machine`; here it is read, locked and written."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from sqlalchemy import URL, ColumnElement, and_, func, insert, or_, select, update
from sqlalchemy import delete as remove_rows
from sqlalchemy.ext.asyncio import AsyncConnection

from . import machine
from .database import Database, use_wal
from .errors import AttemptLostError, IdempotencyConflictError, JobLimitError, UnknownCursorError
from .interface import Changes
from .job import ID_PREFIX, Artifact, Job, JobFault, JobKind, JobPage, JobStatus, NewJob
from .schema import as_job, as_row, changes, jobs, migrate

LIMIT_RETRY_S = 5.0
"""When a tenant with too many unfinished jobs may look again."""
ENDED_PER_CLAIM = 100
"""How many jobs without a future one claim may come across and end."""

UNFINISHED = (JobStatus.QUEUED.value, JobStatus.IN_PROGRESS.value)


class TokenQueue(Protocol):
    """A queue of somebody else in the same database, which wakes workers for jobs. It holds tokens (a job's id), the truth is the row;
    tokens are written in the transaction of the row."""

    async def install(self, connection: AsyncConnection) -> None:
        """Make or migrate its tables."""

    async def put(self, connection: AsyncConnection, job: Job) -> None:
        """The job waits (for the first time or again)."""

    async def withdraw(self, connection: AsyncConnection, job: Job) -> None:
        """The job was cancelled, or is to be."""


class SqlJobStore:
    """The `JobStore` over SQLAlchemy."""

    def __init__(self, url: URL, tokens: TokenQueue | None = None) -> None:
        self.database = Database(url)
        self.on_step: Callable[[Job], None] | None = None
        """Told of each committed write of an attempt in this process, for who should not have to look for it."""
        self._tokens = tokens

    async def open(self) -> None:
        await use_wal(self.database)
        async with self.database.write() as connection:
            await self.database.exclude(connection, "antiphon_schema")
            await migrate(connection)
            if self._tokens is not None:
                await self._tokens.install(connection)

    async def close(self) -> None:
        await self.database.close()

    def changes(self, poll: float) -> Changes:
        return self.database.changes(poll)

    # ---- clients ----------------------------------------------------------------------------------------------------

    async def submit(self, new: NewJob, now: float, *, max_active: int) -> tuple[Job, bool]:
        async with self.database.write() as connection:
            # One submission of a tenant at a time: the count below stays true, and of two with the same key the second sees the first.
            await self.database.exclude(connection, f"tenant {new.tenant}")
            if new.idempotency_key is not None and (job := await self._submitted(connection, new)) is not None:
                return job, False
            count = select(func.count()).where(jobs.c.tenant == new.tenant, jobs.c.status.in_(UNFINISHED))
            active = (await connection.execute(count)).scalar_one()
            if active >= max_active:
                message = f"There are {active} unfinished jobs already, and {max_active} are allowed. Wait until some have ended."
                raise JobLimitError(message, LIMIT_RETRY_S)
            row = as_row(machine.submit(new, ID_PREFIX[new.kind] + secrets.token_hex(16), 0, now))
            job = as_job((await connection.execute(insert(jobs).values(row).returning(jobs))).mappings().one())
            await self._queued(connection, job)
            return job, True

    async def _submitted(self, connection: AsyncConnection, new: NewJob) -> Job | None:
        """The job that came with the same key before. Raises `IdempotencyConflictError`."""
        same_key = and_(jobs.c.tenant == new.tenant, jobs.c.idempotency_key == new.idempotency_key)
        row = (await connection.execute(select(jobs).where(same_key))).mappings().one_or_none()
        if row is None:
            return None
        if row["request_hash"] != machine.request_hash(new):
            raise IdempotencyConflictError(
                f"The idempotency key {new.idempotency_key!r} was used before with another body. Take a new key for a new order."
            )
        return as_job(row)

    async def get(self, job_id: str, *, tenant: str | None = None) -> Job | None:
        async with self.database.read() as connection:
            return await self._find(connection, job_id, tenant)

    async def list(self, tenant: str, kind: JobKind, *, after: str | None, limit: int, descending: bool) -> JobPage:
        query = select(jobs).where(jobs.c.tenant == tenant, jobs.c.kind == kind.value)
        async with self.database.read() as connection:
            if after is not None:
                cursor = await self._find(connection, after, tenant)
                if cursor is None:
                    raise UnknownCursorError(f"There is no job {after!r} to list after.")
                query = query.where(jobs.c.seq < cursor.seq if descending else jobs.c.seq > cursor.seq)
            query = query.order_by(jobs.c.seq.desc() if descending else jobs.c.seq).limit(limit + 1)
            rows = (await connection.execute(query)).mappings().all()
        return JobPage(jobs=tuple(as_job(row) for row in rows[:limit]), has_more=len(rows) > limit)

    async def request_cancel(self, job_id: str, tenant: str, now: float) -> Job | None:
        async with self.database.write() as connection:
            before = await self._find(connection, job_id, tenant, lock=True)
            if before is None:
                return None
            after = await self._save(connection, before, machine.request_cancel(before, now))
            if self._tokens is not None and after != before:
                await self._tokens.withdraw(connection, after)
            return after

    # ---- workers ----------------------------------------------------------------------------------------------------

    async def claimable(self, lanes: Collection[str], now: float, kinds: Collection[JobKind] | None = None) -> bool:
        async with self.database.read() as connection:
            query = select(jobs.c.seq).where(_claimable(lanes, now, kinds)).limit(1)
            return (await connection.execute(query)).first() is not None

    async def claim(
        self,
        lanes: Collection[str],
        owner: str,
        now: float,
        lease: float,
        *,
        kinds: Collection[JobKind] | None = None,
        job_id: str | None = None,
    ) -> Job | None:
        first = select(jobs).where(_claimable(lanes, now, kinds)).order_by(jobs.c.priority.desc(), jobs.c.seq).limit(1)
        if job_id is not None:
            first = first.where(jobs.c.id == job_id)
        # A row that another worker is just taking is passed over, not waited for.
        first = first.with_for_update(skip_locked=True)
        async with self.database.write() as connection:
            for _ in range(ENDED_PER_CLAIM):
                row = (await connection.execute(first)).mappings().one_or_none()
                if row is None:
                    return None
                before = as_job(row)
                job = await self._save(connection, before, machine.claim(before, owner, now, lease))
                if not job.status.ended:
                    return job
        return None

    async def progress(self, job: Job, now: float, lease: float, *, progress: float, preview: int) -> bool:
        def step(row: Job) -> Job:
            return machine.progress(row, job.attempt, now, lease, progress=progress, preview=preview)

        return (await self._step(job, step)).cancel_requested

    async def finish(self, job: Job, now: float, *, artifacts: tuple[Artifact, ...], result: dict[str, Any]) -> Job:
        return await self._step(job, lambda row: machine.finish(row, job.attempt, now, artifacts, result))

    async def fail(self, job: Job, now: float, fault: JobFault) -> Job:
        return await self._step(job, lambda row: machine.fail(row, job.attempt, now, fault))

    async def cancelled(self, job: Job, now: float) -> Job:
        return await self._step(job, lambda row: machine.cancelled(row, job.attempt, now))

    async def requeue(self, job: Job, now: float) -> None:
        await self._step(job, lambda row: machine.requeue(row, job.attempt, now))

    async def retry(self, job: Job, now: float, fault: JobFault, delay: float) -> Job:
        return await self._step(job, lambda row: machine.retry(row, job.attempt, now, fault, delay))

    async def cancel_requests(self, owner: str) -> tuple[str, ...]:
        mine = and_(jobs.c.status == JobStatus.IN_PROGRESS.value, jobs.c.owner == owner, jobs.c.cancel_requested == 1)
        async with self.database.read() as connection:
            return tuple((await connection.execute(select(jobs.c.id).where(mine))).scalars())

    # ---- housekeeping -----------------------------------------------------------------------------------------------

    async def remove(self, job_id: str) -> None:
        async with self.database.write() as connection:
            await connection.execute(remove_rows(jobs).where(jobs.c.id == job_id))
            await self.database.announce(connection)

    async def expired(self, now: float, limit: int) -> Sequence[Job]:
        query = select(jobs).where(jobs.c.expires_at <= now).order_by(jobs.c.expires_at).limit(limit)
        async with self.database.read() as connection:
            return [as_job(row) for row in (await connection.execute(query)).mappings()]

    async def untold(self, now: float, limit: int, hold: float) -> tuple[tuple[Job, int], ...]:
        due = select(jobs).where(jobs.c.tell_at <= now).order_by(jobs.c.tell_at).limit(limit)
        async with self.database.read() as connection:
            if (await connection.execute(due.with_only_columns(jobs.c.seq))).first() is None:
                return ()
        async with self.database.write() as connection:
            rows = (await connection.execute(due.with_for_update(skip_locked=True))).mappings().all()
            held = update(jobs).where(jobs.c.seq.in_([row["seq"] for row in rows]))
            await connection.execute(held.values(tell_at=now + hold, tell_tries=jobs.c.tell_tries + 1))
        return tuple((as_job(row), row["tell_tries"] + 1) for row in rows)

    async def told(self, job_id: str, again_at: float | None = None) -> None:
        async with self.database.write() as connection:
            await connection.execute(update(jobs).where(jobs.c.id == job_id).values(tell_at=again_at))

    async def counts(self) -> Sequence[tuple[str, str, int, float]]:
        query = select(jobs.c.kind, jobs.c.status, func.count(), func.min(jobs.c.created_at)).group_by(jobs.c.kind, jobs.c.status)
        async with self.database.read() as connection:
            return [(kind, status, count, oldest) for kind, status, count, oldest in await connection.execute(query)]

    # ---- within a transaction ---------------------------------------------------------------------------------------

    async def _find(self, connection: AsyncConnection, job_id: str, tenant: str | None, *, lock: bool = False) -> Job | None:
        query = select(jobs).where(jobs.c.id == job_id)
        if tenant is not None:
            query = query.where(jobs.c.tenant == tenant)
        if lock:
            query = query.with_for_update()
        row = (await connection.execute(query)).mappings().one_or_none()
        return as_job(row) if row is not None else None

    async def _step(self, job: Job, step: Callable[[Job], Job]) -> Job:
        """A write of a running attempt."""
        async with self.database.write() as connection:
            before = await self._find(connection, job.id, None, lock=True)
            if before is None:
                raise AttemptLostError(f"attempt {job.attempt} of job {job.id} may not write: the job was removed")
            after = await self._save(connection, before, step(before))
        if self.on_step is not None:
            self.on_step(after)
        return after

    async def _save(self, connection: AsyncConnection, before: Job, after: Job) -> Job:
        """Write what changed of a locked row, and whatever goes with the change."""
        values = changes(before, after)
        if not values:
            return after
        if after.status.ended:
            values["tell_at"] = after.finished_at
        # The row is locked, so the fence holds already; that it is written again costs nothing and needs no trust.
        fence = and_(jobs.c.seq == before.seq, jobs.c.attempt == before.attempt, jobs.c.status == before.status.value)
        if (await connection.execute(update(jobs).where(fence).values(values))).rowcount != 1:
            raise AttemptLostError(f"attempt {before.attempt} of job {before.id} may not write: somebody else has written the row")
        if after.status is JobStatus.QUEUED:
            await self._queued(connection, after)
        elif after.status is not before.status or after.cancel_requested != before.cancel_requested:
            await self.database.announce(connection)
        return after

    async def _queued(self, connection: AsyncConnection, job: Job) -> None:
        if self._tokens is not None:
            await self._tokens.put(connection, job)
        await self.database.announce(connection)


def _claimable(lanes: Collection[str], now: float, kinds: Collection[JobKind] | None) -> ColumnElement[bool]:
    """`machine.claimable` in SQL."""
    waits = and_(jobs.c.status == JobStatus.QUEUED.value, or_(jobs.c.not_before.is_(None), jobs.c.not_before <= now))
    silent = and_(jobs.c.status == JobStatus.IN_PROGRESS.value, jobs.c.lease_until <= now)
    some = and_(jobs.c.lane.in_(list(lanes)), or_(waits, silent))
    return some if kinds is None else and_(some, jobs.c.kind.in_([kind.value for kind in kinds]))
