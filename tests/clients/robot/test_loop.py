"""The whole loop against a server that speaks openpi's protocol and nothing else."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import websockets
from antiphon.clients.robot import (
    ControlSettings,
    EpisodeLog,
    Mode,
    PolicyChanged,
    PolicyUnreachable,
    Refused,
    RobotClient,
    read_log,
    replay,
)
from antiphon.clients.robot.link import Backoff
from antiphon.tests.clients.robot.openpi_like import HOLD, STOP, OpenpiLike, Plant, chunk, openpi_like, until

QUICK = Backoff(first_s=0.01, most_s=0.05)


def client_of(url: str, plant: Any, *, log: EpisodeLog | None = None, clock: Any = None, **settings: Any) -> RobotClient:
    wanted = {"handover": "switch", "rate": 100.0, "reply_timeout_s": 5.0, "hold_limit_s": 5.0, **settings}
    return RobotClient(
        url,
        plant,
        hold=HOLD,
        stop=lambda observation: STOP,
        settings=ControlSettings(**wanted),
        log=log,
        clock=clock,
        backoff=QUICK,
        random_=random.Random(1),
    )


async def test_a_plain_openpi_server_drives_a_robot() -> None:
    plant = Plant()
    async with openpi_like() as server:
        figures = await client_of(server.url, plant).run(steps=80)
        assert all(set(request) == {"observation/state", "prompt"} for request in server.requests), "no field that it does not know"
    acted = plant.of_policy()
    assert figures.steps == 80
    assert figures.executed == len(acted) > 40
    assert figures.chunks >= 5
    assert figures.round_trip_s.count == figures.chunks
    assert figures.connections == 1
    assert plant.acted[-1] == STOP, "however a run ends, the robot is left stopped"
    assert len(plant.acted) == 81
    assert [int(number) for number, _, _ in acted] == sorted(int(number) for number, _, _ in acted)
    assert figures.border_jumps.count >= 4


async def test_the_observation_is_the_one_of_the_step_that_asked() -> None:
    plant = Plant()
    async with openpi_like() as server:
        await client_of(server.url, plant, handover="wait").run(steps=60)
    for at, (number, index, step) in enumerate(plant.acted):
        if number >= 0 and index == 0:
            assert all(action == HOLD for action in plant.acted[int(step) : at]), "it held from the observation to the chunk's first action"
            assert at > step


async def test_after_a_time_out_the_late_chunk_is_never_taken_for_another() -> None:
    plant = Plant()
    late: list[int] = []

    async with openpi_like() as server:

        async def infer(number: int, observation: dict[str, Any]) -> Any:
            if number == 3:
                late.append(number)
                await asyncio.sleep(0.6)
            return chunk(number, observation)

        server.infer = infer
        figures = await client_of(server.url, plant, reply_timeout_s=0.2).run(steps=100)
        assert server.connections == figures.timeouts + 1 >= 2
    assert late == [3]
    assert 3 not in {int(action[0]) for action in plant.of_policy()}
    assert max(int(action[0]) for action in plant.of_policy()) > 3, "and on it goes"
    assert HOLD in plant.acted


async def test_an_error_of_the_server_is_heard_and_survived() -> None:
    plant = Plant()
    async with openpi_like() as server:

        async def infer(number: int, observation: dict[str, Any]) -> Any:
            return 1 // 0 if number == 2 else chunk(number, observation)

        server.infer = infer
        client = client_of(server.url, plant)
        figures = await client.run(steps=60)
    assert figures.connections == 2
    assert "ZeroDivisionError" in figures.last_error
    assert max(int(action[0]) for action in plant.of_policy()) > 2


@pytest.mark.parametrize(
    "reply",
    [b"\xc1 garbage", {"actions": np.full((16, 3), np.nan)}, {"actions": [[1.0]]}, {"error": "no"}, {"actions": np.zeros((16, 4))}, {}],
    ids=["garbage", "nan", "list", "error", "wide", "empty"],
)
async def test_a_reply_that_is_no_chunk_moves_nothing(reply: Any) -> None:
    plant = Plant()
    async with openpi_like(action_dim=3) as server:

        async def infer(number: int, observation: dict[str, Any]) -> Any:
            return reply

        server.infer = infer
        await client_of(server.url, plant, startup_s=0.1).run(steps=20)
    assert not plant.of_policy()
    assert plant.acted[0] == HOLD
    assert plant.acted[-2] == STOP


async def test_a_new_episode_never_gets_a_chunk_from_before() -> None:
    plant = Plant()
    slow = asyncio.Event()
    async with openpi_like() as server:

        async def infer(number: int, observation: dict[str, Any]) -> Any:
            if number == 2:
                slow.set()
                await asyncio.sleep(0.1)
            return chunk(number, observation)

        server.infer = infer
        client = client_of(server.url, plant)
        running = asyncio.create_task(client.run(steps=100))
        await slow.wait()
        begun = len(plant.acted)
        client.new_episode()
        figures = await running
    assert figures.episodes == 2
    after = [int(action[0]) for action in plant.acted[begun:-1] if action[0] >= 0]
    assert after
    assert min(after) > 2
    assert plant.acted[begun] == HOLD


async def test_a_server_that_goes_away_hold_stop_and_a_new_episode_when_it_is_back() -> None:
    plant = Plant()
    async with openpi_like() as server:
        client = client_of(server.url, plant, hold_limit_s=0.3)
        running = asyncio.create_task(client.run())
        await until(lambda: len(plant.of_policy()) > 5)
        port = server.port
        await server.stop()
        await until(lambda: client.mode is Mode.STOP)
        stopped = plant.acted.index(STOP)
        assert plant.acted[stopped - 5 : stopped] == [HOLD] * 5
        await server.start(port)
        await until(lambda: client.statistics().connections == 2)
        await asyncio.sleep(0.1)
        assert client.mode is Mode.STOP, "a stop is not left without the owner's word"
        executed = len(plant.of_policy())
        client.new_episode()
        await until(lambda: len(plant.of_policy()) > executed)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert plant.acted[-1] == STOP


async def test_a_chunk_may_be_finished_when_the_connection_is_lost() -> None:
    for finish, least in ((True, 8), (False, 0)):
        plant = Plant()
        async with openpi_like() as server:

            async def infer(number: int, observation: dict[str, Any]) -> Any:
                return chunk(number, observation) if number == 1 else 1 // 0

            server.infer = infer
            await client_of(server.url, plant, finish_plan=finish, execute=4).run(steps=30)
        assert len(plant.of_policy()) == 16 if finish else len(plant.of_policy()) < 16
        assert len(plant.of_policy()) >= least


class FakeClock:
    """Time that passes when it is slept, and when a test says so."""

    def __init__(self) -> None:
        self.time = 50.0

    def now(self) -> float:
        return self.time

    async def sleep_until(self, when: float) -> None:
        self.time = max(self.time, when)
        await asyncio.sleep(0.002)


async def test_steps_that_cannot_be_kept_are_counted_and_not_made_up_for() -> None:
    clock = FakeClock()

    class Sticky(Plant):
        def __init__(self) -> None:
            super().__init__()
            self.at: list[float] = []

        def act(self, action: Any) -> None:
            super().act(action)
            self.at.append(clock.time)
            if len(self.acted) == 10:
                clock.time += 0.065

    plant = Sticky()
    async with openpi_like() as server:
        figures = await client_of(server.url, plant, clock=clock).run(steps=30)
    assert figures.missed == 5
    assert figures.lateness_s.most == pytest.approx(0.055)
    steps = np.diff(plant.at[:30])
    assert steps.max() == pytest.approx(0.065)
    assert steps.min() >= 0.005 - 1e-9, "the step after comes on the old grid"
    assert np.allclose(steps[10:], [0.005, *[0.01] * 18])


async def test_what_the_robot_raises_ends_the_run_with_a_stop() -> None:
    class Broken(Plant):
        def observe(self) -> dict[str, Any]:
            if len(self.acted) == 5:
                raise OSError("camera unplugged")
            return super().observe()

    plant = Broken()
    async with openpi_like() as server:
        with pytest.raises(OSError, match="unplugged"):
            await client_of(server.url, plant).run()
    assert plant.acted[-1] == STOP


@pytest.mark.parametrize(
    ("seen", "words"), [(None, "must return a mapping"), ({"observation/state": object()}, "cannot be sent: a object")]
)
async def test_what_is_no_observation_ends_the_run_with_a_stop(seen: Any, words: str) -> None:
    plant = Plant()
    plant.observe = lambda: seen  # type: ignore[method-assign]
    async with openpi_like() as server:
        with pytest.raises(ValueError, match=words):
            await client_of(server.url, plant).run(steps=80)
    assert plant.acted[-1] == STOP


async def test_actions_to_hold_and_stop_must_be_usable() -> None:
    async with openpi_like() as server:
        for hold in ([np.nan, 0.0, 0.0], [[0.0]]):
            plant = Plant()
            client = RobotClient(server.url, plant, hold=hold, stop=STOP, settings=ControlSettings(rate=50.0))
            with pytest.raises(ValueError, match="to hold"):
                await client.run(steps=3)
            assert not plant.acted


async def test_no_server_and_no_metadata() -> None:
    async with openpi_like() as server:
        url = server.url
    with pytest.raises(PolicyUnreachable, match=url):
        await client_of(url, Plant(), connect_timeout_s=0.3).run(steps=1)

    async def mute(socket: Any) -> None:
        await socket.wait_closed()

    async with websockets.serve(mute, "127.0.0.1", 0) as silent:
        address = f"ws://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        with pytest.raises(PolicyUnreachable, match="did not answer"):
            await client_of(address, Plant(), connect_timeout_s=0.3).run(steps=1)


async def test_another_policy_after_a_reconnection_ends_the_run() -> None:
    plant = Plant()
    async with openpi_like(policy="one") as server:

        async def infer(number: int, observation: dict[str, Any]) -> Any:
            server.metadata = {"policy": "other"}
            return chunk(number, observation) if number < 3 else 1 // 0

        server.infer = infer
        with pytest.raises(PolicyChanged, match="other"):
            await client_of(server.url, plant).run()
    assert plant.acted[-1] == STOP


async def test_a_session_that_was_ended_for_good_is_not_begun_anew() -> None:
    async def evict(socket: Any) -> None:
        await socket.send(b"\x80")
        await socket.recv()
        await socket.send("session_evicted: make room")
        await socket.close(4000, "session_evicted")

    plant = Plant()
    async with websockets.serve(evict, "127.0.0.1", 0) as server:
        with pytest.raises(Refused, match="make room"):
            await client_of(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", plant).run()
    assert plant.acted[-1] == STOP


async def test_a_run_replays_with_its_faults(tmp_path: Path) -> None:
    plant = Plant()
    server: OpenpiLike
    with EpisodeLog(tmp_path / "episode.log", observations=True) as log:
        async with openpi_like() as server:

            async def infer(number: int, observation: dict[str, Any]) -> Any:
                if number == 4:
                    return {"actions": np.full((16, 3), np.inf)}
                return 1 // 0 if number == 7 else chunk(number, observation)

            server.infer = infer
            client = client_of(server.url, plant, log=log, handover="ensemble")
            running = asyncio.create_task(client.run(steps=120))
            await until(lambda: client.statistics().steps > 70)
            client.new_episode()
            await running
    records = read_log(log.path)
    again = replay(records)
    assert not again.differences
    assert [action.tolist() for action in again.actions] == plant.acted[:-1]
    assert again.modes.count(Mode.RUN) == len(plant.of_policy())
    asked = [record for record in records if record.get("kind") == "ask"]
    assert asked[0]["observation"]["prompt"] == "count"


async def test_a_server_that_takes_marks_is_told_them_and_what_will_be_executed() -> None:
    plant = Plant()
    async with openpi_like(session={}, action_horizon=16, action_dim=3, max_prefix=8) as server:
        client = client_of(server.url, plant, handover="rtc")
        await client.run(steps=60)
        first, *others = server.requests
    assert (first["sequence"], first["episode"], first["deadline_ms"]) == (1, client.episode, 120_000.0)
    assert "prefix" not in first
    told = next(request for request in others if "prefix" in request)
    at = int(told["observation/state"][0])
    assert told["prefix"].tolist() == plant.acted[at : at + len(told["prefix"])]


async def test_a_robot_may_begin_an_episode_from_within_a_step() -> None:
    class Restless(Plant):
        def act(self, action: Any) -> None:
            super().act(action)
            if len(self.acted) % 7 == 1:
                client.new_episode()

    plant = Restless()
    async with openpi_like() as server:
        client = client_of(server.url, plant, handover="ensemble")
        figures = await client.run(steps=60)
    assert figures.episodes == 10
    assert figures.steps == 60
    assert plant.of_policy()


async def test_bounds_of_another_action_are_found_out_before_anything_moves() -> None:
    plant = Plant()
    async with openpi_like(action_dim=3) as server:
        with pytest.raises(ValueError, match="low"):
            await client_of(server.url, plant, low=(0.0,)).run(steps=5)
    assert not plant.acted


async def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(Refused, match="no address"):
        await client_of("http://", Plant(), connect_timeout_s=60.0).run(steps=1)
