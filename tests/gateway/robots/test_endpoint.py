"""The endpoint as a robot sees it: metadata, chunks, marks, and errors that name what is wrong."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import httpx
import numpy as np
import pytest
import websockets
from antiphon.codecs import msgpack_numpy
from antiphon.tests.gateway.conftest import RunningServer, eventually, serving
from antiphon.tests.gateway.robots.conftest import PROMPT, STATE, observation, policies, robot_at, serving_robots
from antiphon.tests.gateway.robots.pace import Pace


async def test_the_metadata_comes_first_and_says_what_the_policy_takes(server: RunningServer) -> None:
    async with robot_at(server) as robot:
        told = robot.metadata
        assert (told["policy"], told["action_horizon"], told["action_dim"], told["action_keys"]) == ("tabletop", 16, 4, ["actions"])
        assert told["observation"]["observation/state"] == {"dtype": "float32", "shape": [20], "low": -10.0, "high": 10.0}
        assert told["session"]["id"].startswith("robot_")
        assert told["control_hz"] == 20.0


async def test_a_reply_has_actions_and_timings(server: RunningServer) -> None:
    async with robot_at(server) as robot:
        first = await robot.infer()
        assert first["actions"].shape == (16, 4)
        assert first["actions"].dtype == np.float32
        assert np.abs(first["actions"]).max() <= 1
        assert first["policy_timing"]["infer_ms"] > 0
        assert "prev_total_ms" not in first["server_timing"]
        second = await robot.infer()
        assert second["server_timing"]["prev_total_ms"] >= first["server_timing"]["infer_ms"]
        assert second["echo"]["chunk_id"] > first["echo"]["chunk_id"]


async def test_marks_are_echoed_with_epoch_and_chunk_id(server: RunningServer) -> None:
    async with robot_at(server) as robot:
        echo = (await robot.infer(sequence=4, observed_at=17.25, deadline_ms=5000, episode="first", seed=9))["echo"]
        assert (echo["sequence"], echo["observed_at"], echo["episode"], echo["seed"]) == (4, 17.25, "first", 9)
        later = (await robot.infer(sequence=5, episode="second"))["echo"]
        assert later["epoch"] == echo["epoch"] + 1


async def test_a_seed_repeats_a_chunk_and_a_prefix_is_continued(server: RunningServer) -> None:
    async with robot_at(server) as robot:
        one, two = [await robot.infer(seed=5) for _ in range(2)]
        assert np.abs(one["actions"] - two["actions"]).max() < 1e-5
        prefix = np.clip(one["actions"][2:5], -1, 1)
        onwards = await robot.infer(prefix=prefix)
        assert np.abs(onwards["actions"][:3] - prefix).max() < 1e-5


async def test_the_port_for_openpi_clients_takes_any_path(server: RunningServer) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        for base in (server.gateway.openpi_url.replace("ws", "http", 1), server.url):
            health = await http.get(f"{base}/healthz")
            assert (health.status_code, health.text) == (200, "OK\n")
    for path in ("", "/", "/any/path"):
        async with websockets.connect(server.gateway.openpi_url + path) as socket:
            assert msgpack_numpy.unpack(await socket.recv())["policy"] == "tabletop"


async def test_health_is_that_of_the_policy(server: RunningServer) -> None:
    await server.gateway.pool.engine("tabletop").close()
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"{server.url}/healthz")).status_code == 503


async def test_keys_are_accepted_in_openpis_way(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving_robots(server={"api_keys": ("secret",)}) as server:
        for scheme in ("Api-Key", "Bearer"):
            async with robot_at(server, additional_headers={"Authorization": f"{scheme} secret"}) as robot:
                assert "actions" in await robot.infer()
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with robot_at(server, additional_headers={"Authorization": "Api-Key wrong"}):
                pass
        assert refused.value.response.status_code == 401


async def test_an_unknown_policy_and_a_server_without_any(server: RunningServer) -> None:
    async with robot_at(server, "policy=tabletop"), robot_at(server, "model=tabletop"):
        pass
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with robot_at(server, "policy=other"):
            pass
    assert refused.value.response.status_code == 404
    assert b"tabletop" in refused.value.response.body
    async with serving() as without, httpx.AsyncClient(trust_env=False) as http:
        health = await http.get(f"{without.url}/healthz")
        assert (health.status_code, health.text) == (503, "no policy\n")


GARBAGE: list[tuple[bytes | str, str]] = [
    (b"\xc1", "invalid_message"),
    (b"", "invalid_message"),
    (b"\xc6\xff\xff\xff\xff", "invalid_message"),
    (b"\x91" * 200_000, "invalid_message"),
    (b"\x05", "invalid_request"),
    ('{"json": true}', "invalid_frame"),
    (msgpack_numpy.pack({"prompt": PROMPT}), "missing_key"),
    (msgpack_numpy.pack(observation(endpoint="dance")), "unknown_endpoint"),
    (msgpack_numpy.pack({"observation/state": STATE.astype(np.int32), "prompt": PROMPT}), "wrong_dtype"),
    (msgpack_numpy.pack({"observation/state": STATE * np.nan, "prompt": PROMPT}), "not_finite"),
    (msgpack_numpy.pack({"observation/state": STATE}), "missing_prompt"),
    (msgpack_numpy.pack(observation(steps=33)), "invalid_steps"),
    (msgpack_numpy.pack(observation(prefix=np.zeros((9, 4)))), "invalid_prefix"),
]


@pytest.mark.parametrize(("frame", "code"), GARBAGE, ids=[code for _, code in GARBAGE])
async def test_a_mistake_is_a_sentence_and_a_close_and_hurts_nobody_else(server: RunningServer, frame: Any, code: str) -> None:
    async with robot_at(server) as other, robot_at(server) as robot:
        await robot.socket.send(frame)
        said = await robot.receive()
        assert isinstance(said, str)
        assert said.startswith(f"{code}: ")
        assert "Traceback" not in said
        assert (await robot.closed())[0] == 1011
        assert "actions" in await other.infer()


async def test_a_client_that_numbers_its_requests_keeps_its_connection(server: RunningServer) -> None:
    async with robot_at(server) as robot:
        await robot.send({"observation/state": STATE[:7], "prompt": PROMPT, "sequence": 1})
        refused = await robot.receive()
        assert (refused["status"], refused["code"], refused["echo"]["sequence"]) == ("refused", "wrong_shape", 1)
        assert "actions" not in refused
        assert "actions" in await robot.infer(sequence=2)


async def test_vllm_omnis_endpoint_key(server: RunningServer) -> None:
    async with robot_at(server) as robot:
        await robot.infer(endpoint="infer")
        await robot.send({"endpoint": "reset"})
        assert (await robot.receive())["status"] == "reset successful"
        assert (await robot.infer())["echo"]["epoch"] == 1


async def test_frames_have_a_limit_and_large_ones_below_it_pass(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving_robots({"max_frame_bytes": 4 << 20}) as server:
        async with robot_at(server) as robot:
            assert "actions" in await robot.infer(extra=np.zeros(3 << 20, np.uint8))
            with suppress(websockets.ConnectionClosed):  # the server closes before it has read all
                await robot.send(observation(extra=np.zeros(5 << 20, np.uint8)))
            assert (await robot.closed())[0] == 1009
        async with robot_at(server) as robot:
            assert "actions" in await robot.infer()


async def test_fifty_megabytes_of_picture_do_not_hold_up_the_others(server: RunningServer) -> None:
    picture = np.zeros((3, 4096, 4096), np.uint8)
    async with robot_at(server) as heavy, robot_at(server) as light:
        sending = asyncio.create_task(heavy.infer(**{"observation/image": picture}))
        while not sending.done():
            began = time.monotonic()
            assert "actions" in await light.infer()
            assert time.monotonic() - began < 5
        assert "actions" in sending.result()


async def test_keepalive_holds_through_a_long_first_inference(server: RunningServer, pace: Pace) -> None:
    """The client gives the server half as long to answer a ping as a single step of the policy takes: were the steps made on the event
    loop, the connection would not outlive the first of them. (The proportions of 20 s for a ping and 50 s for a first inference.)"""
    pace.seconds = 3.0
    async with robot_at(server, ping_interval=0.2, ping_timeout=1.5) as robot:
        reply = await robot.infer(steps=2)
        assert reply["policy_timing"]["infer_ms"] > 6000


async def test_a_policy_that_takes_for_ever_is_given_up(server: RunningServer, pace: Pace, monkeypatch: pytest.MonkeyPatch) -> None:
    async with robot_at(server) as robot:
        for conductor in server.gateway.robots._robots.values():
            monkeypatch.setattr(conductor, "_infer_s", 0.2)
        pace.seconds = 0.5
        await robot.send(observation(sequence=1))
        failed = await robot.receive()
        assert (failed["status"], failed["code"]) == ("failed", "engine_timeout")


async def test_actions_that_must_not_reach_a_robot_are_held_back(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from antiphon.engines.action.flow_model import FlowModel

    finish = FlowModel.finish
    for spoil, code in ((lambda actions: actions * np.nan, "not_finite"), (lambda actions: actions + 3, "bad_actions")):
        monkeypatch.setattr(FlowModel, "finish", lambda model, row, spoil=spoil: spoil(finish(model, row)))
        async with robot_at(server) as robot:
            await robot.send(observation(sequence=1))
            held = await robot.receive()
            assert (held["status"], held["code"]) == ("failed", code)
            said = await robot.infer()
            assert isinstance(said, str)
            assert said.startswith(code)


async def test_an_engine_that_dies_is_restarted_and_its_robot_told(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal

    monkeypatch.chdir(tmp_path)
    engines = policies()
    engines["tabletop"]["process"] = True
    async with serving_robots(engines=engines) as server, robot_at(server) as robot:
        assert "actions" in await robot.infer(sequence=1)
        os.kill(server.gateway.pool.engine("tabletop").pid, signal.SIGKILL)  # type: ignore[attr-defined]
        sequence = 1
        async with asyncio.timeout(120):
            replies = []
            while not replies or "actions" not in replies[-1]:
                sequence += 1
                replies.append(await robot.infer(sequence=sequence))
                await asyncio.sleep(0.05)
        assert {reply["status"] for reply in replies[:-1]} == {"failed"}
        assert replies[-1]["echo"]["sequence"] == sequence


async def test_the_figures_count_answers(server: RunningServer) -> None:
    async with robot_at(server) as robot:
        await robot.infer()
        await robot.infer(sequence=1, deadline_ms=0.01)
        metrics = server.gateway.metrics
        assert metrics.value("antiphon_robot_answers_total", {"status": "chunk"}) == 1
        assert metrics.value("antiphon_robot_answers_total", {"status": "late"}) == 1
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
            (report,) = (await http.get("/v1/realtime/sessions")).json()["data"]
            assert report["answers"] == {"chunk": 1, "late": 1}
            assert (await http.get(f"/v1/realtime/sessions/{report['id']}")).json()["turns"] == []
            assert (await http.delete(f"/v1/realtime/sessions/{report['id']}")).status_code == 204
        assert (await robot.closed())[0] == 4001
    await eventually(lambda: len(server.gateway.sessions) == 0)
