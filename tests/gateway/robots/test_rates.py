"""The bound on what a connection may send: whoever sends more is read more slowly, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from antiphon.gateway.errors import SettingsError
from antiphon.gateway.settings import load_settings
from antiphon.sessions.rates import TokenBucket
from antiphon.tests.gateway.robots.conftest import observation, robot_at, serving_robots
from hypothesis import given
from hypothesis import strategies as st

MB = 1_000_000


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 10**8)), max_size=50), st.integers(1, 10**8), st.integers(1, 10**8))
def test_whoever_waits_as_told_never_gets_more_than_the_burst_and_the_rate(sends: list[tuple[float, int]], burst: int, rate: int) -> None:
    bucket = TokenBucket(burst, burst / rate)
    now, taken = 0.0, 0
    for pause, size in sends:
        now += pause
        assert taken <= (burst + rate * now) * (1 + 1e-9) + 1, "before each send, all that came earlier is within the bound"
        taken += size
        now += bucket.borrow(now, size)


async def test_who_sends_too_fast_is_slowed_down_and_answered_all_the_same(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    robots = {"bytes_per_second": 4 * MB, "bytes_burst": 2 * MB, "max_frame_bytes": 4 * MB}
    async with serving_robots(robots) as server, robot_at(server) as heavy, robot_at(server) as light:
        began = time.monotonic()
        sending = asyncio.create_task(send_all(heavy, [observation(sequence=number, extra=bytes(MB)) for number in range(10)]))
        answers = 0
        while answers < 10:
            trip = time.monotonic()
            assert "actions" in await light.infer()
            assert time.monotonic() - trip < 2, "the bound is each connection's own"
            answers += len(await answered(heavy))
        await sending
        took = time.monotonic() - began
        assert took > 1.5, "10 MB, of which 2 at once, at 4 a second; the last one is answered before its own pause"
        assert took < 20


async def send_all(robot: Any, messages: list[Any]) -> None:
    for message in messages:
        await robot.send(message)


async def answered(robot: Any) -> list[Any]:
    """What there is within a moment."""
    found = []
    try:
        while True:
            async with asyncio.timeout(0.05):
                found.append(await robot.receive())
    except TimeoutError:
        return found


async def test_without_a_bound_nothing_waits(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings().robots.byte_budget() is None
    async with serving_robots() as server, robot_at(server) as robot:
        for number in range(5):
            assert "actions" in await robot.infer(sequence=number, extra=bytes(30 * MB))


def test_a_rate_that_would_outlast_keepalive_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"bytes_per_second is too small for max_frame_bytes.*Set it to 6710887 or more"):
        load_settings(robots={"bytes_per_second": MB})
    assert load_settings(robots={"bytes_per_second": 6_710_887}).robots.byte_budget() is not None
    assert load_settings(robots={"bytes_per_second": MB, "max_frame_bytes": 10 * MB}).robots.byte_budget() is not None
