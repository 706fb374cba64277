"""The contract with aiortc and aioice: what an upgrade has changed is named."""

from __future__ import annotations

import pytest
from aioice import ice
from antiphon.gateway.transports.webrtc import aiortc_hooks


async def test_every_hook_point_is_as_we_know_it() -> None:
    assert aiortc_hooks.check() == []


async def test_a_changed_hook_point_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ice.Connection, "_find_pair")
    assert aiortc_hooks.check() == ["aioice.ice.Connection._find_pair"]
