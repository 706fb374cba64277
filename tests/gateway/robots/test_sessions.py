"""Sessions of robots: what supersedes what, fences, leases, evictions, two robots with one name, robots that vanish."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import websockets
from antiphon.tests.gateway.conftest import RunningServer, connected, eventually
from antiphon.tests.gateway.robots.conftest import observation, robot_at, serving_robots
from antiphon.tests.gateway.robots.pace import Pace


async def test_only_the_newest_observation_waits_and_each_is_answered_once(server: RunningServer, pace: Pace) -> None:
    pace.seconds = 0.03
    async with robot_at(server) as robot:
        for sequence in range(1, 9):
            await robot.send(observation(sequence=sequence))
            await asyncio.sleep(0.02)
        replies = {reply["echo"]["sequence"]: reply for reply in [await robot.receive() for _ in range(8)]}
        assert sorted(replies) == list(range(1, 9))
        chunks = [sequence for sequence, reply in replies.items() if "actions" in reply]
        assert 8 in chunks
        assert len(chunks) < 8
        assert {reply["status"] for reply in replies.values() if "actions" not in reply} == {"superseded"}


async def test_a_reset_fences_the_chunk_in_flight(server: RunningServer, pace: Pace) -> None:
    pace.seconds = 0.1
    async with robot_at(server) as robot:
        await robot.send(observation(sequence=1))
        await asyncio.sleep(0.15)
        await robot.send({"endpoint": "reset"})
        fenced, reset = await robot.receive(), await robot.receive()
        assert (fenced["status"], fenced["echo"]["sequence"]) == ("fenced", 1)
        assert reset["status"] == "reset successful"
        pace.seconds = 0.0
        chunk = await robot.infer(sequence=1)
        assert chunk["echo"]["epoch"] == reset["echo"]["epoch"]


async def test_a_new_episode_fences_the_old_ones_chunk(server: RunningServer, pace: Pace) -> None:
    async with robot_at(server) as robot:
        pace.seconds = 0.1
        await robot.send(observation(sequence=1, episode=1))
        await asyncio.sleep(0.15)
        await robot.send(observation(sequence=1, episode=2))
        pace.seconds = 0.0
        fenced, chunk = await robot.receive(), await robot.receive()
        assert (fenced["status"], fenced["echo"]["episode"]) == ("fenced", 1)
        assert chunk["echo"]["episode"] == 2
        assert "actions" in chunk


async def test_a_late_chunk_is_not_sent(server: RunningServer, pace: Pace) -> None:
    async with robot_at(server) as robot:
        pace.seconds = 0.1
        began = time.monotonic()
        late = await robot.infer(sequence=1, deadline_ms=150)
        assert (late["status"], "actions" in late) == ("late", False)
        assert time.monotonic() - began < 0.55, "it is told at the deadline, not when the chunk would be ready"


async def test_a_robot_that_vanishes_frees_its_slot_and_the_others_go_on(server: RunningServer, pace: Pace) -> None:
    pool = server.gateway.pool
    async with robot_at(server) as other:
        async with robot_at(server) as robot:
            pace.seconds = 0.05
            await robot.send(observation(steps=32))
            await eventually(lambda: pool.running()["tabletop"] == 1)
            robot.socket.transport.abort()
            gone = time.monotonic()
        await eventually(lambda: not pool.running()["tabletop"])
        assert time.monotonic() - gone < 1.0
        engine = pool.engine("tabletop")
        async with asyncio.timeout(1):
            while (await engine.health()).running:  # noqa: ASYNC110 - asked from outside
                await asyncio.sleep(0.01)
        pace.seconds = 0.0
        assert "actions" in await other.infer()
    await eventually(lambda: len(server.gateway.sessions) == 0)


async def refused(server: RunningServer, query: str) -> tuple[int, bytes]:
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with robot_at(server, query):
            pass
    return caught.value.response.status_code, caught.value.response.body or b""


async def test_two_robots_with_one_name(server: RunningServer) -> None:
    async with robot_at(server, "session_id=arm") as robot:
        status, said = await refused(server, "session_id=arm")
        assert status == 409
        assert b"session_in_use" in said
        assert b"'arm'" in said
        async with robot_at(server) as other:
            await other.send(observation(session_id="arm"))
            text = await other.receive()
            assert isinstance(text, str)
            assert text.startswith("session_in_use")
        assert "actions" in await robot.infer(), "the first one is undisturbed"
    assert (await refused(server, "session_id="))[0] == 400


async def test_a_named_session_outlives_its_connection(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving_robots({"lease_s": 0.5}) as server:
        async with robot_at(server, "session_id=arm") as robot:
            first = await robot.infer(episode="a")
            assert robot.metadata["session"]["resumed"] is False
        await eventually(lambda: server.gateway.sessions.all()[0].state(time.monotonic()) == "leased")
        async with robot_at(server, "session_id=arm") as robot:
            assert robot.metadata["session"]["resumed"] is True
            second = await robot.infer(episode="a")
            assert second["echo"]["epoch"] > first["echo"]["epoch"]
            assert second["echo"]["chunk_id"] > first["echo"]["chunk_id"]
        await eventually(lambda: len(server.gateway.sessions) == 0)
        async with robot_at(server, "session_id=arm") as robot:
            assert robot.metadata["session"]["resumed"] is False


async def test_a_request_may_name_its_session(server: RunningServer) -> None:
    async with robot_at(server) as robot:
        assert (await robot.infer())["echo"]["session_id"].startswith("robot_")
        named = await robot.infer(session_id="arm")
        assert named["echo"]["session_id"] == "arm"
        assert (await robot.infer(session_id="arm"))["echo"]["chunk_id"] == named["echo"]["chunk_id"] + 1
        await robot.infer(session_id="leg")
        back = await robot.infer(session_id="arm")
        assert back["echo"]["epoch"] > named["echo"]["epoch"]
        assert {live.session_id for live in server.gateway.sessions.all()} == {"arm", "leg"}


async def test_an_evicted_robot_is_told_and_not_silently_begun_anew(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    registry = {"capacity": 1, "waiting": 0, "evict_after_s": 0.0}
    async with serving_robots(registry=registry) as server:
        async with robot_at(server, "session_id=arm") as robot:
            async with robot_at(server, "session_id=leg") as other:
                assert "actions" in await other.infer()
                said = await robot.receive()
                assert said.startswith("session_evicted")
                assert (await robot.closed())[0] == 4000
                status, _ = await refused(server, "session_id=new")
                assert status == 429, "a robot that executes a chunk is not evicted"
            await eventually(lambda: server.gateway.sessions.all()[0].state(time.monotonic()) == "leased")
        status, body = await refused(server, "session_id=arm")
        assert status == 409
        assert b"session_evicted" in body
        assert b"'arm'" in body
        async with robot_at(server, "session_id=arm&reset=true") as robot:  # the leased one makes room
            assert "actions" in await robot.infer()
        status, body = await refused(server, "session_id=leg")
        assert b"session_evicted" in body


async def test_voice_and_robots_share_the_registry(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    registry = {"capacity": 2, "waiting": 0, "evict_after_s": 1000.0}
    async with serving_robots(registry=registry) as server, robot_at(server) as robot, connected(server) as client:
        assert (await refused(server, ""))[0] == 429
        assert "actions" in await robot.infer()
        await client.ask("hello")
        await client.until("response.done")


async def test_a_server_that_stops_tells_its_robots(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving_robots(server={"drain_s": 3.0}) as server:
        async with robot_at(server) as robot, robot_at(server, "session_id=left"):
            pass
        async with robot_at(server) as robot:
            warned = asyncio.create_task(robot.closed())
            server.stop.set()
            assert (await warned)[0] == 1012
    assert len(server.gateway.sessions) == 0


async def test_sixteen_robots_at_once_get_their_own_chunks(server: RunningServer) -> None:
    async def drive(number: int) -> None:
        async with robot_at(server, f"session_id=arm-{number}") as robot:
            for sequence in range(1, 13):
                reply = await robot.infer(sequence=sequence, seed=number)
                assert reply["echo"]["sequence"] == sequence
                assert (reply["echo"]["session_id"], reply["echo"]["seed"]) == (f"arm-{number}", number)

    await asyncio.gather(*(drive(number) for number in range(16)))
    health = await server.gateway.pool.engine("tabletop").health()
    assert health.extra["mean_rows_per_step"] > 1.5
