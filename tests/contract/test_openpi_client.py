"""The stock `openpi-client` from PyPI, unmodified and in an environment of its own, against the server."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from antiphon.codecs import msgpack_numpy
from antiphon.tests.contract.openpi_venv import openpi_python
from antiphon.tests.gateway.conftest import RunningServer
from antiphon.tests.gateway.robots.conftest import serving_robots
from antiphon.tests.gateway.robots.pace import Pace

SCRIPT = Path(__file__).with_name("openpi_robot.py")
PATH = "/v1/realtime/robot/openpi"


@pytest.fixture(scope="module")
def python() -> Path:
    return openpi_python()


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    return Pace(monkeypatch)


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningServer]:
    monkeypatch.chdir(tmp_path)
    async with serving_robots(server={"api_keys": ("secret",)}) as running:
        yield running


async def run(python: Path, command: str, argument: str) -> Any:
    """What the script says."""
    process = await asyncio.create_subprocess_exec(
        str(python), str(SCRIPT), command, argument, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err.decode()
    return json.loads(out)


def by_path(server: RunningServer, key: str = "secret") -> str:
    return json.dumps({"host": server.url.replace("http", "ws", 1) + PATH, "api_key": key})


def by_port(server: RunningServer) -> str:
    host, _, port = server.gateway.openpi_url.removeprefix("ws://").partition(":")
    return json.dumps({"host": host, "port": int(port), "api_key": "secret"})


@pytest.mark.parametrize("where", [by_path, by_port])
async def test_a_rollout_with_the_client_and_its_broker(python: Path, server: RunningServer, where: Any) -> None:
    seen = await run(python, "rollout", where(server))
    assert (seen["policy"], seen["horizon"]) == ("tabletop", 16)
    assert seen["shapes"] == [[16, 4]] * 3
    assert seen["dtypes"] == ["float32"] * 3
    assert "prev_total_ms" not in seen["timing"][0]
    assert {"infer_ms", "prev_total_ms"} <= set(seen["timing"][1])
    assert "infer_ms" in seen["policy_timing"]
    assert seen["steps"] == [[4]] * 13
    assert seen["chunks"] == [4] * 5 + [5] * 5 + [6] * 2 + [7], "five steps a chunk, and a new one after the reset"
    assert seen["arrays"] == ["actions"]


async def test_a_mistake_raises_with_a_sentence_as_with_openpis_server(python: Path, server: RunningServer) -> None:
    seen = await run(python, "mistake", by_port(server))
    (first, sentence), (second, _) = seen["said"]
    assert first == "RuntimeError"
    assert "'observation/state' has the shape [3]; expected [20]" in sentence
    assert "Traceback" not in sentence
    assert second == "ConnectionClosedError"
    assert seen["again"] == [16, 4]


async def test_a_long_first_inference(python: Path, server: RunningServer, pace: Pace) -> None:
    pace.seconds = 0.5
    seen = await run(python, "patient", by_port(server))
    assert seen["shape"] == [16, 4]
    assert seen["seconds"] > 2.5


async def test_a_wrong_key_is_refused(python: Path, server: RunningServer) -> None:
    (kind, said) = (await run(python, "refused", by_path(server, "wrong")))["said"]
    assert kind == "InvalidStatus"
    assert "401" in said


VALUES: list[Any] = [
    {
        "image": np.arange(48, dtype=np.uint8).reshape(4, 4, 3),
        "state": np.linspace(-1, 1, 7),
        "half": np.ones(2, np.float16),
        "strided": np.arange(12).reshape(3, 4)[:, ::2],
        "transposed": np.arange(6).reshape(2, 3).T,
        "empty": np.zeros((0, 3)),
        "scalar_array": np.array(3.0),
        "texts": np.array(["ab", "c"]),
        "bytes": np.array([b"a"]),
        "bools": np.array([True, False]),
        "dates": np.array(["2020-01-01"], "M8[D]"),
        "float32": np.float32(1.5),
        "float64": np.float64(2.5),
        "int64": np.int64(3),
        "bool": np.True_,
        "text": np.str_("abc"),
        "nested": {"deeper": {"value": np.uint8(3)}, "list": [1, "two", 3.0, None, True], "tuple": (1, 2)},
        "numbers": [0, -1, 127, 128, -32, -33, 255, 256, 65535, 65536, 2**32, 2**63, -(2**31) - 1, -(2**63)],
        "long": "x" * 70_000,
        "data": b"y" * 70_000,
        "plain": {"data": b"abc"},
    },
    np.zeros((2, 16), np.float32),
    [],
    {},
]


async def test_messages_are_the_same_bytes(python: Path, tmp_path: Path) -> None:
    file = tmp_path / "values"
    file.write_bytes(pickle.dumps(VALUES, protocol=4))
    stock = [base64.b64decode(data) for data in await run(python, "packed", str(file))]
    assert [msgpack_numpy.pack(value) for value in VALUES] == stock
    read = [msgpack_numpy.unpack(data, msgpack_numpy.Bounds(max_text=1 << 20)) for data in stock]
    file.write_bytes(pickle.dumps([(msgpack_numpy.pack(value), value) for value in read], protocol=4))
    assert await run(python, "alike", str(file)) == [True] * len(VALUES)
