"""The whole loop against the real server with the table-top policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from antiphon.clients.robot import ControlSettings, EpisodeLog, Mode, Refused, RobotClient, read_log, replay
from antiphon.tests.clients.robot.openpi_like import until
from antiphon.tests.gateway.conftest import RunningServer
from antiphon.tests.gateway.robots.conftest import PROMPT, STATE, serving_robots
from antiphon.tests.gateway.robots.pace import Pace

HOLD = [0.0, 0.0, 0.0, -1.0]
STOP = [0.0, 0.0, 0.0, 1.0]


class Gantry:
    """The table-top scene's tip, without its physics: it goes where it is told, 2 cm at most in a step."""

    def __init__(self) -> None:
        self.state = STATE.copy()
        self.acted: list[Any] = []

    def observe(self) -> dict[str, Any]:
        return {"observation/state": self.state, "prompt": PROMPT}

    def act(self, action: Any) -> None:
        assert action.dtype == np.float32
        assert np.abs(action).max() <= 1
        self.acted.append(action)
        before = self.state[:3].copy()
        self.state[:3] = np.clip(before + action[:3] * 0.02, [-0.3, -0.3, 0.02], [0.3, 0.3, 0.3])
        self.state[3:6] = self.state[:3] - before


@pytest.fixture
async def server(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningServer]:
    monkeypatch.chdir(tmp_path)
    async with serving_robots() as running:
        yield running


def client_of(server: RunningServer, robot: Gantry, log: EpisodeLog | None = None, **options: Any) -> RobotClient:
    settings = ControlSettings(hold_limit_s=20.0, **options.pop("settings", {}))
    url = server.url.replace("http", "ws", 1) + "/v1/realtime/robot/openpi"
    return RobotClient(url, robot, hold=HOLD, stop=STOP, settings=settings, log=log, **options)


async def test_a_robot_is_driven_to_the_cube_it_is_told_about_and_its_log_replays(server: RunningServer, tmp_path: Path) -> None:
    robot = Gantry()
    before = np.linalg.norm(robot.state[:2] - robot.state[7:9])
    with EpisodeLog(tmp_path / "episode.log") as log:
        client = client_of(server, robot, log, session_id="arm", settings={"jump_dims": 3})
        figures = await client.run(steps=50)
    assert figures.executed > 25
    assert figures.requests >= figures.chunks > 3
    assert not set(figures.refused) - {"superseded", "late"}
    assert np.linalg.norm(robot.state[:2] - robot.state[7:9]) < before / 2
    records = read_log(log.path)
    prefixes = [record["prefix"] for record in records if record.get("kind") == "ask"]
    assert prefixes[0] == 0
    assert max(prefixes) >= 1, "chunks continue what is being executed"
    again = replay(records)
    assert not again.differences
    assert np.array_equal(np.stack(again.actions), np.stack(robot.acted[:-1]))


async def test_a_new_episode_with_a_chunk_on_its_way(server: RunningServer, pace: Pace, tmp_path: Path) -> None:
    robot = Gantry()
    with EpisodeLog(tmp_path / "episode.log") as log:
        client = client_of(server, robot, log, settings={"rate": 50.0}, session_id="arm")
        running = asyncio.create_task(client.run())
        await until(lambda: client.statistics().chunks >= 2)
        pace.seconds = 0.05
        await until(lambda: bool(server.gateway.pool.running()["tabletop"]))
        client.new_episode("second")
        pace.seconds = 0.0
        chunks = client.statistics().chunks
        await until(lambda: client.statistics().chunks >= chunks + 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    records = read_log(log.path)
    assert not replay(records).differences
    begun = max(at for at, record in enumerate(records) if record.get("kind") == "begin")
    after = [record for record in records[begun:] if record.get("kind") == "step"]
    assert after[0]["mode"] == Mode.HOLD
    fence = max(record["sequence"] for record in records[:begun] if record.get("kind") == "ask")
    executed = [record["sequence"] for record in after if record["sequence"] is not None]
    assert executed
    assert min(executed) > fence
    assert len(server.gateway.sessions) == 1, "the named session went on"


async def test_a_session_that_the_operator_ended_stops_the_robot(server: RunningServer) -> None:
    robot = Gantry()
    client = client_of(server, robot)
    running = asyncio.create_task(client.run())
    await until(lambda: client.statistics().chunks >= 1)
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        (report,) = (await http.get("/v1/realtime/sessions")).json()["data"]
        await http.delete(f"/v1/realtime/sessions/{report['id']}")
    with pytest.raises(Refused):
        await asyncio.wait_for(running, 10)
    assert robot.acted[-1].tolist() == STOP


async def test_a_wrong_key_is_a_sentence(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving_robots(server={"api_keys": ("secret",)}) as server:
        with pytest.raises(Refused, match="key"):
            await client_of(server, Gantry(), api_key="wrong").run(steps=1)
        assert (await client_of(server, Gantry(), api_key="secret").run(steps=2)).steps == 2
