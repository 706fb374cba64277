"""Tiny pipelines, assembled once a session; engines on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from antiphon.engines.diffusion.diffusers_engine import DiffusersEngine
from antiphon.engines.registry import build_engine

from . import tiny
from .running import engine_options


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny pipeline, by its name."""
    root = tmp_path_factory.mktemp("pipelines")

    def get(name: str) -> Path:
        place = root / name
        return place if place.exists() else (tiny.stubborn(place) if name == "stubborn" else tiny.build(name, place))

    return get


OpenEngine = Callable[..., AbstractAsyncContextManager[DiffusersEngine]]


@pytest.fixture
def opened(folder: Callable[[str], Path], tmp_path: Path) -> OpenEngine:
    """`async with opened("wan", **options) as engine`: in this process."""

    @asynccontextmanager
    async def open_engine(name: str, **options: Any) -> AsyncIterator[DiffusersEngine]:
        _quieten_libraries()
        engine = build_engine("diffusers", name, engine_options(folder(name), name, tmp_path, **options))
        assert isinstance(engine, DiffusersEngine)
        await engine.open()
        try:
            yield engine
        finally:
            await engine.close()

    return open_engine


def _quieten_libraries() -> None:
    """Their warnings about tiny configurations are not ours."""
    import diffusers
    import transformers

    diffusers.utils.logging.set_verbosity_error()
    transformers.utils.logging.set_verbosity_error()
