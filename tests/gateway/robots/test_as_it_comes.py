"""The server as it comes: nothing is configured, and a robot that connects at once is answered by the policy that ships."""

from __future__ import annotations

from pathlib import Path

import websockets
from antiphon.codecs import msgpack_numpy
from antiphon.scenarios.server import Server
from antiphon.tests.gateway.robots.conftest import Robot


async def test_the_first_robot_waits_until_the_policy_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text('[server]\npipelines = ["tone"]\nmedia = []\n')
    async with Server(log=tmp_path / "log", options=("--config", str(tmp_path / "antiphon.toml"))) as server:
        url = server.url.replace("http", "ws", 1) + "/v1/realtime/robot/openpi"
        async with websockets.connect(url, compression=None, max_size=None) as socket:
            robot = Robot(socket, msgpack_numpy.unpack(await socket.recv()))
            assert robot.metadata["policy"] == "tabletop"
            reply = await robot.infer()
        assert reply["actions"].shape == (16, 4)
        assert await server.get("/healthz") == "OK\n"
