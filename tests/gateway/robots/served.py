"""`antiphon serve` with robots' policies in a process of its own, as a user starts it, and what a stranger sees of it."""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import antiphon
import httpx
import psutil
import websockets
from antiphon.codecs import msgpack_numpy
from antiphon.scenarios.server import Server, ServerFailed
from antiphon.tests.gateway.outside import Outside
from antiphon.tests.gateway.robots.conftest import Robot

WEIGHTS = Path(antiphon.__path__[0]) / "robot" / "weights" / "tabletop"
PATH = "/v1/realtime/robot/openpi"
PACE = "ANTIPHON_TEST_PACE"
"""Names the file that says how many seconds each step of the slow engine takes longer."""

CONFIGURATION = """
[server]
pipelines = ["tone"]
media = []
log_format = "json"
drain_s = 2.0

[registry]
capacity = 24
waiting = 4
waiting_s = 2.0
evict_after_s = 1000.0

[robots]
policies = {policies}
openpi_port = 0
lease_s = {lease_s}
max_frame_bytes = {max_frame_bytes}
{robots}

[connection]
send_timeout_s = 2.0

[engines.arm]
kind = "flow-policy"
process = {process}
options = {{ model = "{model}" }}

[engines.eyes]
kind = "flow-policy"
options = {{ model = "{model}-eyes" }}

[engines.slow]
kind = "flow-policy"
process = true
python = "{slow_python}"
options = {{ model = "{model}" }}
"""


@dataclass
class RobotServer(Outside):
    """A running one. Its engine `arm` is the table-top policy; `slow` is the same in a process of its own, as slow as `pace` makes it;
    `eyes`, beside an `arm` that is in the server's process, is the one that takes pictures."""

    folder: Path
    openpi: str = ""
    killed: bool = False

    @property
    def robots_url(self) -> str:
        return self.url.replace("http", "ws", 1) + PATH

    def pace(self, seconds: float) -> None:
        """From now on each integration step of `slow` takes so much longer."""
        part = self.folder / "pace.part"
        part.write_text(str(seconds))
        part.replace(self.folder / "pace")

    def sessions(self) -> list[dict[str, Any]]:
        """The operator's list."""
        found: list[dict[str, Any]] = httpx.get(f"{self.url}/v1/realtime/sessions", timeout=30, trust_env=False).json()["data"]
        return found

    def running_at(self, engine: str) -> int:
        """Requests that hold a slot of an engine."""
        samples = self.metrics().items()
        return int(sum(value for name, value in samples if name.startswith("antiphon_engine_running{") and f'engine="{engine}"' in name))

    def kill(self) -> None:
        """End it as a power failure would."""
        assert self.server.pid is not None
        self.killed = True
        os.kill(self.server.pid, signal.SIGKILL)

    def healthz(self) -> int:
        return httpx.get(f"{self.url}/healthz", timeout=30, trust_env=False).status_code

    def worker(self, engine: str) -> psutil.Process:
        """An engine's process. The slow one was started by another command."""
        children = psutil.Process(self.server.pid).children(recursive=True)
        commands = {child: " ".join(child.cmdline()) for child in children}
        workers = [child for child, command in commands.items() if "antiphon.engines.worker" in command]
        (found,) = [child for child in workers if ("slow_worker" in commands[child]) == (engine == "slow")]
        return found

    def wait_until(self, true: Any, within: float = 30.0) -> float:
        """Wait until it holds; how long that took. Asked often, so that a short time can be told."""
        began = time.monotonic()
        while not true():
            assert time.monotonic() - began < within, "it did not come about in time"
            time.sleep(0.01)
        return time.monotonic() - began


@contextmanager
def served(
    folder: Path, *, process: bool = False, lease_s: float = 30.0, max_frame_bytes: int = 64 << 20, robots: str = "", port: int = 0
) -> Iterator[RobotServer]:
    """Start it, and stop it in good order: without a fault in its log, whatever was done to it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pace").write_text("0")
    slow_python = folder / "slow-python"
    slow_python.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from {__name__} import slow_worker; slow_worker()' \"$@\"\n")
    slow_python.chmod(0o755)
    config = folder / "antiphon.toml"
    config.write_text(
        CONFIGURATION.format(
            lease_s=lease_s,
            max_frame_bytes=max_frame_bytes,
            robots=robots,
            process=str(process).lower(),
            policies='["arm", "slow"]' if process else '["arm", "slow", "eyes"]',
            model=WEIGHTS,
            slow_python=slow_python,
        )
    )
    environment = {**os.environ, PACE: str(folder / "pace")}
    options = ("--config", str(config), "--port", str(port))
    running = Server(log=folder / f"server-{time.monotonic_ns()}.log", options=options, env=environment)
    asyncio.run(running.__aenter__())
    openpi = re.search(r"policies at (ws://\S+)", running.log.read_text())
    assert openpi is not None
    server = RobotServer(running, folder, folder, openpi.group(1))
    server.wait_until(lambda: server.healthz() == 200, within=120)
    try:
        yield server
    finally:
        with suppress(ServerFailed) if server.killed else nullcontext():
            asyncio.run(running.__aexit__(None, None, None))


def slow_worker() -> None:
    """The slow engine's process: the worker as it is, over a policy that sleeps at each step for as long as the file says."""
    from antiphon.engines.action.flow_model import FlowModel, FlowRow

    advance, pace = FlowModel.advance, Path(os.environ[PACE])

    def slow(model: FlowModel, rows: Sequence[FlowRow]) -> None:
        time.sleep(float(pace.read_text()))
        advance(model, rows)

    FlowModel.advance = slow  # type: ignore[method-assign]
    sys.argv = sys.argv[2:]  # -c -m antiphon.engines.worker FD NICE
    runpy.run_module("antiphon.engines.worker", run_name="__main__")


@asynccontextmanager
async def robot_of(server: RobotServer, query: str = "", **options: Any) -> AsyncIterator[Robot]:
    """A connection that has been told the metadata."""
    url = server.robots_url + (f"?{query}" if query else "")
    async with websockets.connect(url, compression=None, max_size=None, proxy=None, **{"ping_interval": None, **options}) as socket:
        yield Robot(socket, msgpack_numpy.unpack(await socket.recv()))
