"""What the whole suite shares: weights, and a server started as a user starts it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from antiphon.scenarios.server import Server
from antiphon.tests.gateway.jobs.postgres_server import INSTALL, binaries

HERE = Path(__file__).parent
BROWSER_TESTS = (
    HERE / "codecs" / "test_video_in_browser.py",
    HERE / "gateway" / "console",
    HERE / "gateway" / "webrtc" / "test_browser.py",
)
BROWSERS = (os.environ.get("ANTIPHON_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "postgres: needs the programs of a PostgreSQL server")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, and say so, what needs a browser or PostgreSQL where there is none. In CI nothing is left out."""
    if os.environ.get("CI"):
        return
    if not (any(name and shutil.which(name) for name in BROWSERS) and shutil.which("npm")):
        needy = [item for item in items if any(item.path.is_relative_to(place) for place in BROWSER_TESTS)]
        leave_out(config, items, needy, "browser", "Chromium and npm (Debian: apt-get install chromium npm)")
    if binaries() is None:
        needy = [item for item in items if item.get_closest_marker("postgres")]
        leave_out(config, items, needy, "PostgreSQL", f"the programs of a PostgreSQL server ({INSTALL})")


def leave_out(config: pytest.Config, items: list[pytest.Item], needy: list[pytest.Item], what: str, need: str) -> None:
    """Take `needy` out of `items`."""
    if needy:
        items[:] = [item for item in items if item not in needy]
        config.hook.pytest_deselected(items=needy)
        print(f"\n{len(needy)} {what} tests are left out: they need {need}.")


@pytest.fixture(scope="session")
def default_weights() -> None:
    """The weights of the default pipeline, in the user's own cache."""
    from antiphon.engines import weights
    from antiphon.engines.catalogue import SETS

    for name in SETS["default"]:
        weights.pull(name)


@pytest.fixture(scope="session")
def server(default_weights: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`antiphon serve` with its default configuration: real models, and the `tone` pipeline beside them."""
    running = Server(log=tmp_path_factory.mktemp("server") / "server.log")
    asyncio.run(running.__aenter__())
    yield running
    asyncio.run(running.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def speak(server: Server) -> Callable[[str], bytes]:
    """Text -> 24 kHz PCM of somebody saying it."""
    said: dict[str, bytes] = {}

    def say(text: str) -> bytes:
        if text not in said:
            body = {"model": "tts-1", "voice": "alloy", "input": text, "response_format": "pcm"}
            response = httpx.post(f"{server.url}/v1/audio/speech", json=body, timeout=60, trust_env=False)
            response.raise_for_status()
            said[text] = response.content
        return said[text]

    return say
