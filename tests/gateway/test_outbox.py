"""The outbox: what a fence has passed never leaves, order holds, bounds hold."""

from __future__ import annotations

import asyncio

import pytest
from antiphon.gateway.transports.outbox import Outbox
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule


def outbox(max_samples: int = 12_000, max_bytes: int = 10_000, max_events: int = 50) -> Outbox:
    return Outbox(max_samples=max_samples, max_bytes=max_bytes, max_events=max_events)


class OutboxMachine(RuleBasedStateMachine):
    """Random puts, pops and purges beside a plain list that does the same slowly."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = outbox()
        self.model: list[tuple[bytes, int | None, int]] = []
        self.epoch = 0
        self.count = 0

    @rule(age=st.integers(-1, 2), samples=st.integers(0, 2400), size=st.integers(1, 400), skeleton=st.booleans())
    def put(self, age: int, samples: int, size: int, skeleton: bool) -> None:
        self.count += 1
        data = f"{self.count:06}".encode().ljust(size, b".")
        epoch = None if skeleton else self.epoch - age
        taken = self.outbox.put(data, epoch=epoch, samples=samples, response_id="resp")
        if epoch is not None and epoch < self.epoch:
            assert taken  # dropped, which is no overflow
        elif taken:
            self.model.append((data, epoch, samples))

    @rule(step=st.integers(0, 2))
    def purge(self, step: int) -> None:
        self.epoch += step
        purged = self.outbox.purge(self.epoch)
        stale = [item for item in self.model if item[1] is not None and item[1] < self.epoch]
        self.model = [item for item in self.model if item not in stale]
        assert purged.events == len(stale)
        assert purged.samples == sum(samples for _, _, samples in stale)

    @precondition(lambda self: self.model)
    @rule()
    def pop(self) -> None:
        item = self.outbox.pop()
        assert item is not None
        assert item.epoch is None or item.epoch >= self.epoch
        assert (item.data, item.epoch, item.samples) == self.model.pop(0)

    @invariant()
    def counts_are_true(self) -> None:
        assert len(self.outbox) == len(self.model)
        assert self.outbox.samples == sum(samples for _, _, samples in self.model)
        assert self.outbox.size == sum(len(data) for data, _, _ in self.model)

    @invariant()
    def bounds_hold(self) -> None:
        if len(self.model) > 1:
            assert self.outbox.samples <= 12_000
            assert self.outbox.size <= 10_000
            assert len(self.outbox) <= 50


TestOutbox = OutboxMachine.TestCase


@given(epochs=st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=20), fence=st.integers(0, 6))
def test_nothing_older_than_the_fence_leaves(epochs: list[int | None], fence: int) -> None:
    box = outbox()
    for epoch in epochs:
        box.put(b"x", epoch=epoch)
    box.purge(fence)
    box.put(b"late", epoch=fence - 1)
    left = []
    while (item := box.pop()) is not None:
        left.append(item.epoch)
    assert left == [epoch for epoch in epochs if epoch is None or epoch >= fence]


def test_a_single_event_above_the_bound_is_taken_when_nothing_waits() -> None:
    box = outbox(max_bytes=10)
    assert box.put(b"x" * 100)
    assert not box.put(b"y")


async def test_wait_returns_when_something_was_queued_or_woken() -> None:
    box = outbox()
    waiting = asyncio.create_task(box.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    box.put(b"x")
    await asyncio.wait_for(waiting, 1)
    box.pop()
    waiting = asyncio.create_task(box.wait())
    await asyncio.sleep(0)
    box.wake()
    await asyncio.wait_for(waiting, 1)


async def test_wait_returns_at_once_while_something_is_queued() -> None:
    box = outbox()
    box.put(b"x")
    await asyncio.wait_for(box.wait(), 1)
    await asyncio.wait_for(box.wait(), 1)
    box.pop()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(box.wait(), 0.01)
