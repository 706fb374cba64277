"""One attempt at one job: what its handler sees (`Work`), and the lease that is kept alive meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...engines.pool import Lease
from ..logs import logger
from .artifacts import artifact_key, preview_key
from .errors import AttemptLostError, JobCancelledError, JobFailedError, StoreUnavailableError
from .interface import ArtifactStore, JobStore
from .job import Artifact, Job

log = logger("gateway.jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """How jobs are handed out; times in seconds.

    `lease`: a worker that says nothing for so long is taken for dead. `poll`: how often the queue is looked at where the database cannot
    tell of new jobs. `report_every` and `report_step` (percent): progress is written no more often and no finer. `grace`: how long a
    handler may take to stop. `backoff`: the pause before a job is tried again after an engine failed, doubled each time to `max_backoff`.
    `age`: a video or batch that waited so long for a slot waits among the pictures from then on, so that they cannot keep it out.
    """

    lease: float = 15.0
    poll: float = 0.2
    report_every: float = 1.0
    report_step: float = 1.0
    grace: float = 10.0
    backoff: float = 2.0
    max_backoff: float = 60.0
    age: float = 30.0

    @property
    def beat(self) -> float:
        """How often a lease is extended."""
        return self.lease / 3

    def pause(self, attempt: int) -> float:
        """The pause after attempt number `attempt` (1 is the first) failed."""
        return min(self.max_backoff, self.backoff * 2.0 ** min(attempt - 1, 16))


class Interruption(enum.Enum):
    """Why an attempt is stopped from outside."""

    CANCELLED = "somebody asked for it"
    LOST = "another attempt has the job, or it was removed"
    STOPPING = "this server stops"


class Attempt:
    """See the module's docstring. The runner that made it calls `keep_alive` beside the handler."""

    def __init__(
        self, job: Job, lease: Lease, store: JobStore, artifacts: ArtifactStore, options: DispatchOptions, clock: Callable[[], float]
    ) -> None:
        self.job = job
        self.lease = lease
        self.interruption: Interruption | None = None
        self.interrupted = asyncio.Event()
        self._store = store
        self._artifacts = artifacts
        self._options = options
        self._clock = clock
        self._progress = self._written = 0.0
        self._preview: bytes | None = None  # bound: one; policy: the newest wins
        self._previews = 0
        self._news = False
        self._wake = asyncio.Event()
        self._over = False

    # ---- for the handler --------------------------------------------------------------------------------------------

    async def report(self, progress: float, preview: bytes | None = None) -> None:
        """See `Work`."""
        self._check()
        self._progress = max(self._progress, min(100.0, max(0.0, progress)))
        if preview is not None:
            self._preview = preview
        if not self._news and (preview is not None or self._progress - self._written >= self._options.report_step):
            self._news = True
            self._wake.set()

    async def keep(self, name: str, data: bytes | Path, content_type: str) -> Artifact:
        """See `Work`."""
        self._check()
        return await self._artifacts.put(artifact_key(self.job, name), data, content_type)

    def _check(self) -> None:
        match self.interruption:
            case None:
                return
            case Interruption.CANCELLED:
                raise JobCancelledError(f"job {self.job.id} was cancelled")
            case reason:
                raise AttemptLostError(f"attempt {self.job.attempt} of job {self.job.id} is over: {reason.value}")

    # ---- for the runner ---------------------------------------------------------------------------------------------

    def interrupt(self, why: Interruption) -> None:
        """Stop the handler. The first reason stays, but one that lost the job has nothing left to cancel or give back."""
        if self.interruption is None or why is Interruption.LOST:
            self.interruption = why
        self.interrupted.set()

    def over(self) -> None:
        """The handler has ended: `keep_alive` returns when the write that it is in is done."""
        self._over = True
        self._wake.set()

    async def keep_alive(self) -> None:
        """Write progress and previews, throttled; extend the lease also when there is no news; see whether it was cancelled or lost."""
        last = time.monotonic()  # of the last write; the claim was one
        beat = self._options.beat
        while not self._over and self.interruption is not Interruption.LOST:
            left = last + (min(beat, self._options.report_every) if self._news else beat) - time.monotonic()
            if left > 0:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._wake.wait()
                continue
            self._news = False
            last = time.monotonic()
            beat = self._options.beat if await self._write() else min(1.0, self._options.beat)

    async def _write(self) -> bool:
        """False: the database could not be reached; the lease may run out, and then the fence decides."""
        job, progress = self.job, self._progress
        if (preview := self._preview) is not None:
            self._preview = None
            try:
                await self._artifacts.replace(preview_key(job, self._previews + 1), preview, "image/webp")
                self._previews += 1
            except JobFailedError as error:  # the job goes on without it
                log.warning("a preview could not be kept", job=job.id, error=str(error))
        try:
            cancel = await self._store.progress(job, self._clock(), self._options.lease, progress=progress, preview=self._previews)
        except StoreUnavailableError as error:
            log.warning("a job's progress could not be written", job=job.id, error=str(error))
            return False
        except AttemptLostError as error:
            log.warning("an attempt was lost", job=job.id, attempt=job.attempt, error=str(error))
            self.interrupt(Interruption.LOST)
            return True
        self._written = progress
        if cancel:
            self.interrupt(Interruption.CANCELLED)
        return True
