"""The pool: leases, waiting, cancellation, aborts, and replicas that fall ill."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import aclosing

import pytest
from antiphon.engines.errors import EngineBusyError, EngineError, EngineTimeoutError, EngineUnavailableError
from antiphon.engines.interface import Role, WorkClass
from antiphon.engines.messages import TextChunk
from antiphon.engines.pool import EnginePool, PoolOptions
from antiphon.engines.replica import ReplicaState
from hypothesis import given, settings
from hypothesis import strategies as st

from .fakes import FakeEngine, chat, failing, request


async def opened(*engines: FakeEngine, options: PoolOptions | None = None, reserved: int = 0) -> EnginePool:
    pool = EnginePool(options or PoolOptions(seed=1))
    for engine in engines:
        pool.add("e", engine, reserved=reserved)
    await pool.open()
    return pool


async def drain(pool: EnginePool, **keywords: object) -> list[object]:
    async with aclosing(pool.stream("e", request(**keywords))) as chunks:
        return [chunk async for chunk in chunks]


async def test_a_stream_takes_a_slot_and_gives_it_back() -> None:
    pool = await opened(chat("one two"))
    stream = pool.stream("e", request())
    assert await anext(stream) == TextChunk("one")
    assert pool.running() == Counter(e=1)
    await stream.aclose()
    assert pool.running() == Counter()
    assert pool.snapshot()[0].replicas[0].outcomes == {"aborted": 1}


async def test_the_next_in_line_gets_the_slot_and_realtime_goes_first() -> None:
    pool = await opened(chat("x"))
    lease = await pool.acquire("e")
    order: list[str] = []

    async def wait(name: str, work_class: WorkClass) -> None:
        async with await pool.acquire("e", work_class):
            order.append(name)

    async with asyncio.TaskGroup() as group:
        for name, work_class in (("batch", WorkClass.BATCH), ("live", WorkClass.REALTIME), ("action", WorkClass.ACTION)):
            group.create_task(wait(name, work_class))
        await asyncio.sleep(0)
        assert pool.snapshot()[0].waiting[WorkClass.REALTIME] == 1
        lease.release()
        lease.release()  # harmless
    assert order == ["live", "action", "batch"]


async def test_no_slot_before_the_deadline() -> None:
    pool = await opened(chat("x"))
    async with await pool.acquire("e"):
        began = time.monotonic()
        with pytest.raises(EngineBusyError, match="in time"):
            await pool.acquire("e", deadline=began + 0.05)
        assert time.monotonic() - began < 0.5
        assert pool.snapshot()[0].waiting[WorkClass.REALTIME] == 0
    async with await pool.acquire("e"):
        pass


async def test_a_deadline_in_the_moment_of_a_cancellation_loses_no_slot() -> None:
    """The ticket of one who has been cancelled but has not run yet must be out of the line when its deadline passes."""
    pool = await opened(chat("x"))
    lease = await pool.acquire("e")
    waiter = asyncio.create_task(pool.acquire("e", deadline=time.monotonic() + 60))
    next_one = asyncio.create_task(pool.acquire("e"))
    await asyncio.sleep(0)
    group = pool._group("e")
    (ticket, _) = list(group.futures)
    waiter.cancel()
    pool._expire(group, ticket)  # its timer, before the cancelled task runs
    lease.release()
    (await asyncio.wait_for(next_one, 1)).release()
    await asyncio.gather(waiter, return_exceptions=True)
    assert pool.running() == Counter()


async def test_a_full_line_refuses_at_once() -> None:
    pool = await opened(chat("x"), options=PoolOptions(max_waiting=1))
    async with await pool.acquire("e"):
        waiter = asyncio.create_task(pool.acquire("e"))
        await asyncio.sleep(0)
        with pytest.raises(EngineBusyError, match="waiting already"):
            await pool.acquire("e")
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)


async def test_a_slot_granted_to_someone_who_was_just_cancelled_is_not_lost() -> None:
    pool = await opened(chat("x"))
    lease = await pool.acquire("e")
    waiter = asyncio.create_task(pool.acquire("e"))
    await asyncio.sleep(0)
    lease.release()  # grants the slot to the waiter ...
    waiter.cancel()  # ... which is cancelled before it runs
    await asyncio.gather(waiter, return_exceptions=True)
    assert pool.running() == Counter()


async def test_a_slot_freed_after_the_waiter_was_cancelled_is_not_lost() -> None:
    pool = await opened(chat("x"))
    lease = await pool.acquire("e")
    waiter = asyncio.create_task(pool.acquire("e"))
    await asyncio.sleep(0)
    waiter.cancel()
    lease.release()
    await asyncio.gather(waiter, return_exceptions=True)
    assert pool.running() == Counter()


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_random_work_and_cancellations_leak_nothing(seed: int) -> None:
    chance = random.Random(seed)

    async def one(pool: EnginePool) -> None:
        work_class = chance.choice(list(WorkClass))
        deadline = time.monotonic() + chance.choice([0.001, 0.01, 5.0])
        stop_after = chance.randrange(4)
        try:
            async with aclosing(
                pool.stream("e", request(work_class=work_class, deadline=deadline, session_id=chance.choice("abc")))
            ) as chunks:
                async for _ in chunks:
                    stop_after -= 1
                    if stop_after < 0:
                        break
        except EngineBusyError:
            pass

    async def scene() -> None:
        engines = [chat("a b c", slots=2, pause=0.001), chat("a b", slots=1, unwind=0.001)]
        pool = await opened(*engines)
        tasks = [asyncio.create_task(one(pool)) for _ in range(25)]
        for _ in range(12):
            await asyncio.sleep(chance.random() * 0.003)
            chance.choice(tasks).cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert pool.running() == Counter()
        assert all(count == 0 for count in pool.snapshot()[0].waiting.values())
        for engine in engines:
            assert engine.most <= engine.slots
            assert engine.running == 0
            assert engine.started == engine.ended
        await pool.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scene())


async def test_an_engine_that_does_not_stop_is_left_behind_in_bounded_time() -> None:
    pool = await opened(chat("a b c", unwind=5.0), options=PoolOptions(abort=0.05))
    stream = pool.stream("e", request())
    await anext(stream)
    began = time.monotonic()
    await stream.aclose()
    assert time.monotonic() - began < 1.0
    assert pool.running() == Counter()
    assert pool.snapshot()[0].replicas[0].outcomes == {"stuck": 1}


async def test_a_stream_that_gives_nothing_times_out() -> None:
    pool = await opened(chat("a", pause=10.0), options=PoolOptions(stall=0.05))
    with pytest.raises(EngineTimeoutError, match="gave nothing"):
        await drain(pool)
    assert pool.running() == Counter()


async def test_a_replica_that_keeps_failing_is_taken_out_and_tried_again() -> None:
    engine = failing(Role.CHAT)
    pool = await opened(engine, options=PoolOptions(failures=2, backoff=0.05))
    for _ in range(2):
        with pytest.raises(EngineError, match="broken"):
            await drain(pool)
    assert pool.snapshot()[0].replicas[0].state is ReplicaState.DOWN
    assert not (await pool.health())["e-0"].ok
    with pytest.raises(EngineUnavailableError, match="out of service"):
        await drain(pool)
    await asyncio.sleep(0.15)
    assert pool.snapshot()[0].replicas[0].state is ReplicaState.TRIAL
    with pytest.raises(EngineError, match="broken"):
        await drain(pool)  # the trial fails: down again, for longer
    assert pool.snapshot()[0].replicas[0].state is ReplicaState.DOWN
    engine.chunks = [TextChunk("well")]
    await asyncio.sleep(0.25)
    assert await drain(pool) == [TextChunk("well")]
    assert pool.snapshot()[0].replicas[0].state is ReplicaState.UP
    await pool.close()


async def test_an_ill_engine_is_opened_anew_and_its_twin_takes_the_work() -> None:
    ill, twin = failing(Role.CHAT), chat("hello")
    pool = await opened(ill, twin, options=PoolOptions(failures=1, backoff=0.05, seed=3))
    ill.well = False
    for _ in range(8):
        if ill.started:
            break
        try:
            await drain(pool)
        except EngineError:
            break
    assert [str(replica.state) for replica in pool.snapshot()[0].replicas] == ["down", "up"]
    assert len(await drain(pool)) == 2
    await asyncio.sleep(0.15)
    assert (ill.closed, ill.opened) == (1, 2)
    await pool.close()


async def test_refused_requests_do_not_count_as_illness() -> None:
    from antiphon.engines.errors import InvalidRequestError

    pool = await opened(FakeEngine(Role.CHAT, [InvalidRequestError("no such voice")]), options=PoolOptions(failures=1))
    for _ in range(3):
        with pytest.raises(InvalidRequestError):
            await drain(pool)
    assert pool.snapshot()[0].replicas[0].state is ReplicaState.UP


async def test_closing_tells_who_waits_and_refuses_the_rest() -> None:
    engine = chat("x")
    pool = await opened(engine)
    async with await pool.acquire("e"):
        waiter = asyncio.create_task(pool.acquire("e"))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(EngineUnavailableError, match="closing"):
            await waiter
    with pytest.raises(EngineUnavailableError, match="not open"):
        await pool.acquire("e")
    assert engine.closed == 1


async def test_when_one_engine_cannot_open_the_others_are_closed() -> None:
    class Broken(FakeEngine):
        async def open(self) -> None:
            raise EngineUnavailableError("no weights")

    good = chat("x")
    pool = EnginePool()
    pool.add("good", good)
    pool.add("bad", Broken(Role.CHAT, []))
    with pytest.raises(EngineUnavailableError, match="no weights"):
        await pool.open()
    assert good.closed == 1


async def test_names_and_aliases() -> None:
    pool = await opened(chat("x"))
    pool.alias("gpt-realtime", "e")
    async with await pool.acquire("gpt-realtime"):
        assert pool.running() == Counter(e=1)
    assert "gpt-realtime" in pool
    assert pool.names(Role.CHAT) == ["e"]
    with pytest.raises(EngineUnavailableError, match="there are: e"):
        await pool.acquire("nobody")
    with pytest.raises(EngineError, match="needs another name"):
        pool.add("e", FakeEngine(Role.ASR, []))


async def test_an_engine_in_the_background_holds_nobody_up() -> None:
    quick, slow = chat("now"), chat("later")
    may_open = asyncio.Event()
    open_slow = slow.open

    async def wait_and_open() -> None:
        await may_open.wait()
        await open_slow()

    slow.open = wait_and_open  # type: ignore[method-assign]
    pool = EnginePool(PoolOptions(seed=1))
    pool.add("e", quick)
    pool.add("slow", slow, background=True)
    await pool.open()
    assert (await drain(pool))[0] == TextChunk("now")
    with pytest.raises(EngineUnavailableError, match="is being started"):
        await pool.acquire("slow")
    assert "started" in (await pool.health())["slow-0"].detail
    may_open.set()
    async with asyncio.timeout(5):
        while pool.snapshot()[1].replicas[0].state is not ReplicaState.UP:  # noqa: ASYNC110 - the pool tells nobody
            await asyncio.sleep(0.01)
    async with aclosing(pool.stream("slow", request())) as chunks:
        assert await anext(chunks) == TextChunk("later")
    await pool.close()


async def test_a_robot_waits_for_an_engine_that_is_still_opening() -> None:
    """A stock robot's client does not come back after an error."""
    slow = chat("later")
    may_open = asyncio.Event()
    open_slow = slow.open

    async def wait_and_open() -> None:
        await may_open.wait()
        await open_slow()

    slow.open = wait_and_open  # type: ignore[method-assign]
    pool = EnginePool(PoolOptions(seed=1, wait={WorkClass.ACTION: 0.0}))
    pool.add("slow", slow, background=True)
    await pool.open()
    waiting = asyncio.create_task(pool.acquire("slow", WorkClass.ACTION))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    with pytest.raises(EngineBusyError):
        await pool.acquire("slow", WorkClass.ACTION, deadline=time.monotonic() + 0.01)
    may_open.set()
    async with asyncio.timeout(5):
        (await waiting).release()
    await pool.close()


