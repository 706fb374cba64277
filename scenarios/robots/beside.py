"""Robots at work beside whatever else a scenario measures: episode after episode, until it has seen enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice

from ...clients.robot import RobotClient, RobotError
from ...robot.sim.worlds import TABLETOP, World
from ..server import ServerFailed
from .driving import Episode, SimulatedRobot, drive, robot_url
from .worlds import CannotSimulate, said

EPISODES = 1000
"""More than a robot plays while a scenario lasts."""
FIRST_SEED = 40_000


@dataclass(slots=True)
class Beside:
    """What the robots went through. Round trips and lateness in ms, of the robot that had the worst of each."""

    robots: int
    chunks: int = 0
    executed: int = 0
    stalls: int = 0
    missed: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    episodes: int = 0
    succeeded: int = 0
    round_trip_p50: float = 0.0
    round_trip_p99: float = 0.0


@asynccontextmanager
async def robots_beside(server: str, count: int, *, api_key: str | None = None, world: World = TABLETOP) -> AsyncIterator[Beside]:
    """So many robots drive by the policy of this world while the block runs; what they went through is told when it ends.

    Raises `ServerFailed` when they cannot be simulated, or when one could not go on.
    """
    found = Beside(count)
    if not count:
        yield found
        return
    try:
        robots = [SimulatedRobot.of(world) for _ in range(count)]
    except CannotSimulate as error:
        raise ServerFailed(str(error)) from error
    clients: dict[int, RobotClient] = {}
    results: list[list[bool]] = [[] for _ in robots]

    async def work(number: int, robot: SimulatedRobot) -> None:
        def watch(client: RobotClient, robot: SimulatedRobot, _episode: int) -> None:
            clients[number] = client
            if robot.over:
                results[number].append(robot.succeeded)

        await drive(robot_url(server, world.name), robot, _episodes(world, number), api_key=api_key, watch=watch)

    tasks = [asyncio.create_task(work(number, robot), name=f"robot {number}") for number, robot in enumerate(robots)]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for robot in robots:
            robot.close()
        _sum_up(found, list(clients.values()), results)
    for outcome in outcomes:
        if isinstance(outcome, RobotError):
            raise ServerFailed(f"A robot could not go on: {outcome}") from outcome
        if isinstance(outcome, Exception):
            raise outcome


def _episodes(world: World, number: int) -> Sequence[Episode]:
    """A robot's tasks in turn, in scenes of its own."""
    tasks = islice(cycle(world.tasks), number, number + EPISODES)
    return [Episode(task=task, prompt=said(world, task), seed=FIRST_SEED + number * EPISODES + index) for index, task in enumerate(tasks)]


def _sum_up(found: Beside, clients: Sequence[RobotClient], results: Sequence[Sequence[bool]]) -> None:
    for client in clients:
        statistics = client.statistics()
        found.chunks += statistics.chunks
        found.executed += statistics.executed
        found.stalls += statistics.stalls
        found.missed += statistics.missed
        for why, times in statistics.refused.items():
            found.refused[why] = found.refused.get(why, 0) + times
        found.round_trip_p50 = max(found.round_trip_p50, statistics.round_trip_s.p50 * 1000)
        found.round_trip_p99 = max(found.round_trip_p99, statistics.round_trip_s.p99 * 1000)
    found.episodes = sum(map(len, results))
    found.succeeded = sum(map(sum, results))
