"""One clock for all calls: absolute deadlines, phases, missed ticks."""

from __future__ import annotations

import asyncio
import time

from antiphon.gateway.transports.webrtc.ticker import PERIOD, PHASES, Ticker


async def test_ticks_come_every_20_ms_and_do_not_drift() -> None:
    ticker, at = Ticker(), []
    number = ticker.add(lambda now, missed: at.append((now, missed)))
    await asyncio.sleep(0.5)
    ticker.remove(number)
    count = len(at)
    due = (at[-1][0] - at[0][0]) / PERIOD + 1
    assert abs(count + sum(missed for _, missed in at) - due) <= 1
    await asyncio.sleep(0.05)
    assert len(at) == count
    assert ticker._timer is None


async def test_members_are_spread_over_the_phases() -> None:
    ticker = Ticker()
    for _ in range(3 * PHASES):
        ticker.add(lambda now, missed: None)
    assert {len(phase) for phase in ticker._phases} == {3}
    ticker.close()


async def test_a_stalled_process_is_told_what_it_missed_and_serves_each_member_once() -> None:
    ticker = Ticker()
    seen: list[list[int]] = [[], [], []]
    for index in range(3):
        ticker.add(lambda now, missed, index=index: seen[index].append(missed))  # type: ignore[misc]
    await asyncio.sleep(0.05)
    for record in seen:
        record.clear()
    time.sleep(0.21)  # noqa: ASYNC251 - the stall
    await asyncio.sleep(0.012)
    ticker.close()
    for record in seen:
        assert 1 <= len(record) <= 2
        assert 8 <= sum(record) <= 11
    assert ticker.missed >= 8
    assert ticker.worst > 0.15


async def test_a_fault_of_what_is_told_of_ticks_does_not_stop_them() -> None:
    faults: list[Exception] = []

    def broken(members: int) -> None:
        raise ValueError("broken")

    ticker, ticks = Ticker(failed=faults.append, ticked=broken), []
    ticker.add(lambda now, missed: ticks.append(now))
    await asyncio.sleep(0.1)
    ticker.close()
    assert len(ticks) >= 3
    assert len(faults) >= 3


async def test_one_members_fault_does_not_stop_the_others() -> None:
    faults: list[Exception] = []
    ticker, ticks = Ticker(failed=faults.append), []

    def broken(now: float, missed: int) -> None:
        raise ValueError("broken")

    ticker.add(broken)
    ticker.add(lambda now, missed: ticks.append(now))
    await asyncio.sleep(0.1)
    ticker.close()
    assert len(ticks) >= 3
    assert len(faults) >= 3