async def test_a_robot_that_waits_is_told_when_the_engine_cannot_be_opened() -> None:
    broken = chat("x")

    async def cannot() -> None:
        await asyncio.sleep(0.02)
        raise EngineError("no weights")

    broken.open = cannot  # type: ignore[method-assign]
    pool = EnginePool(PoolOptions(seed=1))
    pool.add("broken", broken, background=True)
    await pool.open()
    with pytest.raises(EngineUnavailableError, match="could not be opened"):
        async with asyncio.timeout(5):
            await pool.acquire("broken", WorkClass.ACTION)
    with pytest.raises(EngineUnavailableError, match="out of service"):
        await pool.acquire("broken", WorkClass.ACTION)
    await pool.close()


async def test_an_engine_on_demand_is_opened_once_when_it_is_first_asked_for() -> None:
    engine = chat("x")
    opened: list[int] = []
    open_engine = engine.open

    async def open_slowly() -> None:
        opened.append(1)
        await asyncio.sleep(0.02)
        await open_engine()

    engine.open = open_slowly  # type: ignore[method-assign]
    pool = EnginePool(PoolOptions(seed=1))
    pool.add("e", engine, on_demand=True)
    await pool.open()
    await asyncio.sleep(0.05)
    assert not opened
    assert (await pool.health())["e-0"].ok
    async with asyncio.timeout(5):
        leases = await asyncio.gather(*(pool.acquire("e", WorkClass.ACTION) for _ in range(1)))
    leases[0].release()
    assert (await drain(pool))[0] == TextChunk("x")
    assert len(opened) == 1
    await pool.close()


