"""The gauges of the job queue and of the engines that work on it. They are read when somebody asks for `/metrics` (`refresh`), at most once
a second, and given out as of then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, Metric

from ...engines.interface import EngineHealth
from ...engines.pool import EnginePool
from ..logs import logger
from ..metrics import Sample, gauge
from .errors import StoreUnavailableError
from .interface import JobStore
from .job import JobKind, JobStatus

log = logger("gateway.jobs")

REFRESH = 1.0
"""Seconds."""

COUNTED = (
    ("steps", "antiphon_diffusion_steps", "Denoising steps computed"),
    ("rows", "antiphon_diffusion_rows", "Network rows computed"),
    ("step_seconds", "antiphon_diffusion_step_seconds", "Time spent computing steps"),
    ("held", "antiphon_diffusion_preemptions", "Times that a step waited for live work"),
    ("held_seconds", "antiphon_diffusion_held_seconds", "Time that steps waited for live work"),
    ("capped", "antiphon_diffusion_capped_steps", "Steps with fewer rows because live work was about"),
)
"""Of `EngineHealth.extra`: its key, the counter's name and what it is. Each counts since the engine was opened."""


class JobFigures:
    """See the module's docstring."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._refreshed = float("-inf")
        self._counts: Sequence[tuple[str, str, int, float]] = ()
        self._engines: dict[str, EngineHealth] = {}

    async def refresh(self, store: JobStore, pool: EnginePool, lanes: Sequence[str]) -> None:
        """Look again, unless that was done a moment ago."""
        if time.monotonic() - self._refreshed < REFRESH:
            return
        self._refreshed = time.monotonic()
        try:
            self._counts = await store.counts()
        except StoreUnavailableError as error:
            log.warning("the job queue cannot be counted", reason=str(error))
        self._engines = {name: state for name, state in (await pool.health()).items() if name.rpartition("-")[0] in lanes}

    def read(self) -> Iterable[Metric]:
        """As of the last `refresh`; without one, without samples."""
        jobs, ages = self._queue()
        yield gauge("antiphon_jobs", "Jobs that there are, by status", jobs)
        yield gauge("antiphon_jobs_oldest_queued_seconds", "Age of the oldest job that waits", ages)
        for key, name, text in COUNTED:
            family = CounterMetricFamily(name, text, labels=("replica",))
            for replica, state in self._engines.items():
                if key in state.extra:
                    family.add_metric((replica,), state.extra[key])
            yield family
        caps: list[Sample] = [({"replica": name}, state.extra["cap"]) for name, state in self._engines.items() if "cap" in state.extra]
        yield gauge("antiphon_diffusion_row_cap", "Rows that a step may have", caps)

    def _queue(self) -> tuple[list[Sample], list[Sample]]:
        if not self._counts and self._refreshed < 0:
            return [], []
        found = {(kind, status): (count, oldest) for kind, status, count, oldest in self._counts}
        jobs: list[Sample] = [
            ({"kind": kind.value, "status": status.value}, float(found.get((kind.value, status.value), (0, 0.0))[0]))
            for kind in JobKind
            for status in JobStatus
        ]
        ages: list[Sample] = []
        for kind in JobKind:
            waiting = found.get((kind.value, JobStatus.QUEUED.value))
            ages.append(({"kind": kind.value}, max(0.0, self._clock() - waiting[1]) if waiting is not None else 0.0))
        return jobs, ages
