"""What one connection does wrong, against a server as a user starts it, while simulated robots are driven by the same server: each test
fails if they were disturbed, and in the end their simulators' logs must show that nothing stale, late or non-finite was executed."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import websockets
from antiphon.codecs import msgpack_numpy
from antiphon.tests.contract.openpi_venv import openpi_python
from antiphon.tests.gateway.outside import eventually
from antiphon.tests.gateway.robots.conftest import PROMPT, STATE, Robot, observation
from antiphon.tests.gateway.robots.proof import prove, told
from antiphon.tests.gateway.robots.served import RobotServer, robot_of, served
from antiphon.tests.gateway.robots.simulated import SimulatedRobots, undisturbed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FREE_S = 10.0
"""In which a slot must be free again: ten times what is promised (1 s), since the machine may be busy. What it took is printed."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RobotServer]:
    with served(tmp_path_factory.mktemp("faults")) as running:
        yield running
        running.assert_well()


@pytest.fixture(scope="module")
def robots(server: RobotServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedRobots]:
    """Others, who are driven all the while."""
    folder = tmp_path_factory.mktemp("robots")
    with SimulatedRobots(server.url, folder) as running:
        yield running
    proof = prove(running.journals())
    print(f"\n{proof}")
    assert proof.succeeded >= 0.7 * proof.ended, "the policy does nearly all of its tasks, and went on doing them"


@pytest.fixture(autouse=True)
def others(robots: SimulatedRobots) -> Iterator[None]:
    """They are undisturbed by this test."""
    began = time.monotonic()
    yield
    if time.monotonic() - began < 0.5:  # long enough for them to have asked
        time.sleep(0.5)
    print(f"\nothers: {told(undisturbed(robots, began))}")


# ---- robots that vanish ---------------------------------------------------------------------------------------------


def reset(robot: Robot) -> None:
    """TCP RST."""
    robot.socket.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    robot.socket.transport.abort()


def finish(robot: Robot) -> None:
    """TCP FIN, without a close frame."""
    robot.socket.transport.abort()


def half_close(robot: Robot) -> None:
    """FIN one way only; whatever comes back is not read."""
    robot.socket.transport.pause_reading()
    robot.socket.transport.get_extra_info("socket").shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("vanish", [reset, finish, half_close])
async def test_a_robot_that_vanishes_in_mid_inference_frees_its_slot(server: RobotServer, vanish: Callable[[Robot], None]) -> None:
    server.pace(0.2)
    async with robot_of(server, "policy=slow") as robot:
        await robot.send(observation(steps=32))  # 6.4 s
        await asyncio.to_thread(server.wait_until, lambda: server.running_at("slow") == 1)
        await asyncio.sleep(0.3)
        session = robot.metadata["session"]["id"]
        vanish(robot)
        taken = await asyncio.to_thread(server.wait_until, lambda: server.running_at("slow") == 0, FREE_S)
        engine = await asyncio.to_thread(server.wait_until, lambda: working(server, "slow") == 0, FREE_S)
        gone = await asyncio.to_thread(server.wait_until, lambda: session not in ids(server), FREE_S)
        print(f"\n{vanish.__name__}: slot free in {taken:.3f} s, engine idle {engine:.3f} s and session gone {gone:.3f} s later")
    assert taken + engine < 5, "before the inference would have been over"


def working(server: RobotServer, engine: str) -> int:
    """What the engine's own process still works on."""
    health = httpx.get(f"{server.url}/health", timeout=30, trust_env=False).json()
    return int(health["engines"][f"{engine}-0"]["running"])


def ids(server: RobotServer) -> set[str]:
    return {report["id"] for report in server.sessions()}


