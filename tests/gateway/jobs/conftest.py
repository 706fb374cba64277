"""The databases that the jobs' tests run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from antiphon.tests.gateway.jobs.postgres_server import PostgresServer, running_server
from antiphon.tests.gateway.jobs.world import Backend


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of our own."""
    with running_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: Any, tmp_path: Path) -> str:
    """The URL of an empty database, on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.sqlite3'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.empty_database()


@pytest.fixture(
    params=[
        "lease-sqlite",
        pytest.param("lease-postgres", marks=pytest.mark.postgres),
        pytest.param("procrastinate-postgres", marks=pytest.mark.postgres),
    ]
)
def backend(request: Any, tmp_path: Path) -> Backend:
    """A dispatcher with its database."""
    dispatcher, _, kind = request.param.partition("-")
    if kind == "sqlite":
        return Backend(dispatcher=dispatcher, database=f"sqlite:///{tmp_path / 'jobs.sqlite3'}", files=tmp_path / "files")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return Backend(dispatcher=dispatcher, database=server.empty_database(), files=tmp_path / "files")
