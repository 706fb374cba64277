"""Which store and which dispatcher the configuration asks for."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Mapping

from ...engines.pool import EnginePool
from ..errors import SettingsError
from ..settings import JobSettings
from .attempt import DispatchOptions
from .database import server_url, sqlite_url
from .interface import ArtifactStore, Dispatcher, Handler
from .job import JobKind
from .lease import LeaseDispatcher
from .store import SqlJobStore


def open_store(settings: JobSettings) -> SqlJobStore:
    """The store that the settings name, not yet open. Raises `SettingsError`."""
    if not settings.database:
        url = sqlite_url(settings.place() / "jobs.sqlite3")
    else:
        try:
            url = server_url(settings.database)
        except ValueError as error:
            raise SettingsError(f"jobs.database cannot be used: {error}") from None  # it may hold a password
    on_postgres = url.get_backend_name() == "postgresql"
    if on_postgres and (missing := [name for name in ("psycopg", "procrastinate") if importlib.util.find_spec(name) is None]):
        raise SettingsError(f"jobs.database is on PostgreSQL, which needs {' and '.join(missing)}: pip install 'antiphon[postgres]'")
    if settings.dispatcher == "procrastinate" and not on_postgres:
        raise SettingsError('jobs.dispatcher is "procrastinate", which works on PostgreSQL only: set jobs.database, or take "auto"')
    if not on_postgres or settings.dispatcher == "lease":
        return SqlJobStore(url)
    from .postgres import make_app
    from .tokens import Tokens

    return SqlJobStore(url, Tokens(make_app(url)))


def make_dispatcher(
    settings: JobSettings,
    store: SqlJobStore,
    pool: EnginePool,
    handlers: Mapping[JobKind, Handler],
    artifacts: ArtifactStore,
    lanes: Collection[str],
) -> Dispatcher:
    """The dispatcher for that store, which works for the engines named in `lanes`."""
    options = DispatchOptions(lease=settings.lease_s, poll=settings.poll_s)
    if not store.database.postgres or settings.dispatcher == "lease":
        return LeaseDispatcher(store, pool, handlers, artifacts, lanes, options)
    from .postgres import ProcrastinateDispatcher

    return ProcrastinateDispatcher(store, pool, handlers, artifacts, lanes, options)
