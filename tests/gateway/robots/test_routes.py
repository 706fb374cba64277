"""What the operator's routes say of robots."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from antiphon.gateway.robots.schemas import RobotList, SingleRobotObject
from antiphon.gateway.robots.timeline import KEPT, Timeline
from antiphon.robot.session import Answer, Request, Status
from antiphon.robot.wire import Marks
from antiphon.tests.gateway.conftest import RunningServer, connected, eventually, serving
from antiphon.tests.gateway.robots.conftest import PROMPT, STATE, observation, robot_at, serving_robots
from antiphon.tests.gateway.robots.pace import Pace


@pytest.fixture
async def http(server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        yield client


async def robots_of(http: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    """The robots, after a look at whether the answer is what the API's description says."""
    answer = await http.get("/v1/robots", params=query)
    assert answer.status_code == 200, answer.text
    RobotList.model_validate_json(answer.content, strict=True)
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


async def test_without_robots_it_says_what_they_could_use(http: httpx.AsyncClient, server: RunningServer) -> None:
    async with connected(server):
        listed = (await http.get("/v1/robots")).json()
    assert (listed["object"], listed["data"], listed["policies"]) == ("list", [], ["tabletop"])
    assert listed["totals"] == {"answers": {}, "episodes": {"success": 0, "failure": 0, "unknown": 0}}


async def test_a_chunk_with_all_its_times(server: RunningServer, http: httpx.AsyncClient) -> None:
    async with robot_at(server, "session_id=arm") as robot:
        for sequence in (7, 8):
            await robot.infer(sequence=sequence, episode="first", deadline_ms=5000)
        (arm,) = await robots_of(http)
        assert (arm["id"], arm["prompt"], arm["attached"], arm["episode"]) == ("arm", PROMPT, True, "first")
        assert (arm["rate"], arm["horizon"]) == (robot.metadata["control_hz"], robot.metadata["action_horizon"])
        first, second = arm["chunks"]
        assert [(chunk["number"], chunk["sequence"], chunk["status"], chunk["chunk_id"]) for chunk in (first, second)] == [
            (1, 7, "chunk", 1),
            (2, 8, "chunk", 2),
        ]
        assert first["arrived"] <= first["begun"] <= first["made"] <= first["left"] <= second["arrived"] <= 0
        assert second["deadline"] == pytest.approx(second["arrived"] + 5, abs=0.001)
        assert (first["epoch"], first["episode"], first["prefix"], first["batch"]) == (1, "first", 0, 1)
        assert arm["fences"][0]["epoch"] == 1
        assert arm["round_ms"]["count"] == 2
        trip = (second["left"] - second["arrived"]) * 1000
        assert arm["round_ms"]["p99"] >= arm["round_ms"]["p50"] > 0
        assert trip == pytest.approx(arm["round_ms"]["p50"], abs=0.2) or trip == pytest.approx(arm["round_ms"]["p99"], abs=0.2)


async def test_what_goes_wrong_is_shown_as_that(server: RunningServer, http: httpx.AsyncClient, pace: Pace) -> None:
    async with robot_at(server) as robot:
        await robot.infer(sequence=1)
        await robot.send({"observation/state": STATE[:3], "prompt": PROMPT, "sequence": 2})
        assert (await robot.receive())["status"] == "refused"
        pace.seconds = 0.1
        await robot.send(observation(sequence=3))
        await asyncio.sleep(0.1)
        await robot.send(observation(sequence=4, deadline_ms=0))
        await robot.send(observation(sequence=5))
        await robot.send(observation(sequence=6))
        await eventually_statuses(http, {3: "working", 6: "waiting"})
        await robot.send({"endpoint": "reset"})
        await eventually_statuses(http, {1: "chunk", 2: "refused", 3: "fenced", 4: "late", 5: "superseded", 6: "fenced"})
        (arm,) = await robots_of(http)
        assert all(chunk["left"] is not None for chunk in arm["chunks"]), "each was answered; the reset is a fence and no request"
        assert {chunk["epoch"] for chunk in arm["chunks"]} == {0}, "the epoch in which it was asked"
        assert [fence["epoch"] for fence in arm["fences"]] == [1]
        totals = (await http.get("/v1/robots")).json()["totals"]["answers"]
        assert totals == {"chunk": 1, "refused": 1, "late": 1, "superseded": 1, "fenced": 2, "reset": 1}


