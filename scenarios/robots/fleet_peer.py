"""openpi's own server, from PyPI, around the policy that ours serves: one observation after the other, computed on its event loop."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from ..server import ServerFailed

PACKAGES = ("openpi-server==0.1.0", "openpi-client==0.1.2", "msgpack>=1,<2")
"""Put into a folder of their own and without what they depend on: openpi-client insists on numpy 1 though it works with numpy 2."""
INSTALL_S = 300.0
START_S = 60.0


async def fetch_peer(folder: Path) -> None:
    """Have the packages in `folder`. Raises `ServerFailed` when they cannot be had."""
    if (folder / "openpi_server").is_dir():
        return
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(partial)]
    process = await asyncio.create_subprocess_exec(*command, *PACKAGES, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        async with asyncio.timeout(INSTALL_S):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ServerFailed(f"openpi's server could not be fetched within {INSTALL_S:g} s.") from None
    if process.returncode:
        raise ServerFailed(f"openpi's server could not be fetched:\n{said.decode(errors='replace')}")
    try:
        partial.rename(folder)
    except OSError:  # somebody else was first
        shutil.rmtree(partial)


@asynccontextmanager
async def plain_server(weights: Path, packages: Path, log: Path) -> AsyncIterator[tuple[str, int]]:
    """The server in a process of its own: its address and process id. Raises `ServerFailed`."""
    port = _free_port()
    command = [sys.executable, "-m", "antiphon.engines.action.serial", str(weights), "--port", str(port)]
    paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    with log.open("wb") as file:
        process = await asyncio.to_thread(
            subprocess.Popen, command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        )
    try:
        await _until_healthy(process, port, log)
        yield f"ws://127.0.0.1:{port}", process.pid
    finally:
        process.send_signal(signal.SIGKILL)  # it knows no orderly end
        await asyncio.to_thread(process.wait)


async def _until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    async with httpx.AsyncClient(trust_env=False, timeout=5) as http:
        while True:
            try:
                if (await http.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass  # not yet
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"openpi's server did not start; see {log}.")
            await asyncio.sleep(0.05)


def _free_port() -> int:
    """A port that nobody had a moment ago: openpi's server does not tell which one it took."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