async def test_a_background_engine_that_cannot_open_is_tried_again() -> None:
    stubborn = chat("again")
    open_it, tries = stubborn.open, 0

    async def fail_twice() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            stubborn.well = False
            raise EngineError("no memory")
        stubborn.well = True
        await open_it()

    stubborn.open = fail_twice  # type: ignore[method-assign]
    pool = EnginePool(PoolOptions(seed=1, backoff=0.01))
    pool.add("e", stubborn, background=True)
    await pool.open()
    async with asyncio.timeout(5):
        while pool.snapshot()[0].replicas[0].state is ReplicaState.DOWN:  # noqa: ASYNC110 - the pool tells nobody
            await asyncio.sleep(0.01)
    assert tries == 3
    assert (await drain(pool))[0] == TextChunk("again")
    await pool.close()


async def test_an_engine_that_nobody_uses_is_mended_once_it_says_that_it_is_ill() -> None:
    """Whoever asks after its health keeps requests away from an ill server, so no request would ever find out."""
    engine = failing(Role.CHAT)
    pool = await opened(engine, options=PoolOptions(backoff=0.05))
    engine.well = False
    assert not (await pool.health())["e-0"].ok
    assert pool.snapshot()[0].replicas[0].state is ReplicaState.DOWN
    await asyncio.sleep(0.3)
    assert (engine.closed, engine.opened) == (1, 2)
    assert pool.snapshot()[0].replicas[0].state is ReplicaState.TRIAL
    engine.well = True
    assert (await pool.health())["e-0"].ok
    await pool.close()
