"""The realtime gate between processes: it holds, it opens, and the dead do not hold it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from antiphon.engines import gate as gates
from antiphon.engines.gate import GateReader, GateWriter, alive
from antiphon.engines.interface import EngineRequest, WorkClass
from antiphon.engines.messages import ListenBody
from antiphon.engines.pool import EnginePool

from .fakes import FakeEngine, chat, request


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def reader(path: Path) -> Iterator[GateReader]:
    made = GateReader(path)
    yield made
    made.close()


def wait_for(condition: object, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def holder(path: Path) -> subprocess.Popen[bytes]:
    """A process that holds the gate until it is killed."""
    script = (
        "import sys, time; from pathlib import Path; from antiphon.engines.gate import GateWriter\n"
        "gate = GateWriter(Path(sys.argv[1]))\n"
        "with gate.working():\n"
        "    print(flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_it_is_held_while_something_works_and_live_for_a_while_after(path: Path, reader: GateReader) -> None:
    writer = GateWriter(path)
    assert not reader.busy()
    assert not reader.live(60.0)
    with writer.working():
        with writer.working():
            assert reader.busy()
        assert reader.busy()
    assert not reader.busy()
    assert reader.live(60.0)
    time.sleep(0.02)
    assert not reader.live(0.01)
    writer.close()
    writer.close()


def test_another_process_holds_it_and_its_death_opens_it(path: Path, reader: GateReader) -> None:
    process = holder(path)
    assert reader.busy()
    process.kill()
    wait_for(lambda: not reader.busy())  # before anybody has waited for the child
    process.wait()
    assert not alive(process.pid)


def test_several_gateways_hold_it_and_a_slot_of_the_dead_is_used_again(
    path: Path, reader: GateReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = GateWriter(path), GateWriter(path)
    with first.working():
        with second.working():
            pass
        assert reader.busy()
    monkeypatch.setattr(gates, "SLOTS", 3)
    process = holder(path)  # the third slot (its process has more)
    third = GateWriter(path)
    with third.working():
        assert third._row == -1  # no slot free: work goes on, ungated
    process.kill()
    process.wait()
    fourth = GateWriter(path)
    with fourth.working():
        assert fourth._row == 2
        assert reader.busy()
    for writer in (first, second, third, fourth):
        writer.close()


def test_work_that_gives_no_sign_of_life_does_not_hold_it(path: Path, reader: GateReader, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = GateWriter(path)
    with writer.working():
        assert reader.busy()
        monkeypatch.setattr(gates, "STALE_S", 0.05)
        time.sleep(0.06)
        assert not reader.busy()
    writer.close()


def test_a_file_that_cannot_be_made_leaves_the_gate_open(tmp_path: Path) -> None:
    writer = GateWriter(tmp_path / "missing" / "gate")
    with writer.working():
        pass
    writer.close()
    with pytest.raises(OSError, match="missing"):
        GateReader(tmp_path / "missing" / "gate")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"):
        GateReader(tmp_path / "link")


def test_the_file_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gates.ENVIRONMENT, raising=False)
    assert str(os.getuid()) in gates.default_path().name
    monkeypatch.setenv(gates.ENVIRONMENT, "/somewhere/else")
    assert gates.default_path() == Path("/somewhere/else")


@pytest.mark.parametrize(
    ("work_class", "holds"),
    [(WorkClass.REALTIME, True), (WorkClass.ACTION, True), (WorkClass.INTERACTIVE, False), (WorkClass.BATCH, False)],
)
async def test_the_pool_holds_it_while_live_work_is_computed(path: Path, reader: GateReader, work_class: WorkClass, holds: bool) -> None:
    writer = GateWriter(path)
    pool = EnginePool(gate=writer)
    pool.add("e", chat("one two", pause=0.1))
    await pool.open()
    stream = pool.stream("e", request(work_class=work_class))
    first = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.05)
    assert reader.busy() is holds
    await first
    assert not reader.busy()  # nobody waits for it now
    second = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.02)
    assert reader.busy() is holds
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert not reader.busy()
    await pool.close()
    writer.close()


async def test_a_live_feed_is_no_work(path: Path, reader: GateReader) -> None:
    from antiphon.engines.feed import AudioFeed
    from antiphon.engines.interface import Role

    writer = GateWriter(path)
    pool = EnginePool(gate=writer)
    pool.add("vad", FakeEngine(Role.VAD, ["x"], pause=0.1))
    await pool.open()
    async with aclosing(pool.stream("vad", EngineRequest(request_id="r", body=ListenBody(AudioFeed())))) as stream:
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.03)
        assert not reader.busy()
        await waiting
    await pool.close()
    writer.close()
