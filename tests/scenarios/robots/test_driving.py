"""Simulated robots over the wire, driven by the policy that ships."""

from __future__ import annotations

import asyncio

import httpx
import numpy as np
import pytest
from antiphon.clients.robot import ControlSettings, PolicyUnreachable, RobotClient
from antiphon.robot.sim.worlds import META_WORLD, TABLETOP
from antiphon.scenarios.robots.delayed_link import DelayedLink
from antiphon.scenarios.robots.driving import ANY_TASK, Episode, Played, SimulatedRobot, drive, robot_url
from antiphon.scenarios.robots.worlds import said
from antiphon.tests.gateway.conftest import RunningServer


def episode(task: str, seed: int = 1) -> Episode:
    return Episode(task=task, prompt=said(TABLETOP, task), seed=seed)


async def metrics_of(server: RunningServer) -> str:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        return (await http.get("/metrics")).text


def test_an_episode_is_over_when_its_task_is_done_and_the_world_stands_still_then() -> None:
    robot = SimulatedRobot.of(TABLETOP)
    robot.begin("lift-red", "lift the red cube", 3)
    while not robot.over:
        robot.act(robot.simulation.expert())
    assert robot.succeeded
    assert robot.did == "lift-red"
    assert [step for step, _ in robot.log] == list(range(robot.steps))
    state = robot.observe()["observation/state"]
    robot.act(np.ones(4, np.float32))
    assert np.array_equal(robot.observe()["observation/state"], state)
    assert len(robot.log) == robot.steps


def test_an_episode_has_so_many_steps() -> None:
    robot = SimulatedRobot(TABLETOP.simulate(), limit=5)
    robot.begin("lift-red", "lift the red cube", 3)
    for _ in range(9):
        robot.act(robot.hold())
    assert (robot.steps, robot.over, robot.succeeded) == (5, True, False)


def test_where_anything_counts_what_was_done_is_told() -> None:
    robot = SimulatedRobot.of(TABLETOP)
    robot.begin(ANY_TASK, "whatever you like", 3)
    robot.simulation.retask("place-blue-yellow")
    while not robot.over:
        robot.simulation.retask("place-blue-yellow")
        robot.act(robot.simulation.expert())
    assert robot.did == "place-blue-yellow"


def test_anything_cannot_count_where_each_task_has_its_world() -> None:
    robot = SimulatedRobot.of(META_WORLD)
    with pytest.raises(ValueError, match="which one"):
        robot.begin(ANY_TASK, "whatever you like", 3)
    robot.close()


async def test_two_robots_at_once_do_as_they_are_told_and_the_server_counts_it(server: RunningServer) -> None:
    robots = [SimulatedRobot.of(TABLETOP) for _ in range(2)]
    tasks = [("lift-red", "lift-green", "lift-blue"), ("lift-blue", "lift-red", "lift-green")]
    watched: list[int] = []

    def watch(client: RobotClient, robot: SimulatedRobot, number: int) -> None:
        watched.append(number)

    runs = await asyncio.gather(
        *(
            drive(robot_url(server.url), robot, [episode(task, 5 + number) for number, task in enumerate(mine)], watch=watch)
            for robot, mine in zip(robots, tasks, strict=True)
        )
    )
    played: list[Played] = [one for run in runs for one in run]
    assert [one.episode.task for one in played] == [*tasks[0], *tasks[1]]
    assert sum(one.succeeded for one in played) >= 5, "the policy does 99.6 %"
    assert {one.statistics.connections for one in played} == {1}, "all on one connection"
    assert set(watched) == {0, 1, 2}
    for run, robot in zip(runs, robots, strict=True):
        assert sum(one.executed + one.held + one.stopped for one in run) == run[-1].statistics.steps
        assert sum(one.steps for one in run) == run[-1].statistics.steps, "each step moved the world on"
        assert len(robot.log) == run[-1].steps
    done = sum(one.succeeded for one in played)
    assert f'antiphon_robot_episodes_total{{outcome="success",policy="tabletop"}} {done}.0' in await metrics_of(server)


async def test_episodes_that_end_with_a_chunk_on_its_way_need_no_other_connection(server: RunningServer) -> None:
    """Over a slow network one nearly always is. The server is told of each all the same."""
    robot = SimulatedRobot(TABLETOP.simulate(), limit=12)
    async with DelayedLink(server.url, 0.15) as link:
        played = await drive(robot_url(link.url), robot, [episode("place-red-white", seed) for seed in range(4)])
    assert [one.succeeded for one in played] == [False] * 4, "nobody is that fast"
    assert played[-1].statistics.connections == 1
    assert f'antiphon_robot_episodes_total{{outcome="failure",policy="tabletop"}} {4.0}' in await metrics_of(server)
    assert 'outcome="unknown"' not in await metrics_of(server)


async def test_a_server_that_stays_away_ends_the_run(server: RunningServer) -> None:
    """The robot would hold through all its episodes otherwise."""
    robot = SimulatedRobot(TABLETOP.simulate(), limit=6)
    played: list[Played] = []

    def watch(client: RobotClient, robot: SimulatedRobot, number: int) -> None:
        if number == 2:
            server.stop.set()

    with pytest.raises(PolicyUnreachable, match="for 2 episodes"):
        async with asyncio.timeout(60):
            await drive(robot_url(server.url), robot, [episode("place-red-white")] * 1000, watch=watch, played=played)
    assert 4 <= len(played) < 1000


async def test_a_server_that_is_not_there_is_a_sentence() -> None:
    robot = SimulatedRobot.of(TABLETOP)
    settings = ControlSettings(connect_timeout_s=0.5)
    with pytest.raises(PolicyUnreachable, match="no policy server"):
        await asyncio.wait_for(drive("ws://127.0.0.1:9", robot, [episode("lift-red")], settings=settings), 30)
