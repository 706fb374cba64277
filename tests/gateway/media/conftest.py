"""A real server with a small real media engine, a queue in a folder of its own, and HTTP clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from antiphon.tests.gateway.conftest import RunningServer, serving
from antiphon.tests.gateway.media import painter
from antiphon.tests.gateway.media.painter import Painter

PATIENCE = 20.0

painter.register()


@asynccontextmanager
async def media_server(folder: Path, *, engine: dict[str, Any] | None = None, **tables: Any) -> AsyncIterator[RunningServer]:
    """A server that paints. `engine`: options of the painter; `tables`: more settings."""
    server = {"media": ("painter",), **tables.pop("server", {})}
    jobs = {"folder": str(folder / "jobs"), "poll_s": 0.05, **tables.pop("jobs", {})}
    engines = {"painter": {"kind": "painter", "options": engine or {}}}
    async with serving(server=server, jobs=jobs, engines=engines, **tables) as running:
        yield running


def client_of(server: RunningServer, key: str | None = None) -> httpx.AsyncClient:
    """An HTTP client of a server."""
    headers = {"authorization": f"Bearer {key}"} if key is not None else {}
    return httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False, timeout=PATIENCE)


def painter_of(server: RunningServer) -> Painter:
    engine = server.gateway.pool.engine("painter")
    assert isinstance(engine, Painter)
    return engine


async def ended(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    """The job at `path` once it has ended."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        job: dict[str, Any] = answer.json()
        if job["status"] in ("completed", "failed", "cancelled"):
            return job
        await asyncio.sleep(0.02)
    raise AssertionError(f"{path} has not ended: {job}")


@pytest.fixture
async def media(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningServer]:
    """A server that paints, quickly."""
    monkeypatch.chdir(tmp_path)
    async with media_server(tmp_path) as running:
        yield running


@pytest.fixture
async def client(media: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(media) as found:
        yield found


@pytest.fixture
def slow_media(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Starts a server whose steps take a while: `async with slow_media(**tables) as server`."""
    monkeypatch.chdir(tmp_path)

    def start(**tables: Any) -> Any:
        return media_server(tmp_path, engine={"step_s": 0.02, **tables.pop("engine", {})}, **tables)

    return start
