"""A lane runs one call at a time: priority first, cancelled waiters never, deadlines and bounds kept."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

import pytest
from antiphon.engines.errors import EngineBusyError, EngineTimeoutError, EngineUnavailableError
from antiphon.engines.lane import Lane


@pytest.fixture
async def lane() -> AsyncIterator[Lane]:
    made = Lane("test", waiting_limit=4)
    yield made
    await made.close()


class Gate:
    """A call that holds the lane until it is opened."""

    def __init__(self, lane: Lane) -> None:
        self.started, self.opened = threading.Event(), threading.Event()
        self.task = asyncio.create_task(lane.run(self._hold))

    def _hold(self) -> None:
        self.started.set()
        assert self.opened.wait(10)

    async def closed(self) -> Gate:
        await asyncio.to_thread(self.started.wait, 10)
        return self

    def open(self) -> None:
        self.opened.set()


async def test_gives_the_result_and_the_exception(lane: Lane) -> None:
    assert await lane.run(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        await lane.run(lambda: 1 / 0)
    assert lane.running == 0


async def test_smaller_priority_first_then_arrival(lane: Lane) -> None:
    gate = await Gate(lane).closed()
    order: list[str] = []
    waiting = []
    for name, priority in (("partial", 1), ("final", 0), ("partial 2", 1), ("final 2", 0)):
        waiting.append(asyncio.create_task(lane.run(order.append, name, priority=priority)))
        await asyncio.sleep(0)
    gate.open()
    await asyncio.gather(gate.task, *waiting)
    assert order == ["final", "final 2", "partial", "partial 2"]


async def test_cancelled_while_waiting_never_runs(lane: Lane) -> None:
    gate = await Gate(lane).closed()
    ran: list[str] = []
    dropped = asyncio.create_task(lane.run(ran.append, "dropped"))
    kept = asyncio.create_task(lane.run(ran.append, "kept"))
    await asyncio.sleep(0.01)
    dropped.cancel()
    await asyncio.sleep(0)
    assert lane.waiting == 1
    gate.open()
    await kept
    assert ran == ["kept"]


async def test_cancelled_while_running_keeps_the_lane_until_it_is_done(lane: Lane) -> None:
    gate = await Gate(lane).closed()
    gate.task.cancel()
    await asyncio.sleep(0)
    following = asyncio.create_task(lane.run(threading.get_ident))
    await asyncio.sleep(0.02)
    assert not following.done()
    gate.open()
    await following
    await asyncio.sleep(0.01)
    assert (lane.running, lane.waiting) == (0, 0)


async def test_one_too_many_is_refused(lane: Lane) -> None:
    gate = await Gate(lane).closed()
    waiting = [asyncio.create_task(lane.run(int)) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(EngineBusyError, match="4 calls waiting"):
        await lane.run(int)
    gate.open()
    await asyncio.gather(*waiting)


async def test_a_deadline_bounds_the_wait(lane: Lane) -> None:
    gate = await Gate(lane).closed()
    with pytest.raises(EngineTimeoutError):
        await lane.run(int, deadline=time.monotonic() + 0.02)
    gate.open()
    assert await lane.run(int) == 0


async def test_closing_refuses_who_waits_and_who_comes(lane: Lane) -> None:
    gate = await Gate(lane).closed()
    waiting = asyncio.create_task(lane.run(int))
    await asyncio.sleep(0)
    closing = asyncio.create_task(lane.close())
    await asyncio.sleep(0)
    gate.open()
    await asyncio.wait_for(closing, 5)
    with pytest.raises(EngineUnavailableError):
        await waiting
    with pytest.raises(EngineUnavailableError):
        await lane.run(int)


async def test_random_cancellation_loses_no_turn(lane: Lane) -> None:
    """However waiters come and go, the lane ends free and whoever stayed has run."""
    done: list[int] = []
    kept = []
    for round_ in range(60):
        task = asyncio.create_task(lane.run(done.append, round_))
        await asyncio.sleep(0.0005 * (round_ % 3))
        if round_ % 4 == 1:
            task.cancel()
        else:
            kept.append((round_, task))
        if lane.waiting > 2:
            await asyncio.sleep(0.005)
    await asyncio.gather(*(task for _, task in kept))
    await asyncio.sleep(0.01)
    assert {round_ for round_, _ in kept} <= set(done)
    assert (lane.running, lane.waiting) == (0, 0)