async def eventually_statuses(http: httpx.AsyncClient, wanted: dict[int, str]) -> None:
    seen: dict[int, str] = {}
    async with asyncio.timeout(5):
        while not wanted.items() <= seen.items():
            (arm,) = await robots_of(http)
            seen = {chunk["sequence"]: chunk["status"] for chunk in arm["chunks"]}
            await asyncio.sleep(0.02)


async def test_outcomes_are_counted_once_and_at_the_end_of_their_episode(server: RunningServer, http: httpx.AsyncClient) -> None:
    async with robot_at(server, "session_id=arm") as robot:
        await robot.infer(sequence=1, episode=1)
        await robot.infer(sequence=1, episode=2, outcome="success")
        wrong = await robot.infer(sequence=2, episode=2, outcome="success")
        assert (wrong["status"], wrong["code"]) == ("refused", "invalid_outcome")
        nonsense = await robot.infer(sequence=3, episode=3, outcome="so-so")
        assert (nonsense["status"], nonsense["code"]) == ("refused", "invalid_outcome")
        assert "'success' or 'failure'" in nonsense["message"]
        for _ in range(2):
            await robot.send({"endpoint": "reset", "outcome": "failure", "sequence": 4})
            assert (await robot.receive())["status"] == "reset successful"
        (arm,) = await robots_of(http)
        assert arm["episodes"] == {"success": 1, "failure": 1, "unknown": 0}
        await robot.infer(sequence=5, episode=4)
    await http.delete("/v1/realtime/sessions/arm")
    await eventually(lambda: len(server.gateway.sessions) == 0)
    assert (await http.get("/v1/robots")).json()["totals"]["episodes"] == {"success": 1, "failure": 1, "unknown": 1}
    metrics = (await http.get("/metrics")).text
    assert 'antiphon_robot_episodes_total{outcome="success",policy="tabletop"} 1.0' in metrics


async def test_a_session_that_nobody_ends_counts_as_unknown(server: RunningServer, http: httpx.AsyncClient) -> None:
    async with robot_at(server) as robot:
        await robot.infer()
    async with robot_at(server):
        pass  # nothing was asked: no episode
    await eventually(lambda: len(server.gateway.sessions) == 0)
    assert (await http.get("/v1/robots")).json()["totals"]["episodes"] == {"success": 0, "failure": 0, "unknown": 1}


async def test_a_robot_whose_connection_was_lost_is_still_listed(server: RunningServer, http: httpx.AsyncClient, pace: Pace) -> None:
    async with robot_at(server, "session_id=arm") as robot:
        pace.seconds = 0.2
        await robot.send(observation(sequence=1))
        await eventually_statuses(http, {1: "working"})
        before = (await http.get("/v1/robots")).json()["now"]
        robot.socket.transport.abort()
    await eventually(lambda: server.gateway.sessions.all()[0].state(0) != "inferring")
    (arm,) = await robots_of(http, since=before)
    assert (arm["state"], arm["attached"]) == ("leased", False)
    assert [(chunk["status"], chunk["left"]) for chunk in arm["chunks"]] == [("fenced", None)]


