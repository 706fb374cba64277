"""Robots that work while something else is measured."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from antiphon.scenarios.robots.beside import robots_beside
from antiphon.scenarios.server import ServerFailed
from antiphon.tests.gateway.conftest import serving

SHIPPED: dict[str, Any] = {"engines": {"tabletop": {"process": False}}, "robots": {"policies": ("tabletop",)}}


async def test_what_they_went_through_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving(**SHIPPED) as server:
        async with robots_beside(server.url, 2) as beside:
            await asyncio.sleep(4)
        assert beside.robots == 2
        assert beside.chunks >= 2
        assert beside.executed > 0
        assert beside.succeeded <= beside.episodes
        assert beside.round_trip_p99 >= beside.round_trip_p50 > 0
        async with asyncio.timeout(10):
            while len(server.gateway.sessions):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)


async def test_none_is_none(tmp_path: Path) -> None:
    async with robots_beside("http://127.0.0.1:1", 0) as beside:
        pass
    assert beside.chunks == 0


async def test_a_server_without_the_policy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving() as server:
        with pytest.raises(ServerFailed, match="no robot policy"):
            async with robots_beside(server.url, 1):
                await asyncio.sleep(2)
