"""The description of the media routes and what they do are the same: schemathesis finds nothing, alone and in sequences along the links."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from antiphon.gateway.app import create_app
from antiphon.gateway.settings import load_settings
from antiphon.tests.gateway.media.conftest import media_server
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import (
    ChecksConfig,
    CoveragePhaseConfig,
    PhasesConfig,
    PositiveDataAcceptanceConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)

ROUTES = "^/v1/(videos|images|files|batches)"
SIMILAR = "^/v1/(videos/sync|images/edits)$"
PATIENCE = 60.0

# A size, a length or a file's contents may be well-formed and still be none that the model or the queue can do: then 400 is right.
ACCEPTED = [200, 202, 400, 404, 409, 413, 429]
CHECKS = ChecksConfig(positive_data_acceptance=PositiveDataAcceptanceConfig(expected_statuses=ACCEPTED))
QUICK = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def media_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in a thread of this process: the tests themselves block."""
    folder = tmp_path_factory.mktemp("media")
    started, stop = threading.Event(), asyncio.Event()
    found: dict[str, Any] = {}

    async def serve() -> None:
        async with media_server(
            folder, engine={"max_frames": 4, "max_steps": 8, "slots": 8}, jobs={"per_minute": 100_000, "max_active": 1000, "sync_s": 5.0}
        ) as server:
            found.update(url=server.url, loop=asyncio.get_running_loop())
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(PATIENCE)
    yield found["url"]
    found["loop"].call_soon_threadsafe(stop.set)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def described(**phases: Any) -> Any:
    """The description of our routes, to be tried out in these phases."""
    project = ProjectConfig(checks=CHECKS, phases=PhasesConfig(**phases))
    config = SchemathesisConfig(projects=ProjectsConfig(default=project))
    return schemathesis.openapi.from_dict(create_app(load_settings()).openapi(), config=config).include(path_regex=ROUTES)


schema = described()
# These two take the bodies of others: every corner of them again would only cost time.
similar = described(coverage=CoveragePhaseConfig(enabled=False))


@similar.include(path_regex=SIMILAR).parametrize()
@QUICK
def test_routes_that_are_like_others(case: schemathesis.Case, media_url: str) -> None:
    case.call_and_validate(base_url=media_url)


@schema.exclude(path_regex=SIMILAR).parametrize()
@QUICK
def test_each_route_does_what_its_description_says(case: schemathesis.Case, media_url: str) -> None:
    case.call_and_validate(base_url=media_url)


def test_sequences_along_the_links(media_url: str) -> None:
    schema.config.update(base_url=media_url)
    machine = schema.as_state_machine()
    machine.run(settings=settings(QUICK, max_examples=15, stateful_step_count=6))


def test_every_route_says_what_it_answers() -> None:
    for operation in schema.get_all_operations():
        statuses = set(operation.ok().definition.raw["responses"])
        assert "422" not in statuses
        assert {"400", "401", "403", "503"} <= statuses
