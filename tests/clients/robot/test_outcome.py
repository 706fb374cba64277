"""How an episode went is told to servers that keep count of it, once, and to no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from antiphon.clients.robot import ControlSettings, EpisodeLog, RobotClient, read_log, replay
from antiphon.tests.clients.robot.openpi_like import HOLD, STOP, OpenpiLike, Plant, chunk, openpi_like, until


def client_of(server: OpenpiLike, plant: Plant, **more: Any) -> RobotClient:
    settings = ControlSettings(rate=100.0, hold_limit_s=5.0, reply_timeout_s=5.0)
    return RobotClient(server.url, plant, hold=HOLD, stop=STOP, settings=settings, **more)


@pytest.fixture
async def ours() -> AsyncIterator[OpenpiLike]:
    """A server that takes marks."""
    async with openpi_like(session={"id": "s"}, action_horizon=16, action_dim=3) as server:

        async def infer(number: int, request: dict[str, Any]) -> Any:
            if request.get("endpoint") == "reset":
                return {"status": "reset successful"}
            return chunk(number, request) | {"echo": {"sequence": request["sequence"], "episode": request["episode"]}}

        server.infer = infer
        yield server


def told(server: OpenpiLike) -> list[tuple[str, Any]]:
    """(outcome, the episode that the request belongs to) of each request with an outcome; "": a reset."""
    return [(one["outcome"], one.get("episode", "")) for one in server.requests if "outcome" in one]


async def test_it_goes_with_the_first_request_of_the_next_episode_and_at_the_end_with_a_reset(ours: OpenpiLike) -> None:
    plant = Plant()
    client = client_of(ours, plant)
    ends = {30: "success", 60: "failure"}

    def episodes() -> bool:
        steps = len(plant.acted)
        if steps in ends:
            client.new_episode(steps, outcome=ends[steps])  # type: ignore[arg-type]
        if steps == 90:
            client.ended("success")
        return steps == 90

    await client.run(until=episodes)
    await until(lambda: "endpoint" in ours.requests[-1])
    assert told(ours) == [("success", 30), ("failure", 60), ("success", "")]
    assert ours.connections == 1, "another episode needs no other connection"


async def test_nothing_is_told_of_an_episode_in_which_nothing_was_asked(ours: OpenpiLike) -> None:
    plant = Plant()
    client = client_of(ours, plant)

    def episodes() -> bool:
        if len(plant.acted) == 30:
            client.new_episode("second", outcome="success")
            client.new_episode("third", outcome="failure")
        return len(plant.acted) == 60

    await client.run(until=episodes)
    assert told(ours) == [("success", "third")], "the second never reached the server: the first one's outcome is the one to tell"


async def test_nothing_is_told_when_nobody_says_how_it_went(ours: OpenpiLike) -> None:
    plant = Plant()
    await client_of(ours, plant).run(steps=30)
    assert not told(ours)
    assert all("endpoint" not in request for request in ours.requests)


async def test_a_server_that_takes_no_marks_is_not_told() -> None:
    plant = Plant()
    async with openpi_like(action_horizon=16) as server:
        client = client_of(server, plant)

        def episodes() -> bool:
            if len(plant.acted) == 30:
                client.new_episode(outcome="success")
            if len(plant.acted) == 60:
                client.ended("failure")
            return len(plant.acted) == 60

        await client.run(until=episodes)
        assert all(set(request) == {"observation/state", "prompt"} for request in server.requests)


async def test_a_lost_connection_takes_the_outcome_with_it(ours: OpenpiLike) -> None:
    """A session without a name is gone then; the server has counted its last episode as unknown."""
    plant = Plant()
    client = client_of(ours, plant)
    running = asyncio.create_task(client.run())
    await until(lambda: client.statistics().chunks >= 2)
    port = ours.port
    await ours.stop()
    client.new_episode("second", outcome="success")
    await ours.start(port)
    await until(lambda: client.statistics().connections == 2 and "second" in {one.get("episode") for one in ours.requests})
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not told(ours)


async def test_a_word_that_is_no_outcome_is_refused_at_once(ours: OpenpiLike) -> None:
    with pytest.raises(ValueError, match="success"):
        client_of(ours, Plant()).new_episode(outcome="splendid")  # type: ignore[arg-type]


async def test_the_reply_of_an_abandoned_request_is_not_executed(ours: OpenpiLike, tmp_path: Path) -> None:
    """A chunk asked for in the episode before comes after the next one has begun."""
    plant = Plant()
    held = asyncio.Event()
    answer = ours.infer

    async def infer(number: int, request: dict[str, Any]) -> Any:
        if number == 3:
            await held.wait()
        return await answer(number, request)

    ours.infer = infer
    with EpisodeLog(tmp_path / "episode.log") as log:
        client = client_of(ours, plant, log=log)
        running = asyncio.create_task(client.run())
        await until(lambda: len(ours.requests) == 3)
        client.new_episode("second", outcome="failure")
        await asyncio.sleep(0.05)
        held.set()
        await until(lambda: client.statistics().chunks >= 5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert ours.connections == 1
    assert 3 not in {int(action[0]) for action in plant.of_policy()}
    assert max(int(action[0]) for action in plant.of_policy()) > 3
    records = read_log(log.path)
    assert not replay(records).differences
    assert [record["outcome"] for record in records if record.get("kind") == "begin"] == [None, "failure"]


async def test_nothing_follows_the_last_word(ours: OpenpiLike) -> None:
    """A request that is made in a run's last step belongs to an episode that is over when its outcome is told."""
    for last in range(1, 12):
        plant = Plant()
        client = client_of(ours, plant)

        def over(plant: Plant = plant, client: RobotClient = client, last: int = last) -> bool:
            if len(plant.acted) == last:
                client.ended("success")
            return len(plant.acted) == last

        before = len(ours.requests)
        await client.run(until=over)
        await until(lambda before=before: any("endpoint" in one for one in ours.requests[before:]))
        await asyncio.sleep(0.02)
        assert "endpoint" in ours.requests[-1], f"after {last} steps"
