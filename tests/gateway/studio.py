"""A server that paints: the tone pipeline, a real job queue, and the small painter for an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from antiphon.tests.gateway.conftest import RunningServer, serving
from antiphon.tests.gateway.media import painter


@asynccontextmanager
async def studio(folder: Path, *, step_s: float = 0.02, slots: int = 4, **tables: Any) -> AsyncIterator[RunningServer]:
    """A server whose painter takes `step_s` for a step (a picture has six) and paints `slots` jobs at once."""
    painter.register()
    engines = {"painter": {"kind": "painter", "options": {"step_s": step_s, "slots": slots}}}
    jobs = {"folder": str(folder), "poll_s": 0.05, **tables.pop("jobs", {})}
    server = {"media": ("painter",), **tables.pop("server", {})}
    async with serving(server=server, engines=engines, jobs=jobs, **tables) as running:
        yield running