async def test_only_what_is_new_and_never_more_than_is_kept(server: RunningServer, http: httpx.AsyncClient) -> None:
    async with robot_at(server) as robot:
        for sequence in range(KEPT + 5):
            await robot.infer(sequence=sequence)
        everything = (await http.get("/v1/robots")).json()
        (arm,) = everything["data"]
        assert [chunk["sequence"] for chunk in arm["chunks"]] == list(range(5, KEPT + 5)), "the oldest are dropped"
        assert arm["round_ms"]["count"] == KEPT + 5
        (arm,) = await robots_of(http, since=everything["now"] + 0.001)
        assert arm["chunks"] == []
        await asyncio.sleep(0.01)
        await robot.infer(sequence=1000)
        (arm,) = await robots_of(http, since=everything["now"] + 0.001)
        assert [chunk["sequence"] for chunk in arm["chunks"]] == [1000]


async def test_one_robot_by_its_id(server: RunningServer, http: httpx.AsyncClient) -> None:
    async with robot_at(server, "session_id=arm%20/7") as robot, connected(server) as caller:
        await robot.infer()
        answer = await http.get("/v1/robots/arm%20%2F7")
        SingleRobotObject.model_validate_json(answer.content, strict=True)
        assert answer.json()["id"] == "arm /7"
        voice = caller.events[0]["session"]["id"]
        for nobody in ("nobody", voice, "x" * 90):
            missing = await http.get(f"/v1/robots/{nobody}")
            assert missing.status_code == 404
            assert missing.json()["error"]["code"] == "robot_not_found"
        for query in ("since=yesterday", "since=-1", "since=inf", "since=nan"):
            wrong = await http.get(f"/v1/robots?{query}")
            assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "since"), query


async def test_the_prompt_is_cut(server: RunningServer, http: httpx.AsyncClient) -> None:
    async with robot_at(server) as robot:
        await robot.infer(prompt="put it down " * 40)
        (arm,) = await robots_of(http)
        assert len(arm["prompt"]) == 200


async def test_it_wants_the_key() -> None:
    async with serving_robots(server={"api_keys": ("sesame",)}) as server, httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        for path in ("/v1/robots", "/v1/robots/arm"):
            assert (await http.get(path)).status_code == 401
        assert (await http.get("/v1/robots", headers={"authorization": "Bearer sesame"})).status_code == 200


async def test_a_server_without_policies_says_so() -> None:
    async with serving(robots={"policies": ()}) as server, httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        assert (await http.get("/v1/robots")).json()["policies"] == []


async def test_the_description_knows_the_routes(http: httpx.AsyncClient) -> None:
    paths = (await http.get("/openapi.json")).json()["paths"]
    assert paths["/v1/robots"]["get"]["operationId"] == "list_robots"
    assert set(paths["/v1/robots/{robot_id}"]["get"]["responses"]) >= {"200", "400", "401", "404"}


async def test_observations_are_not_kept_for_the_operator(server: RunningServer) -> None:
    """Each may be megabytes of pictures."""
    async with robot_at(server) as robot:
        for sequence in range(5):
            await robot.infer(sequence=sequence)
        (conductor,) = server.gateway.sessions.all()
        gc.collect()
        kept = [thing for thing in gc.get_objects() if type(thing) is Request]
        assert len(kept) <= 1, "at most the last answer's"
        assert conductor.report(0.0)["requests"] == 5


def test_what_is_kept_for_the_operator_costs_a_request_next_to_nothing() -> None:
    timeline = Timeline()
    requests = [Request(number=number, arrived=number / 100, marks=Marks(sequence=number)) for number in range(2000)]
    answers = [Answer(request=request, status=Status.CHUNK, epoch=0, chunk_id=request.number) for request in requests]
    began = time.process_time()
    for request, answer in zip(requests, answers, strict=True):
        timeline.arrived(request, 0)
        timeline.started(request.number, 0)
        timeline.begun(request.number, request.arrived)
        timeline.decided(answer, request.arrived)
        timeline.left(answer, request.arrived)
    assert (time.process_time() - began) / len(requests) < 100e-6, "1.5 us where this was written, 10 are allowed"
    assert len(timeline.chunks(100.0)) == KEPT