def test_a_robot_whose_process_is_killed_in_mid_inference(server: RobotServer, tmp_path: Path) -> None:
    server.pace(0.01)
    with SimulatedRobots(server.url, tmp_path / "doomed", handovers=("switch",), policy="slow", name="doomed", seed=9) as doomed:
        server.pace(0.3)
        server.wait_until(lambda: server.running_at("slow") == 1)
        doomed.kill()
        taken = server.wait_until(lambda: server.running_at("slow") == 0, FREE_S)
        print(f"\nkilled: slot free in {taken:.3f} s")
    assert taken < 1.5, "before the inference would have been over"
    prove(doomed.journals())
    (report,) = [report for report in server.sessions() if report["id"] == "doomed-0"]
    assert report["state"] == "leased", "it has a name, so it may come back"


async def test_a_robot_that_falls_silent_holds_a_slot_no_longer_than_its_deadline(server: RobotServer) -> None:
    """Half open: not even TCP says that it is gone."""
    server.pace(0.2)
    async with robot_of(server, "policy=slow") as robot:
        await robot.send(observation(steps=32, sequence=1, deadline_ms=800))
        await asyncio.to_thread(server.wait_until, lambda: server.running_at("slow") == 1)
        robot.socket.transport.pause_reading()
        taken = await asyncio.to_thread(server.wait_until, lambda: server.running_at("slow") == 0, FREE_S)
        print(f"\nsilent: slot free in {taken * 1000:.0f} ms with a deadline of 800 ms")
        reset(robot)
    assert taken < 5, "before the inference would have been over"


async def test_forty_robots_vanish_from_the_policy_that_drives_the_others(server: RobotServer) -> None:
    async def come_and_go(number: int) -> None:
        await asyncio.sleep(number * 0.05)
        async with robot_of(server) as robot:
            for sequence in range(1 + number % 3):
                await robot.send(observation(steps=32, sequence=sequence))
            await asyncio.sleep(0.005 * (number % 5))
            (reset, finish, half_close)[number % 3](robot)

    await asyncio.gather(*(come_and_go(number) for number in range(40)), return_exceptions=True)
    eventually(lambda: len(server.sessions()) <= 5, within=FREE_S)


# ---- two robots with one id -----------------------------------------------------------------------------------------


async def refusal(server: RobotServer, query: str) -> tuple[int, bytes]:
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with robot_of(server, query):
            pass
    return caught.value.response.status_code, caught.value.response.body or b""


async def test_two_robots_with_one_id(server: RobotServer) -> None:
    async with robot_of(server, "session_id=twin") as first:
        begun = await first.infer(sequence=1, episode="a")
        for _ in range(5):
            status, said = await refusal(server, "session_id=twin")
            assert status == 409
            assert b"session_in_use" in said
            on = await first.infer(sequence=begun["echo"]["sequence"] + 1, episode="a")
            assert on["echo"]["epoch"] == begun["echo"]["epoch"], "the first one is not fenced"
            begun = on
        reset(first)
    await asyncio.to_thread(server.wait_until, lambda: state_of(server, "twin") == "leased")
    async with robot_of(server, "session_id=twin") as second:
        assert second.metadata["session"]["resumed"] is True
        on = await second.infer(sequence=1, episode="a")
        assert on["echo"]["epoch"] > begun["echo"]["epoch"]
        assert on["echo"]["chunk_id"] > begun["echo"]["chunk_id"]


def state_of(server: RobotServer, session: str) -> str:
    return next((str(report["state"]) for report in server.sessions() if report["id"] == session), "")


async def test_a_robot_that_lost_its_network_gets_its_session_back(server: RobotServer) -> None:
    """The server has not noticed: no FIN, no RST. It asks the silent connection, and gives the session to the one that speaks; among
    several, to one."""
    server.pace(0.2)
    async with robot_of(server, "session_id=roamer&policy=slow") as silent:
        begun = await silent.infer(sequence=1, steps=1)
        await silent.send(observation(sequence=2, steps=32))
        await asyncio.to_thread(server.wait_until, lambda: server.running_at("slow") == 1)
        silent.socket.transport.pause_reading()
        began = time.monotonic()
        async with robot_of(server, "session_id=roamer&policy=slow", open_timeout=30) as back:
            print(f"\nback in {time.monotonic() - began:.2f} s")
            assert back.metadata["session"]["resumed"] is True
            on = await back.infer(sequence=1, steps=1)
            assert on["echo"]["epoch"] > begun["echo"]["epoch"]
            assert (await refusal(server, "session_id=roamer&policy=slow"))[0] == 409
            back.socket.transport.pause_reading()
            others = await asyncio.gather(*(hold(server, "session_id=roamer&policy=slow") for _ in range(4)))
            assert sorted(others, key=str) == sorted(["chunk", 409, 409, 409], key=str)
            reset(back)
        reset(silent)
    server.pace(0.0)


