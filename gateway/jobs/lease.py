"""The dispatcher that needs nothing but the table: workers take jobs by lease, in as many processes as like to.

For each lane (engine) and class of work one claimer: it sees that there is something to claim, waits for a slot of the engine in its class,
and only then claims, so that no job is taken by a process that cannot work on it. How many jobs run is the engine's number of slots.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any

from ...engines.errors import EngineBusyError, EngineError
from ...engines.interface import WorkClass
from ...engines.pool import EnginePool
from ..logs import logger
from ..tasks import TaskOwner
from .attempt import DispatchOptions
from .errors import StoreUnavailableError
from .interface import ArtifactStore, Handler, JobStore
from .job import Job, JobKind
from .runner import CLASS_OF, Runner

log = logger("gateway.jobs")

LOOK_S = 1.0
"""Without any write the queue is looked at so often, for what only time brings: leases that ran out, pauses that are over."""
TROUBLE_S = 0.5
"""The pause after the database or the engine could not be had."""
FASTER_S = 0.05
"""The pause after somebody else took the job first."""
CRASH_S = 5.0
"""The pause after a fault of ours."""

CLASSES: dict[WorkClass, tuple[JobKind, ...]] = {
    work_class: tuple(kind for kind in CLASS_OF if CLASS_OF[kind] is work_class) for work_class in sorted(set(CLASS_OF.values()))
}


class LeaseDispatcher:
    """See the module's docstring. `lanes` are the engines that it works for; none: it only takes cancels."""

    def __init__(
        self,
        store: JobStore,
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
        self._clock = clock
        self._lanes = tuple(lanes)
        self._tasks = TaskOwner()
        self._wakes: list[asyncio.Event] = []

    async def open(self) -> None:
        """Start to work."""
        if not self._lanes:
            return
        self._start(self._watch, "watch the queue")
        for lane in self._lanes:
            for work_class in CLASSES:
                wake = asyncio.Event()
                wake.set()
                self._wakes.append(wake)
                self._start(partial(self._serve, lane, work_class, wake), f"claim for {lane}")

    async def close(self) -> None:
        """See `Dispatcher`."""
        await self._tasks.close(self.options.grace)
        await self.runner.close()

    async def enqueued(self, job: Job) -> None:
        """See `Dispatcher`."""
        self._wake()

    async def cancel(self, job: Job) -> None:
        """See `Dispatcher`. A job that runs in another process is stopped there, as soon as that sees the row."""
        self.runner.cancel(job.id)

    def _start(self, run: Callable[[], Coroutine[Any, Any, None]], name: str, pause: float = 0.0) -> None:
        """Run a loop, and again after a pause should it crash."""

        async def loop() -> None:
            await asyncio.sleep(pause)
            await run()

        def crashed(error: BaseException) -> None:
            log.error("the job dispatcher is at fault", task=name, exc_info=error)
            self._start(run, name, CRASH_S)

        self._tasks.start(loop(), name=name, on_crash=crashed)

    def _wake(self) -> None:
        for wake in self._wakes:
            wake.set()

    async def _watch(self) -> None:
        """Wake the claimers when something was written, and when time may have brought something; hear of cancels."""
        look = min(LOOK_S, self.options.beat)
        changes = self._store.changes(self.options.poll)
        try:
            while True:
                if await changes.wait(look):
                    with contextlib.suppress(StoreUnavailableError):
                        await self.runner.look_for_cancels()
                self._wake()
        finally:
            await changes.close()

    async def _serve(self, lane: str, work_class: WorkClass, wake: asyncio.Event) -> None:
        """Claim for one lane and class of work, for ever."""
        kinds = CLASSES[work_class]
        trouble = ""  # said once for as long as it lasts: an engine may take minutes to load
        while True:
            await wake.wait()
            wake.clear()
            try:
                while await self._store.claimable([lane], self._clock(), kinds):
                    lease = await self.runner.slot(lane, work_class)
                    trouble = ""
                    if await self.runner.take(lane, lease, kinds=kinds) is None:
                        await asyncio.sleep(FASTER_S)
            except EngineBusyError:
                wake.set()
            except (StoreUnavailableError, EngineError) as error:
                if str(error) != trouble:
                    trouble = str(error)
                    log.warning("no jobs can be taken now", lane=lane, error=trouble)
                await asyncio.sleep(TROUBLE_S)
                wake.set()
