"""The real policy's slowness, for whoever drives the real server."""

from __future__ import annotations

import pytest
from antiphon.tests.gateway.robots.pace import Pace


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    """Counts from the moment it is set."""
    return Pace(monkeypatch)
