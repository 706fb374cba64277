"""Removes what nobody needs any more: expired jobs and uploads, and files that no row speaks of (of killed attempts, of removed jobs)."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable

from ..logs import logger
from ..metrics import Metrics
from .artifacts import FileStore, job_prefix
from .errors import JobFailedError, StoreUnavailableError
from .interface import JobStore
from .job import Job
from .uploads import Uploads

log = logger("gateway.jobs")

EVERY = 60.0
"""Seconds between looks for what has expired."""
ORPHANS_EVERY = 3600.0
"""Seconds between looks at all files."""
GRACE = 3600.0
"""Files younger than this are left alone, whatever the rows say: somebody may be about to write the row."""
AT_A_TIME = 100
"""Expired jobs that are removed in one step."""

_JOB = re.compile(r"(?P<tenant>[^/]+)/(?P<year>\d{4})/(?P<month>\d{2})/(?P<job>[^/]+)/(?P<rest>.+)")
_UPLOAD = re.compile(r"(?P<tenant>[^/]+)/uploads/(?P<id>[^/]+)/(?P<part>data|about)")


class Sweep:
    """See the module's docstring. One task: `run`; several processes may sweep the same files."""

    def __init__(
        self,
        store: JobStore,
        files: FileStore,
        uploads: Uploads,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        grace: float = GRACE,
    ) -> None:
        self._store = store
        self._files = files
        self._uploads = uploads
        self._metrics = metrics
        self._clock = clock
        self._grace = grace

    async def run(self) -> None:
        """Sweep until cancelled."""
        orphans_at = self._clock() + ORPHANS_EVERY * random.uniform(0.1, 1.0)  # several processes do it at different times
        while True:
            try:
                await self.expired()
                if self._clock() >= orphans_at:
                    orphans_at = self._clock() + ORPHANS_EVERY
                    await self.orphans()
            except (StoreUnavailableError, JobFailedError) as error:
                log.warning("the sweep goes on later", reason=str(error))
            await asyncio.sleep(EVERY)

    async def expired(self) -> int:
        """Remove the rows and files of jobs whose time is over; returns how many."""
        removed = 0
        while found := await self._store.expired(self._clock(), AT_A_TIME):
            for job in found:
                await self._store.remove(job.id)  # the row first: files without a row are swept, a row without files would be a lie
                await self._files.remove(job_prefix(job))
            removed += len(found)
            self._metrics.jobs_expired.inc(len(found))
            await asyncio.sleep(0)
        return removed

    async def orphans(self) -> int:
        """Remove files that no row speaks of, expired uploads among them; returns how many files."""
        before = self._clock() - self._grace
        removed = await self._files.remove_halves(before)
        async for page in self._files.pages():
            stale = await self._stale([key for key, modified in page if modified < before])
            removed += await self._files.remove_keys(stale)
        self._metrics.orphans_removed.inc(removed)
        return removed

    async def _stale(self, keys: list[str]) -> list[str]:
        """Which of these files may go."""
        stale: list[str] = []
        rows: dict[str, Job | None] = {}
        for key in keys:
            if match := _UPLOAD.fullmatch(key):
                if await self._uploads.get(match["tenant"], match["id"], self._clock()) is None:
                    stale.append(key)
            elif match := _JOB.fullmatch(key):
                if match["job"] not in rows:
                    rows[match["job"]] = await self._store.get(match["job"])
                if orphaned(key, match["rest"], rows[match["job"]]):
                    stale.append(key)
        return stale


def orphaned(key: str, rest: str, job: Job | None) -> bool:
    """Whether a file (`rest` is its name below the job's) is no part of the job as it stands. Pure."""
    if job is None:
        return True
    if job.status.ended:
        return key not in {artifact.key for artifact in job.artifacts}
    attempt = rest.partition("/")[0]
    return attempt.isdigit() and int(attempt) < job.attempt
