"""The dispatcher on PostgreSQL with Procrastinate: it wakes workers by NOTIFY, keeps their heartbeats, aborts in milliseconds.

A token (see `tokens`) says that a job waits; a worker that has a free slot fetches it, takes a slot of the engine, and claims the row as
the lease dispatcher does. The row is the truth: a token too many claims nothing, and for a row without a token `_rescue` makes a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any

import procrastinate
import psycopg
from procrastinate.exceptions import ConnectorException, JobAborted
from procrastinate.job_context import AbortReason, JobContext
from procrastinate.jobs import Job as Token
from procrastinate.jobs import Status
from procrastinate.retry import BaseRetryStrategy, RetryDecision
from sqlalchemy import URL, and_, func, or_, select, text

from ...engines.errors import EngineError
from ...engines.interface import WorkClass
from ...engines.pool import EnginePool
from ..logs import logger
from ..tasks import TaskOwner
from .attempt import DispatchOptions
from .database import SERVER_OPTIONS, STATEMENT_S, conninfo
from .errors import StoreUnavailableError
from .interface import ArtifactStore, Handler
from .job import Job, JobKind, JobStatus
from .runner import Runner
from .schema import as_job, jobs
from .store import SqlJobStore
from .tokens import INTERACTIVE_BONUS, TASK, Tokens

log = logger("gateway.jobs")

LOOK_S = 1.0
"""How often what NOTIFY does not tell is looked at: dead workers, rows without a token, cancels that went astray."""
TROUBLE_S = 1.0
"""The pause after the database or the engine could not be had."""
ORPHANS_AT_A_TIME = 100

_AGE = text(
    f"""
    UPDATE procrastinate_jobs t SET priority = t.priority + {INTERACTIVE_BONUS} FROM jobs
    WHERE t.args->>'job_id' = jobs.id AND t.status = 'todo' AND t.task_name = '{TASK}' AND t.queue_name = ANY(:lanes)
        AND t.priority < {INTERACTIVE_BONUS // 2} AND jobs.created_at < :before
    """
)
_NO_TOKEN = text(
    f"NOT EXISTS (SELECT FROM procrastinate_jobs t WHERE t.args->>'job_id' = jobs.id AND t.status = 'todo' AND t.task_name = '{TASK}')"
)


class _LaterError(Exception):
    """The token's job cannot be taken now."""


class _Again(BaseRetryStrategy):
    """When a token goes back into the queue: it could not be served, or its worker was stopped before it was."""

    def get_retry_decision(self, *, exception: BaseException, job: Token) -> RetryDecision | None:
        if isinstance(exception, _LaterError):
            return RetryDecision(retry_in={"milliseconds": int(TROUBLE_S * 1000)})
        if isinstance(exception, asyncio.CancelledError):
            return RetryDecision(retry_in={"seconds": 0})
        return None


def make_app(url: URL) -> procrastinate.App:
    """A Procrastinate application on that database; `open_async` it to work with it."""
    options = f"-c statement_timeout={STATEMENT_S * 1000:.0f}"
    pool: dict[str, Any] = {"min_size": 1, "max_size": 6, "timeout": 5.0, "reconnect_timeout": 5.0}
    connector = procrastinate.PsycopgConnector(conninfo=conninfo(url), kwargs={**SERVER_OPTIONS, "options": options}, **pool)
    return procrastinate.App(connector=connector)


class ProcrastinateDispatcher:
    """See the module's docstring. `lanes` are the engines that it works for; none: it only takes cancels. The store must have `Tokens`."""

    def __init__(
        self,
        store: SqlJobStore,
        pool: EnginePool,
        handlers: Mapping[JobKind, Handler],
        artifacts: ArtifactStore,
        lanes: Collection[str],
        options: DispatchOptions | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.options = options or DispatchOptions()
        self.runner = Runner(store, pool, handlers, artifacts, self.options, clock)
        self._store = store
        self._pool = pool
        self._clock = clock
        self._lanes = tuple(lanes)
        self._tasks = TaskOwner()
        self._app = make_app(store.database.url)
        self._tokens = Tokens(self._app)
        self._app.task(name=TASK, pass_context=True, retry=_Again())(self._serve)

    async def open(self) -> None:
        """Start to work. Raises `StoreUnavailableError`."""
        if not self._lanes:
            return
        try:
            await self._app.open_async()
        except (ConnectorException, psycopg.Error) as error:
            await self._app.close_async()
            raise StoreUnavailableError(f"The job database cannot be used now: {error.__cause__ or error}") from error
        self._start(self._rescue, "rescue jobs")
        slots = {engine.name: sum(replica.slots for replica in engine.replicas) for engine in self._pool.snapshot()}
        for lane in self._lanes:
            self._start(partial(self._work, lane, slots[lane]), f"work on {lane}")

    async def close(self) -> None:
        """See `Dispatcher`."""
        if not self._lanes:
            return
        await self._tasks.close(self.options.grace)  # tokens that were not served yet go back
        await self.runner.close()
        with contextlib.suppress(ConnectorException, psycopg.Error, TimeoutError):
            async with asyncio.timeout(self.options.grace):
                await self._app.close_async()

    async def enqueued(self, job: Job) -> None:
        """See `Dispatcher`. The token's own NOTIFY has told everyone."""

    async def cancel(self, job: Job) -> None:
        """See `Dispatcher`. A job that runs in another process was told by NOTIFY when the cancel was written."""
        self.runner.cancel(job.id)

    def _start(self, run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run something for ever: again, after a pause, when it ended, also through what may pass and faults of ours."""

        async def loop() -> None:
            while True:
                try:
                    await run()
                except (ConnectorException, StoreUnavailableError, psycopg.OperationalError) as error:
                    log.warning("the job database is not to be had", task=name, error=str(error.__cause__ or error))
                await asyncio.sleep(TROUBLE_S)

        def crashed(error: BaseException) -> None:
            log.error("the job dispatcher is at fault", task=name, exc_info=error)
            self._start(run, name)

        self._tasks.start(loop(), name=name, on_crash=crashed)

    # ---- tokens -----------------------------------------------------------------------------------------------------

    async def _work(self, lane: str, slots: int) -> None:
        """A Procrastinate worker for one lane, which runs until it loses the database or is stopped."""
        beat = self.options.beat
        await self._app.run_worker_async(
            queues=[lane],
            name=f"{self.runner.owner} {lane}",
            concurrency=slots,
            fetch_job_polling_interval=max(self.options.poll, LOOK_S),
            abort_job_polling_interval=beat,
            update_heartbeat_interval=beat,
            stalled_worker_timeout=self.options.lease,
            shutdown_graceful_timeout=0,  # what runs belongs to the runner, which outlives the worker
            delete_jobs="always",
            install_signal_handlers=False,
        )

    async def _serve(self, context: JobContext, job_id: str, work_class: int) -> None:
        """What a token does: take a slot, claim its job, stay until the job has ended here."""
        lane = context.job.queue
        try:
            lease = await self.runner.slot(lane, WorkClass(work_class))
            work = await self.runner.take(lane, lease, job_id=job_id)
        except (EngineError, StoreUnavailableError) as error:
            log.warning("a job cannot be taken now", job=job_id, lane=lane, error=str(error))
            raise _LaterError from error
        except asyncio.CancelledError:
            if context.abort_reason() is AbortReason.USER_REQUEST:
                self.runner.cancel(job_id)
                raise JobAborted from None
            raise
        if work is None:
            return
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if context.abort_reason() is AbortReason.USER_REQUEST:
                self.runner.cancel(job_id)
            raise JobAborted from None  # the runner has the job; the token is not needed any more

    # ---- rescue -----------------------------------------------------------------------------------------------------

    async def _rescue(self) -> None:
        """Every second: remove dead workers' tokens, make tokens for rows that have none, age, hear of cancels that went astray."""
        while True:
            await self._bury()
            await self._revive()
            await self.runner.look_for_cancels()
            await asyncio.sleep(min(LOOK_S, self.options.beat))

    async def _bury(self) -> None:
        stalled = await self._app.job_manager.get_stalled_jobs(task_name=TASK, seconds_since_heartbeat=self.options.lease)
        for token in stalled:
            if token.id is not None:
                with contextlib.suppress(ConnectorException):  # another process was faster
                    await self._app.job_manager.finish_job_by_id_async(token.id, Status.ABORTED, delete_job=True)

    async def _revive(self) -> None:
        now, lanes = self._clock(), list(self._lanes)
        silent = and_(jobs.c.status == JobStatus.IN_PROGRESS.value, jobs.c.lease_until <= now)
        # A job that has just come may have a token that is being served this very moment; an older one without a waiting token is odd.
        since = func.coalesce(jobs.c.not_before, jobs.c.created_at)
        forgotten = and_(jobs.c.status == JobStatus.QUEUED.value, since <= now - self.options.lease)
        orphans = select(jobs).where(jobs.c.lane.in_(lanes), or_(silent, forgotten), _NO_TOKEN).limit(ORPHANS_AT_A_TIME)
        async with self._store.database.write() as connection:
            await connection.execute(_AGE, {"lanes": lanes, "before": now - self.options.age})
            for row in (await connection.execute(orphans)).mappings().all():
                job = as_job(row)
                log.info("a job without a token gets one", job=job.id, status=job.status.value)
                await self._tokens.put(connection, job)
