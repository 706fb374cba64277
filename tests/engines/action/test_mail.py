"""From the compute thread to the loop: everything arrives, in order, for few wake-ups."""

from __future__ import annotations

import asyncio
import threading

import pytest
from antiphon.engines.action.mail import Mail
from antiphon.engines.errors import EngineError

PATIENCE = 10.0


async def test_everything_that_threads_post_arrives() -> None:
    mail, loop = Mail(), asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(4000)]

    def post(first: int) -> None:
        for number in range(first, len(futures), 4):
            mail.post(futures[number], number)

    threads = [threading.Thread(target=post, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*futures) == list(range(4000))
    for thread in threads:
        thread.join()


async def test_what_is_posted_while_the_loop_is_busy_wakes_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mail, loop = Mail(), asyncio.get_running_loop()
    calls = 0
    call_soon = loop.call_soon_threadsafe

    def counted(*args: object) -> object:
        nonlocal calls
        calls += 1
        return call_soon(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    futures = [loop.create_future() for _ in range(20)]
    thread = threading.Thread(target=lambda: [mail.post(future, None) for future in futures])
    thread.start()
    thread.join()  # the loop is busy meanwhile
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*futures)
    assert calls == 1


async def test_errors_are_raised_and_who_gave_up_is_left_alone() -> None:
    mail, loop = Mail(), asyncio.get_running_loop()
    wrong, gone = loop.create_future(), loop.create_future()
    gone.cancel()
    mail.post(gone, 1)
    mail.post(wrong, EngineError("no"))
    with pytest.raises(EngineError):
        await asyncio.wait_for(wrong, PATIENCE)


def test_a_closed_loop_is_no_fault_and_the_next_one_is_served() -> None:
    mail = Mail()
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    mail.post(future, 1)
    assert not future.done()

    async def later() -> int:
        again: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        mail.post(again, 2)
        return await asyncio.wait_for(again, PATIENCE)

    assert asyncio.run(later()) == 2
