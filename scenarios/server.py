"""Starts a server as a user does, waits until it is ready, and stops it with SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

READY = re.compile(r"listening on (https?://\S+)")
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 40.0
_LAST_LINES = 12


class ServerFailed(Exception):
    """The server did not start, or did not stop as it should; the message holds the end of its log."""


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM is taken as Ctrl-C: who ends a scenario so must not leave its server running. (Off the main thread, where nobody may ask for
    signals, this does nothing.)"""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Server:
    """A server to run a scenario against: one that runs already (`Server.at`), or one that is started here.

    Use as `async with Server(log=…) as server`; `server.url` is its address. `options` go to `antiphon serve`.
    """

    def __init__(self, *, log: Path, options: tuple[str, ...] = (), env: dict[str, str] | None = None) -> None:
        self.log = log
        self.url = ""
        self.pid: int | None = None
        self._options = options
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def at(cls, url: str) -> Server:
        """A server that runs already; it is left running."""
        server = cls(log=Path())
        server.url = url.rstrip("/")
        return server

    async def __aenter__(self) -> Self:
        if self.url:
            return self
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "antiphon", "serve", "--port", "0", *self._options]
        self._process = await asyncio.to_thread(self._start, command)
        self.pid = self._process.pid
        try:
            await self._wait_until_ready()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        code = await self._stop()
        if code not in (None, 0) and error is None:
            raise ServerFailed(f"The server ended with {code} instead of 0.{self._end_of_log()}")

    async def get(self, path: str) -> Any:
        """The JSON (or text) at a path of the server. Raises `httpx.HTTPError`."""
        async with httpx.AsyncClient(base_url=self.url, timeout=10, trust_env=False) as http:
            response = await http.get(path)
            response.raise_for_status()
            return response.json() if "json" in response.headers.get("content-type", "") else response.text

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self._env)

    async def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        assert self._process is not None
        while True:
            found = READY.search(self.log.read_text(errors="replace"))
            if found is not None:
                self.url = found.group(1)
                return
            if self._process.poll() is not None:
                raise ServerFailed(f"The server ended with {self._process.returncode} while it was starting.{self._end_of_log()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"The server was not ready within {START_TIMEOUT_S:g} s.{self._end_of_log()}")
            await asyncio.sleep(0.05)

    async def _stop(self) -> int | None:
        """Ask for an orderly end, insist when it does not come, and reap. Gives the exit status."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(process.wait, STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
            raise ServerFailed(f"The server did not stop within {STOP_TIMEOUT_S:g} s of SIGTERM.{self._end_of_log()}") from None

    def _end_of_log(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return "\n".join([f" The end of {self.log}:", *lines]) if lines else ""