async def test_many_robots_with_one_id_in_the_same_instant(server: RobotServer) -> None:
    """New, then after a lost connection: always exactly one has it."""
    for _ in range(3):
        results = await asyncio.gather(*(hold(server, "session_id=many") for _ in range(8)))
        assert sorted(results, key=str) == sorted(["chunk"] + [409] * 7, key=str)


async def hold(server: RobotServer, query: str) -> str | int:
    """Have the session for a moment, or be refused."""
    try:
        async with robot_of(server, query) as robot:
            reply = await robot.infer(sequence=1)
            await asyncio.sleep(0.5)
            return "chunk" if "actions" in reply else str(reply)
    except websockets.InvalidStatus as refused:
        return int(refused.response.status_code)


# ---- observations that are none -------------------------------------------------------------------------------------

WRONG: list[tuple[dict[Any, Any], str, str]] = [
    ({"observation/state": STATE.astype(np.int32)}, "wrong_dtype", "int32; expected float32"),
    ({"observation/state": STATE.astype(np.int64)}, "wrong_dtype", "expected float32"),
    ({"observation/state": STATE > 0}, "wrong_dtype", "bool; expected float32"),
    ({"observation/state": np.array(["ab"] * 20)}, "wrong_dtype", "expected float32"),
    ({"observation/state": np.zeros(20, "M8[s]")}, "wrong_dtype", "expected float32"),
    ({"observation/state": STATE[:19]}, "wrong_shape", "[19]; expected [20]"),
    ({"observation/state": STATE[None]}, "wrong_shape", "without a batch dimension"),
    ({"observation/state": np.float32(1)}, "wrong_shape", "[]; expected [20]"),
    ({"observation/state": np.zeros((), np.float32)}, "wrong_shape", "[]; expected [20]"),
    ({"observation/state": np.zeros((0, 20), np.float32)}, "wrong_shape", "[0, 20]"),
    ({"observation/state": STATE * np.nan}, "not_finite", "'observation/state'"),
    ({"observation/state": STATE + np.inf}, "not_finite", "NaN or infinity"),
    ({"observation/state": STATE.astype(np.float64) + 1e300}, "not_finite", "'observation/state'"),
    ({"observation/state": STATE + 11}, "out_of_range", "expected -10 to 10"),
    ({"observation/state": "zeros"}, "wrong_type", "not a str"),
    ({"observation/state": None}, "wrong_type", "not a NoneType"),
    ({"observation/state": b"\0" * 80}, "wrong_type", "not a bytes"),
    ({"observation/state": {"x": 1.0}}, "missing_key", "'observation/state'"),
    ({"observation/state": [0.0] * 19 + ["x"]}, "wrong_type", "not a list"),
    ({"observation/state": [[0.0], [0.0, 1.0]]}, "wrong_type", "not a list"),
    ({"observation/state": [0.0] * 19}, "wrong_shape", "[19]; expected [20]"),
    ({"observation/state": True}, "wrong_type", "not a bool"),
    ({"observation/stat": STATE, "observation/state": None}, "wrong_type", "'observation/state'"),
    ({"prompt": ""}, "missing_prompt", "'prompt'"),
    ({"prompt": 5}, "invalid_prompt", "prompt"),
    ({"prompt": np.array(["a", "b"])}, "invalid_prompt", "prompt"),
    ({"prompt": "lift " * 10_000}, "invalid_prompt", "4096"),
    ({"prompt": np.array(["x" * 500_000])}, "invalid_prompt", "4096"),
    ({"prefix": np.zeros((9, 4), np.float32)}, "invalid_prefix", "d up to 8"),
    ({"prefix": np.zeros((2, 5), np.float32)}, "invalid_prefix", "[2, 5]; expected [d, 4]"),
    ({"prefix": np.full((2, 4), np.nan)}, "invalid_prefix", "not finite"),
    ({"prefix": np.full((2, 4), 1e300)}, "invalid_prefix", "not finite"),
    ({"prefix": np.full((2, 4), 3.0)}, "invalid_prefix", "-1 to 1"),
    ({"prefix": [[0.0] * 4]}, "invalid_prefix", "array of floats"),
    ({"steps": 0}, "invalid_steps", "steps"),
    ({"steps": 33}, "invalid_steps", "at most 32"),
    ({"steps": True}, "invalid_steps", "steps"),
    ({"seed": -1}, "invalid_seed", "seed"),
    ({"seed": 2**64 - 1}, "invalid_seed", "seed"),
    ({"deadline_ms": np.nan}, "invalid_deadline_ms", "deadline_ms"),
    ({"deadline_ms": -1}, "invalid_deadline_ms", "deadline_ms"),
    ({"deadline_ms": "soon"}, "invalid_deadline_ms", "deadline_ms"),
    ({"observed_at": np.inf}, "invalid_observed_at", "observed_at"),
    ({"episode": np.zeros(3)}, "invalid_episode", "episode"),
    ({"episode": "x" * 200}, "invalid_episode", "128"),
    ({"endpoint": "dance"}, "unknown_endpoint", "infer, reset"),
    ({"endpoint": np.zeros(3)}, "unknown_endpoint", "infer, reset"),
    ({"endpoint": {"a": 1}}, "unknown_endpoint", "infer, reset"),
    ({"endpoint": 0.0}, "unknown_endpoint", "infer, reset"),
    ({"session_id": np.zeros(3)}, "invalid_session_id", "session_id"),
    ({"session_id": "a\nb"}, "invalid_session_id", "printable"),
]


