"""A server's worker in a process of its own, for tests that kill it. `Fleet` starts it by a fork server, which has everything imported.

A process takes in jobs of its own (`submits`), works, and may be told to kill itself at a certain moment of a certain phase.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antiphon.gateway.jobs.errors import StoreUnavailableError
from antiphon.tests.gateway.jobs.world import OPTIONS, Backend, Steps, order

CONTEXT = multiprocessing.get_context("forkserver")
PRELOAD = ["antiphon.gateway.jobs.lease", "antiphon.gateway.jobs.postgres", "aiosqlite", "obstore", __name__]
PHASES = ("submit", "claim", "progress", "put", "finish")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a process does. `log` gets a line "submitted ID" after each submission that was acknowledged, and "done ID ATTEMPT" after each
    handler's end. `doom`: (phase, how many calls of it go well, seconds after the next one began) until it kills itself."""

    backend: Backend
    log: Path
    submits: int = 0
    wish: dict[str, Any] = field(default_factory=dict)
    slots: int = 1
    doom: tuple[str, int, float] | None = None


class Doom:
    """Kills the process in the middle of things."""

    def __init__(self, plan: tuple[str, int, float] | None) -> None:
        self._phase, self._left, self._after = plan if plan is not None else ("", 0, 0.0)

    def over(self, target: Any, method: str, phase: str) -> None:
        """Watch a method of an object."""
        if phase != self._phase:
            return
        real = getattr(target, method)

        async def watched(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                threading.Timer(self._after, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return await real(*arguments, **options)

        setattr(target, method, watched)


class LoggedSteps(Steps):
    """Writes down which attempts came to their end."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    async def run(self, work: Any) -> Any:
        outcome = await super().run(work)
        note(self._log, f"done {work.job.id} {work.job.attempt}")
        return outcome


def note(log: Path, line: str) -> None:
    """Append a line, in one write."""
    with log.open("a") as file:
        file.write(line + "\n")


async def live(plan: Plan) -> None:
    """Until it is killed."""
    doom = Doom(plan.doom)
    async with plan.backend.worker(slots=plan.slots, opened=False, handler=LoggedSteps(plan.log)) as worker:
        for method, phase in (("submit", "submit"), ("claim", "claim"), ("progress", "progress"), ("finish", "finish")):
            doom.over(worker.store, method, phase)
        doom.over(worker.files, "put", "put")
        note(plan.log, "open")
        await worker.dispatcher.open()
        for _ in range(plan.submits):
            try:
                job = await worker.submit(order(**plan.wish))
                note(plan.log, f"submitted {job.id}")
            except StoreUnavailableError:
                note(plan.log, "refused")
            await asyncio.sleep(random.uniform(0, 0.02))
        await asyncio.Event().wait()


def main(plan: Plan) -> None:
    asyncio.run(live(plan))


class Fleet:
    """The processes of a test. All that are left are killed at the end."""

    def __init__(self) -> None:
        CONTEXT.set_forkserver_preload(PRELOAD)
        self._processes: list[Any] = []

    def start(self, plan: Plan) -> Any:
        process = CONTEXT.Process(target=main, args=(plan,), daemon=True)
        process.start()
        self._processes.append(process)
        return process

    def kill(self, process: Any) -> None:
        """kill -9."""
        process.kill()
        process.join(10)

    def close(self) -> None:
        for process in self._processes:
            if process.is_alive():
                process.kill()
        for process in self._processes:
            process.join(10)


@contextmanager
def fleet() -> Iterator[Fleet]:
    """See `Fleet`."""
    ships = Fleet()
    try:
        yield ships
    finally:
        ships.close()


def lines(log: Path) -> list[list[str]]:
    """What the processes noted, whole lines only."""
    text = log.read_text() if log.exists() else ""
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]


async def noted(log: Path, word: str, times: int = 1, within: float = 20.0) -> None:
    """Wait until a word was noted so often."""
    ends = time.monotonic() + within
    while sum(line[0] == word for line in lines(log)) < times:
        assert time.monotonic() < ends, f"{word!r} was not noted {times} times: {lines(log)[-5:]}"
        await asyncio.sleep(0.01)


__all__ = ["OPTIONS", "PHASES", "Fleet", "Plan", "fleet", "lines", "noted"]
