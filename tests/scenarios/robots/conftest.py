"""A real server with the table-top policy that ships."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from antiphon.tests.gateway.conftest import RunningServer, serving

ENGINES = {"tabletop": {"kind": "flow-policy", "process": False, "options": {"model": "tabletop"}}}


@pytest.fixture
async def server(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningServer]:
    monkeypatch.chdir(tmp_path)
    async with serving(engines=ENGINES, robots={"policies": ("tabletop",)}) as running:
        yield running
