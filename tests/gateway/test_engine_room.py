"""From the configuration to engines: whose process, which priority, and what happens without the packages."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from antiphon.engines import registry
from antiphon.engines.errors import EngineError, EngineUnavailableError
from antiphon.engines.interface import WorkClass
from antiphon.engines.launchers import SubprocessEngine
from antiphon.engines.pool import EnginePool
from antiphon.engines.replica import ReplicaState
from antiphon.gateway import engine_room
from antiphon.gateway.engine_room import add_media, add_policies, make_engine
from antiphon.gateway.errors import SettingsError
from antiphon.gateway.settings import Settings, load_settings


def settings(**tables: Any) -> Settings:
    return load_settings(None, **tables)


def group_niceness(pid: int) -> int | None:
    """Linux may weigh whole sessions against each other; then only this counts between them. None: not on this machine."""
    group = Path(f"/proc/{pid}/autogroup")
    return int(group.read_text().split()[-1]) if group.exists() else None


async def test_an_engine_in_a_process_of_its_own_with_its_priority_and_interpreter(tmp_path: Path) -> None:
    table = {"kind": "echo-chat", "process": True, "nice": 5, "python": sys.executable}
    engine = make_engine(settings(engines={"mine": table}), "mine")
    assert isinstance(engine, SubprocessEngine)
    await engine.open()
    assert engine.pid is not None
    assert psutil.Process(engine.pid).exe() == psutil.Process().exe()
    assert psutil.Process(engine.pid).nice() == min(19, psutil.Process().nice() + 5)
    assert group_niceness(engine.pid) in (None, 5)
    await engine.close()
    table["python"] = str(tmp_path / "python")
    with pytest.raises(EngineUnavailableError, match="cannot be started"):
        await make_engine(settings(engines={"mine": table}), "mine").open()


def test_engines_run_here_unless_told_otherwise() -> None:
    made = make_engine(settings(), "echo")
    assert not isinstance(made, SubprocessEngine)


def test_the_engine_that_ships_has_its_own_process_at_low_priority() -> None:
    table = settings().engines["tinyflow"]
    assert (table.kind, table.process, table.nice) == ("diffusion", True, 10)
    pool = EnginePool()
    add_media(pool, settings(server={"media": ("tinyflow",)}))
    assert isinstance(pool.engine("tinyflow"), SubprocessEngine)


def test_without_the_packages_there_are_no_pictures_and_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[dict[str, str]] = []
    monkeypatch.setattr(engine_room, "log", SimpleNamespace(warning=lambda event, **fields: warnings.append(fields)))
    monkeypatch.setitem(registry._NEEDS, "diffusion", ("surely_not_installed",))
    pool = EnginePool()
    add_media(pool, settings(server={"media": ("tinyflow",)}))
    assert pool.names() == []
    assert warnings == [{"engine": "tinyflow", "missing": "surely_not_installed", "mend": "pip install 'antiphon[media]'"}]


def test_what_makes_no_pictures_is_refused() -> None:
    with pytest.raises(SettingsError, match="'whisper' make no pictures"):
        add_media(EnginePool(), settings(server={"media": ("whisper",)}))
    with pytest.raises(EngineError, match="neither a folder"):
        add_media(
            EnginePool(), settings(server={"media": ("mine",)}, engines={"mine": {"kind": "diffusion", "options": {"model": "/nowhere"}}})
        )


async def test_a_policy_ships_and_is_loaded_for_the_first_robot() -> None:
    pool = EnginePool()
    add_policies(pool, settings())
    assert pool.engine("tabletop").capabilities.action is not None
    await pool.open()
    assert pool.snapshot()[0].replicas[0].state is ReplicaState.DOWN
    health = (await pool.health())["tabletop-0"]
    assert health.ok
    assert "when it is asked for" in health.detail
    async with asyncio.timeout(60):
        (await pool.acquire("tabletop", WorkClass.ACTION)).release()
    assert pool.snapshot()[0].replicas[0].state is ReplicaState.UP
    await pool.close()


async def test_a_policy_that_the_operator_named_is_loaded_at_once() -> None:
    pool = EnginePool()
    add_policies(pool, settings(robots={"policies": ("tabletop",)}))
    await pool.open()
    assert pool.snapshot()[0].replicas[0].state is ReplicaState.UP
    await pool.close()


def test_without_the_packages_no_policy_is_served_and_a_warning_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[dict[str, str]] = []
    monkeypatch.setattr(engine_room, "log", SimpleNamespace(warning=lambda event, **fields: warnings.append(fields)))
    monkeypatch.setitem(registry._NEEDS, "flow-policy", ("surely_not_installed",))
    pool = EnginePool()
    add_policies(pool, settings())
    assert pool.names() == []
    assert warnings == [{"engine": "tabletop", "missing": "surely_not_installed", "mend": "pip install 'antiphon[robot]'"}]


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(SettingsError, match="'whisper', an engine for asr"):
        add_policies(EnginePool(), settings(robots={"policies": ("whisper",)}))
    with pytest.raises(EngineError, match="or one that ships"):
        add_policies(EnginePool(), settings(robots={"policies": ("mine",)}, engines={"mine": {"kind": "flow-policy"}}))