async def test_what_is_wrong_with_an_observation_is_said_and_the_connection_lives_on(server: RobotServer) -> None:
    async with robot_of(server) as robot:
        for sequence, (fields, code, said) in enumerate(WRONG):
            await robot.send(observation(**fields, sequence=sequence))
            refused = await robot.receive()
            assert isinstance(refused, dict), (fields, refused)
            assert (refused["status"], refused["code"], refused["echo"]["sequence"]) == ("refused", code, sequence), (fields, refused)
            assert said in refused["message"], refused["message"]
            assert "actions" not in refused
        assert "actions" in await robot.infer(sequence=len(WRONG))


EYES = {"observation/robot": np.zeros(4, np.float32), "observation/image": np.zeros((64, 64, 3), np.uint8), "prompt": PROMPT}
PICTURES: list[tuple[Any, str, str]] = [
    (np.zeros((3, 64, 64), np.uint8), "wrong_shape", "channels first (CHW)"),
    (np.zeros((1, 64, 64, 3), np.uint8), "wrong_shape", "without a batch dimension"),
    (np.zeros((480, 640, 3), np.uint8), "wrong_shape", "resize_with_pad"),
    (np.zeros((64, 64, 4), np.uint8), "wrong_shape", "[64, 64, 4]; expected [64, 64, 3] (HWC)"),
    (np.zeros((64, 64), np.uint8), "wrong_shape", "[64, 64]"),
    (np.zeros((64, 64, 3), np.float32), "wrong_dtype", "convert_to_uint8"),
    (np.zeros((64, 64, 3), np.int64), "wrong_dtype", "expected uint8"),
    ([[[0, 0, 0]] * 64] * 63, "invalid_message", "Send long lists of numbers as numpy arrays"),
    (b"\xff\xd8\xff\xe0 JFIF", "wrong_type", "not a bytes"),
    ("front.png", "wrong_type", "not a str"),
    (None, "wrong_type", "not a NoneType"),
]


