"""Owned tasks end with their owner; a crash reaches whoever asked to hear of it. A window counts what it should."""

from __future__ import annotations

import asyncio

import pytest
from antiphon.gateway.rates import WindowCounter
from antiphon.gateway.tasks import TaskOwner


async def test_closing_ends_every_task() -> None:
    owner = TaskOwner()
    crashes: list[BaseException] = []
    tasks = [owner.start(asyncio.sleep(60), name="sleeper", on_crash=crashes.append) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(owner) == 3
    assert await owner.close(1.0) == 0
    assert all(task.cancelled() for task in tasks)
    assert not crashes
    assert len(owner) == 0


async def test_a_crash_is_handed_over() -> None:
    owner = TaskOwner()
    crashes: list[BaseException] = []

    async def crash() -> None:
        raise ZeroDivisionError

    owner.start(crash(), name="crasher", on_crash=crashes.append)
    await asyncio.sleep(0.01)
    assert [type(crash) for crash in crashes] == [ZeroDivisionError]


async def test_a_task_that_will_not_end_is_counted() -> None:
    owner = TaskOwner()
    ends = asyncio.Event()

    async def stubborn() -> None:
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue

    task = owner.start(stubborn(), name="stubborn", on_crash=lambda _: None)
    await asyncio.sleep(0)
    assert await owner.close(0.05) == 1
    ends.set()
    await task


async def test_a_closed_owner_takes_nothing() -> None:
    owner = TaskOwner()
    await owner.close(1.0)
    with pytest.raises(RuntimeError, match="closed"):
        owner.start(asyncio.sleep(0), name="late", on_crash=lambda _: None)


def test_a_window_counts_only_what_is_in_it() -> None:
    counter = WindowCounter(limit=3, window=10.0)
    assert [counter.exceeded(at) for at in (0.0, 1.0, 2.0, 3.0)] == [False, False, False, True]
    assert not counter.exceeded(13.5)
    assert [counter.exceeded(at) for at in (14.0, 14.1, 14.2)] == [False, False, True]
