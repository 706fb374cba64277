"""What follows the end of a job, whoever ended it: its previews and leftovers are removed, it is counted, webhooks are told.

The store hands each end to one process at a time and again until it is done with, so a crash here repeats, and loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ..logs import logger
from ..metrics import Metrics
from .artifacts import FileStore, job_prefix
from .errors import JobFailedError, StoreUnavailableError
from .interface import JobStore
from .job import Job
from .webhooks import DEADLINE, Webhooks

log = logger("gateway.jobs")

AT_ONCE = 16
"""Ends that are told at the same time: slow receivers hold up that many before they hold up others."""
HOLD = DEADLINE + 45.0
"""Seconds that an end is ours before another process takes it up."""
GIVE_BACK = 2.0
"""Seconds that giving an end back may take."""
LOOK = 2.0
"""Seconds after which ends are looked for though nobody said that there are any."""


class Telling:
    """See the module's docstring. One task: `run`."""

    def __init__(self, store: JobStore, files: FileStore, webhooks: Webhooks, metrics: Metrics, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._files = files
        self._webhooks = webhooks
        self._metrics = metrics
        self._clock = clock
        self._wakened = asyncio.Event()

    def wake(self) -> None:
        """There may be an end."""
        self._wakened.set()

    async def run(self) -> None:
        """Tell of ends until cancelled."""
        async with asyncio.TaskGroup() as group:
            running: set[asyncio.Task[None]] = set()
            while True:
                self._wakened.clear()
                for job, tries in await self._ended(AT_ONCE - len(running)):
                    task = group.create_task(self._conclude(job, tries), name=f"end of {job.id}")
                    running.add(task)
                    task.add_done_callback(running.discard)
                    task.add_done_callback(lambda _: self._wakened.set() if len(running) == AT_ONCE - 1 else None)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK):
                        await self._wakened.wait()

    async def _ended(self, room: int) -> tuple[tuple[Job, int], ...]:
        if room <= 0:
            return ()
        try:
            return await self._store.untold(self._clock(), room, HOLD)
        except StoreUnavailableError as error:
            log.warning("ended jobs cannot be looked up", reason=str(error))
            return ()

    async def _conclude(self, job: Job, tries: int) -> None:
        """All that follows one end. Whatever goes wrong, the store brings it again."""
        try:
            if tries == 1:
                self._metrics.jobs_ended.labels(job.kind.value, job.status.value).inc()
            await self._tidy(job)
            pause = await self._webhooks.tell(job, tries)
            await self._store.told(job.id, None if pause is None else self._clock() + pause)
        except asyncio.CancelledError:
            await self._give_back(job)
            raise
        except StoreUnavailableError as error:
            log.warning("the end of a job is told again later", job=job.id, reason=str(error))
        except Exception:  # a fault of ours in one end must not stop the others
            log.exception("the end of a job could not be told", job=job.id)
            self._metrics.crashes.labels("jobs").inc()

    async def _give_back(self, job: Job) -> None:
        """We stop in the middle: the next process need not wait until our hold is over."""
        with suppress(TimeoutError, StoreUnavailableError):
            async with asyncio.timeout(GIVE_BACK):
                await self._store.told(job.id, self._clock())

    async def _tidy(self, job: Job) -> None:
        """Remove everything of the job but its artifacts."""
        kept = {artifact.key for artifact in job.artifacts}
        try:
            stale = [key for key, _ in await self._files.keys(job_prefix(job)) if key not in kept]
            await self._files.remove_keys(stale)
        except JobFailedError as error:
            log.warning("leftovers of a job are left to the sweep", job=job.id, reason=str(error))