async def test_what_is_wrong_with_a_picture_is_said(server: RobotServer) -> None:
    async with robot_of(server, "policy=eyes") as robot:
        cameras = robot.metadata["image_keys"]
        image = cameras[-1]
        good = EYES | dict.fromkeys(cameras, EYES["observation/image"])
        for sequence, (picture, code, said) in enumerate(PICTURES):
            if code == "invalid_message":  # it cannot be read, so neither can its number
                async with robot_of(server, "policy=eyes") as other:
                    await other.send(good | {image: picture, "sequence": sequence})
                    text = await other.receive()
                    assert text.startswith(code)
                    assert said in text
                continue
            await robot.send(good | {image: picture, "sequence": sequence})
            refused = await robot.receive()
            assert (refused["status"], refused["code"]) == ("refused", code), (said, refused)
            assert said in refused["message"], refused["message"]
            assert repr(image) in refused["message"]
        await robot.send(good | {"sequence": len(PICTURES)})
        assert "actions" in await robot.receive()


async def test_a_stock_client_is_told_in_a_text_frame_and_closed(server: RobotServer) -> None:
    async def mistaken(fields: dict[Any, Any], code: str, said: str) -> None:
        async with robot_of(server) as robot:
            await robot.send(observation(**fields))
            text = await robot.receive()
            assert isinstance(text, str), (fields, text)
            assert text.startswith(f"{code}: "), text
            assert said in text
            assert "Traceback" not in text
            assert (await robot.closed())[0] == 1011

    for first in range(0, len(WRONG), 8):
        await asyncio.gather(*(mistaken(*wrong) for wrong in WRONG[first : first + 8] if "session_id" not in wrong[0]))


async def test_what_numpy_can_write_in_other_ways_is_understood(server: RobotServer) -> None:
    async with robot_of(server) as robot:
        same = [
            STATE,
            STATE.astype(">f4"),
            STATE.astype(np.float64),
            STATE.astype(">f8"),
            STATE.tolist(),
            np.stack([STATE, STATE], 1)[:, 0],
        ]
        chunks = [await robot.infer(**{"observation/state": state}, sequence=number, seed=1) for number, state in enumerate(same)]
        for chunk in chunks:
            assert np.abs(chunk["actions"] - chunks[0]["actions"]).max() < 1e-4


def ndarray(dtype: str, data: bytes = b"\0" * 80, shape: Any = (20,)) -> dict[bytes, Any]:
    """An array as a hostile hand would write it."""
    return {b"__ndarray__": True, b"data": data, b"dtype": dtype, b"shape": list(shape)}


HOSTILE = [
    (ndarray("|O"), "Python objects"),
    (ndarray("|V4"), "records"),
    (ndarray("<c8", b"\0" * 160), "complex numbers"),
    (ndarray("<f4,<f4"), "dtype"),
    (ndarray("<f3"), "dtype"),
    (ndarray("datetime64[evil]"), "dtype"),
    (ndarray("<f4", shape=(21,)), "takes 84 bytes"),
    (ndarray("<f4", shape=(2**31, 2**31)), "bytes"),
    (ndarray("<f4", shape=(-20,)), "shape"),
    (ndarray("<f4", shape=(1,) * 9), "at most 8 sizes"),
    (ndarray("<f4", data="text"), "no binary"),  # type: ignore[arg-type]
]


async def test_arrays_in_a_hostile_hand_are_refused_before_numpy_sees_them(server: RobotServer) -> None:
    for array, said in HOSTILE:
        async with robot_of(server) as robot:
            await robot.send({"observation/state": array, "prompt": PROMPT, "sequence": 7})
            text = await robot.receive()  # what cannot be read has no sequence number either
            assert isinstance(text, str), (array, text)
            assert text.startswith("invalid_message: "), text
            assert said in text, text


# ---- garbage --------------------------------------------------------------------------------------------------------

