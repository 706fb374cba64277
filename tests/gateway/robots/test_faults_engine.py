"""What happens to the house: its engine dies or hangs, the server is suspended or dies. Robots hold, and go on by themselves; their
simulators' logs must show that nothing stale, late or non-finite was executed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from antiphon.tests.gateway.robots.conftest import observation
from antiphon.tests.gateway.robots.journal import Acted, Lost, Record, Replied
from antiphon.tests.gateway.robots.proof import prove, spell
from antiphon.tests.gateway.robots.served import RobotServer, robot_of, served
from antiphon.tests.gateway.robots.simulated import SimulatedRobots, undisturbed


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RobotServer]:
    with served(tmp_path_factory.mktemp("faults"), process=True) as running:
        yield running


@pytest.fixture(scope="module")
def robots(server: RobotServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedRobots]:
    with SimulatedRobots(server.url, tmp_path_factory.mktemp("robots"), handovers=("rtc", "switch")) as running:
        yield running
    print(f"\n{prove(running.journals())}")


def statuses(journal: list[Record], since: float) -> set[str]:
    return {record.status for record in journal if isinstance(record, Replied) and record.at >= since}


async def test_an_engine_that_is_killed_in_mid_inference(server: RobotServer, robots: SimulatedRobots) -> None:
    """Another robot's engine: its request fails with a reason, the others do not notice."""
    await asyncio.to_thread(server.wait_until, lambda: server.healthz() == 200)
    began = time.monotonic()
    server.pace(0.2)
    async with robot_of(server, "policy=slow") as robot, robot_of(server, "policy=slow") as stock:
        await robot.send(observation(steps=32, sequence=1))
        await stock.send(observation(steps=32))
        await asyncio.to_thread(server.wait_until, lambda: server.running_at("slow") == 2)
        server.worker("slow").kill()
        failed = await robot.receive()
        assert (failed["status"], failed["code"], failed["echo"]["sequence"]) == ("failed", "engine_unavailable", 1)
        assert "actions" not in failed
        said = await stock.receive()
        assert said.startswith("engine_unavailable: ")
        assert (await stock.closed())[0] == 1011
        print(f"\ntold {time.monotonic() - began:.3f} s after the request")
        assert await asyncio.to_thread(server.healthz) == 503
        server.pace(0.0)
        back = await asyncio.to_thread(server.wait_until, lambda: server.healthz() == 200)
        print(f"well again {back:.1f} s later")
        assert "actions" in await robot.infer(sequence=2)
    undisturbed(robots, began)


def test_robots_hold_while_their_engine_is_dead_and_go_on_by_themselves(server: RobotServer, robots: SimulatedRobots) -> None:
    began = time.monotonic()
    server.worker("arm").kill()
    server.wait_until(lambda: server.healthz() == 503)
    back = server.wait_until(lambda: server.healthz() == 200)
    robots.wait_for_chunks()
    ends = time.monotonic()
    print(f"\nengine dead for {back:.1f} s, robots driven again {ends - began:.1f} s after the kill")
    for journal in robots.journals():
        seen = spell(journal, began, ends)
        assert "failed" in seen.answers, seen
        assert not seen.lost, "they keep their connections and sessions"
        assert any(isinstance(record, Acted) and record.held for record in journal if began < record.at < ends)
    prove(robots.journals())


def test_robots_whose_engine_hangs_are_told_in_time_and_it_is_restarted(server: RobotServer, robots: SimulatedRobots) -> None:
    """Stopped, not dead: nothing comes any more, and no connection breaks."""
    began = time.monotonic()
    hung = server.worker("arm")
    hung.suspend()
    server.wait_until(lambda: server.healthz() == 503)
    server.wait_until(lambda: server.healthz() == 200, within=60)
    robots.wait_for_chunks()
    print(f"\nrobots driven again {time.monotonic() - began:.1f} s after the engine hung")
    assert not hung.is_running()
    for journal in robots.journals():
        assert statuses(journal, began) & {"late", "failed"} or any(isinstance(record, Lost) and record.at > began for record in journal)
    prove(robots.journals())


async def test_a_suspended_server_sends_no_late_chunk(server: RobotServer, robots: SimulatedRobots) -> None:
    """SIGSTOP for a second, with a chunk under way whose deadline passes meanwhile."""
    await asyncio.to_thread(robots.wait_for_chunks)
    assert server.server.pid is not None
    server.pace(0.02)
    async with robot_of(server, "policy=slow") as robot:
        await robot.infer(sequence=1)
        for sequence, sleep in ((2, 0.0), (3, 0.05), (4, 0.15)):
            await robot.send(observation(sequence=sequence, deadline_ms=400))
            await asyncio.sleep(sleep)
            os.kill(server.server.pid, signal.SIGSTOP)
            await asyncio.sleep(1.0)
            os.kill(server.server.pid, signal.SIGCONT)
            late = await robot.receive()
            if "actions" in late:  # it was out before the server stopped, or has not been read by it until it went on
                assert sleep in (0.0, 0.15), late
            else:
                assert late["status"] == "late", late
    server.pace(0.0)
    await asyncio.to_thread(robots.wait_for_chunks)
    prove(robots.journals())


def test_an_engine_that_dies_while_nobody_uses_it_is_found_and_restarted(server: RobotServer) -> None:
    """By whoever asks after its health: no request is sent to a server that is said to be ill."""
    server.worker("slow").kill()
    server.wait_until(lambda: server.healthz() == 503)
    health = httpx.get(f"{server.url}/health", timeout=30, trust_env=False)
    assert health.status_code == 503
    assert health.json()["engines"]["slow-0"]["ok"] is False
    server.wait_until(lambda: server.healthz() == 200)


def test_a_server_that_is_killed_and_started_again_in_the_middle_of_episodes(
    server: RobotServer, robots: SimulatedRobots, tmp_path: Path
) -> None:
    """The last test: it takes the server along."""
    robots.wait_for_chunks()
    server.kill()
    killed = time.monotonic()
    with served(tmp_path / "second", port=server.port) as second:
        robots.wait_for_chunks()
        print(f"\nrobots driven again {time.monotonic() - killed:.1f} s after the server was killed")
        assert "arm-0" in {report["id"] for report in second.sessions()}, "who has a name has a new session under it"
        for journal in robots.journals():
            assert any(isinstance(record, Lost) and record.at > killed - 1 for record in journal)
            epochs = [record.echo["epoch"] for record in journal if isinstance(record, Replied) and record.at > killed]
            assert epochs[0] <= 1, "nothing goes on with an epoch of the old server's"
        prove(robots.journals())
        second.assert_well()
    # It was told to stop while it drove them: what it had said before is stale from the moment at which it says so.
    prove(robots.journals())