GOOD = msgpack_numpy.pack(observation())
GARBAGE: list[bytes | str] = [
    b"",
    b"\xc1",
    *(GOOD[:size] for size in (1, 2, len(GOOD) // 2, len(GOOD) - 1)),
    GOOD + b"\0",
    GOOD * 2,
    b"\x91" * 100_000,
    b"\x81\xa1a" * 50_000,
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xdd\x00\x00\x10\x01" + b"\xc0" * 4097,
    b"\xd4\x01\x00",
    b"\xc7\x05\x01hello",
    b"\x82\xa1a\x01\xa1a\x02",
    b"\x81\xa6prompt\xa2\xff\xfe",
    b"\x81\x01\x02",
    b"\x81\xc0\x02",
    b"\x81\x80\x02",
    b"\x05",
    b"\xc0",
    b"\x90",
    b"\x80",
    b"\xcb\x7f\xf8\0\0\0\0\0\0",
    b"\xa3abc",
    "",
    "text",
    '{"observation/state": []}',
    "\0\1\2\x1b[31m\x7f",
    "\U0001f916" * 10_000,
    bytes(range(32)),
]


async def refused_with_a_sentence(server: RobotServer, frame: bytes | str) -> None:
    async with robot_of(server) as robot:
        await robot.socket.send(frame)
        said = await robot.receive()
        assert isinstance(said, str), (frame[:40], said)
        code, _, sentence = said.partition(": ")
        assert code.replace("_", "").isalpha(), said
        assert sentence.endswith((".", "?", "right?")), said
        assert len(said) < 1000
        assert "Traceback" not in said
        assert (await robot.closed())[0] == 1011


async def test_garbage_is_refused_with_a_sentence(server: RobotServer) -> None:
    for first in range(0, len(GARBAGE), 8):
        await asyncio.gather(*(refused_with_a_sentence(server, frame) for frame in GARBAGE[first : first + 8]))


MUTATED = st.builds(
    lambda at, what, cut: GOOD[:at] + what + GOOD[at + cut :], st.integers(0, len(GOOD)), st.binary(max_size=8), st.integers(0, 8)
)


def test_random_bytes_and_messages_with_random_damage(server: RobotServer) -> None:
    """One connection a batch: every frame is answered, by a chunk or a sentence."""

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.one_of(st.binary(max_size=200), MUTATED), min_size=1, max_size=6))
    def throw(frames: list[bytes]) -> None:
        async def once(frame: bytes) -> None:
            async with robot_of(server) as robot:
                await robot.socket.send(frame)
                answer = await robot.receive()
                assert isinstance(answer, str | dict), answer

        async def all_of_them() -> None:
            await asyncio.gather(*(once(frame) for frame in frames))

        asyncio.run(all_of_them())

    throw()


async def test_a_flood_of_small_requests_is_answered_one_by_one(server: RobotServer) -> None:
    """As fast as the socket takes them, from one who reads the answers."""
    count = 1_000
    begun = msgpack_numpy.pack({"sequence": 1, "prompt": PROMPT})
    async with robot_of(server) as robot:

        async def flood() -> None:
            for _ in range(count):
                await robot.socket.send(begun)

        sending = asyncio.create_task(flood())
        began = time.monotonic()
        for _ in range(count):
            refused = await robot.receive()
            assert refused["code"] == "missing_key"
        await sending
        assert "actions" in await robot.infer(sequence=2)
    print(f"\nflood: {count} answers in {time.monotonic() - began:.1f} s")


async def test_a_flood_of_observations_from_one_who_never_reads_is_cut_off(server: RobotServer) -> None:
    """Its answers fill the socket; then nothing more of it is read, and after `send_timeout_s` it is gone."""
    before = server.total("antiphon_slow_reader_closes_total")
    memory = server.footprint().rss_mb
    heavy = msgpack_numpy.pack(observation(sequence=1, extra=bytes(1 << 20)))
    light = msgpack_numpy.pack(observation(sequence=1, episode="x" * 128))
    async with robot_of(server) as robot:
        robot.socket.transport.pause_reading()
        sent = 0
        with suppress(websockets.ConnectionClosed, ConnectionError):
            async with asyncio.timeout(60):
                while server.total("antiphon_slow_reader_closes_total") == before:
                    for _ in range(20_000):
                        await robot.socket.send(light)
                        sent += 1
                    await robot.socket.send(heavy)
        print(f"\nslow reader: cut off after {sent} requests")
        robot.socket.transport.abort()
    await asyncio.to_thread(eventually, lambda: server.total("antiphon_slow_reader_closes_total") == before + 1)
    await asyncio.to_thread(eventually, lambda: server.footprint().rss_mb < memory + 60)


# ---- large frames ---------------------------------------------------------------------------------------------------


async def test_fifty_megabytes_of_pictures_from_many_at_once(server: RobotServer) -> None:
    """Below the limit: they are taken, and the others do not notice. Afterwards the memory is there again."""
    memory = server.footprint().rss_mb
    frame = msgpack_numpy.pack(observation(sequence=1, **{"observation/image": np.zeros((4096, 4096, 3), np.uint8)}))
    assert len(frame) > 50e6

    async def show(number: int) -> float:
        async with robot_of(server) as robot:
            began = time.monotonic()
            await robot.socket.send(frame)
            assert "actions" in await robot.receive()
            return time.monotonic() - began

    took = await asyncio.gather(*(show(number) for number in range(6)))
    await asyncio.to_thread(eventually, lambda: server.footprint().rss_mb < memory + 60)
    after = server.footprint().rss_mb
    print(f"\nsix times 50 MB: answered within {max(took):.2f} s; memory {memory:.0f} -> {after:.0f} MB")


async def test_a_frame_above_the_limit_closes_with_1009_and_is_not_kept(server: RobotServer) -> None:
    memory = server.footprint().rss_mb
    frame = bytes(80 << 20)
    for _ in range(3):
        async with robot_of(server) as robot:
            with suppress(websockets.ConnectionClosed, ConnectionError):  # it is closed before all has been sent
                await robot.socket.send(frame)
            assert (await robot.closed())[0] == 1009
    assert server.footprint().rss_mb < memory + 30


async def test_answered_requests_keep_nothing_of_their_pictures(server: RobotServer) -> None:
    """Sixty large observations whose answers are not read: each gives way to the next, and only their answers wait."""
    memory = server.footprint().rss_mb
    server.pace(0.05)
    frame = msgpack_numpy.pack(observation(steps=32, extra=bytes(16 << 20)))
    async with robot_of(server, "policy=slow") as robot:
        robot.socket.transport.pause_reading()
        for _ in range(20):
            await robot.socket.send(frame)
        seen = server.footprint().rss_mb
        print(f"\n320 MB of observations: memory {memory:.0f} -> {seen:.0f} MB")
        assert seen < memory + 160
        reset(robot)


# ---- stock clients --------------------------------------------------------------------------------------------------


async def test_two_stock_clients_with_their_brokers_while_a_third_floods(server: RobotServer, tmp_path: Path) -> None:
    """openpi-client from PyPI, in processes of its own. Each gets its own chunks: the reply says whose they are."""
    python, script = openpi_python(), Path(__file__).parents[2] / "contract" / "openpi_robot.py"
    host, _, port = server.openpi.removeprefix("ws://").partition(":")
    where = json.dumps({"host": host, "port": int(port)})
    command = [str(python), str(script), "long_rollout", where]
    running = [await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    answers = asyncio.gather(*(process.communicate() for process in running))
    async with robot_of(server) as robot:
        requests = 0
        while not answers.done():
            for _ in range(20):
                await robot.send(observation(sequence=requests))
                requests += 1
            for _ in range(20):
                await robot.receive()
    seen = []
    for process, (out, err) in zip(running, await answers, strict=True):
        assert process.returncode == 0, err.decode()
        seen.append(json.loads(out))
    print(f"\nflood: {requests} requests beside {[round(one['slowest_ms']) for one in seen]} ms at most for the stock clients")
    for one in seen:
        assert one["chunks"] == sorted(set(one["chunks"]))
        assert len(one["sessions"]) == 1
        assert one["finite"]
    assert seen[0]["sessions"] != seen[1]["sessions"]
