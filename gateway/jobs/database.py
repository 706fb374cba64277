"""The database under the jobs, SQLite in a file or PostgreSQL: connections, transactions, what errors mean, who hears of writes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, event, func, make_url, select
from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from ..logs import logger
from .errors import StoreUnavailableError
from .interface import Changes

if TYPE_CHECKING:
    import aiosqlite
    import psycopg

log = logger("gateway.jobs")

BUSY_S = 5.0
"""How long a statement waits for somebody else's lock."""
STATEMENT_S = 15.0
"""How long any statement may take on a server."""
CHANNEL = "antiphon_jobs"
"""PostgreSQL's NOTIFY channel of writes to the table."""
SETTLE_S = 0.02
"""Writes that come so close together are told once."""

PASSING = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_CANTOPEN",
    "SQLITE_READONLY",
    "SQLITE_PROTOCOL",
    "SQLITE_NOMEM",
)
"""SQLite's errors that come from the machine, not from the statement; they may pass."""


def sqlite_url(path: Path) -> URL:
    """The database in a file."""
    return URL.create("sqlite+aiosqlite", database=str(path))


def server_url(text: str) -> URL:
    """What people write ("postgresql://user:password@host/name") with the driver that is used. Raises `ValueError`."""
    url = make_url(text) if "://" in text else None
    if url is None or url.get_backend_name() not in ("postgresql", "postgres", "sqlite"):
        raise ValueError("it must look like postgresql://user:password@host/name")
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise ValueError("SQLite needs a file that outlives the server: sqlite:////path/to/jobs.sqlite3")
        return url.set(drivername="sqlite+aiosqlite")
    return url.set(drivername="postgresql+psycopg")


class Database:
    """See the module's docstring. `read` and `write` raise `StoreUnavailableError` for what may pass: no connection, a lock, no room."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.postgres = url.get_backend_name() == "postgresql"
        self._engine = _postgres(url) if self.postgres else _sqlite(url)
        self._writer = asyncio.Lock()  # SQLite has one writer: who waits here does not spin on the file's lock

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A connection to look with."""
        with _told():
            async with self._engine.connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction, committed when the block ends well. On SQLite the only one at that time."""
        with _told():
            async with contextlib.nullcontext() if self.postgres else self._writer, self._engine.connect() as connection:
                await connection.execution_options(writes=True)
                async with connection.begin():
                    yield connection

    async def exclude(self, connection: AsyncConnection, name: str) -> None:
        """Let nobody else into a part of the code named `name` until this transaction ends."""
        if self.postgres:
            number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
            await connection.execute(select(func.pg_advisory_xact_lock(number)))

    async def announce(self, connection: AsyncConnection) -> None:
        """Wake who waits for changes, when this transaction is committed."""
        if self.postgres:
            await connection.execute(select(func.pg_notify(CHANNEL, "")))

    def changes(self, poll: float) -> Changes:
        """Somebody who waits for writes by any process."""
        return PostgresChanges(self.url, poll) if self.postgres else SqliteChanges(self.url, poll)


def conninfo(url: URL) -> str:
    """The URL as psycopg takes it."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


SERVER_OPTIONS: dict[str, Any] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "application_name": "antiphon",
}
"""libpq's, so that a server that went away without a word is noticed."""


def _postgres(url: URL) -> AsyncEngine:
    statement, busy = f"{STATEMENT_S * 1000:.0f}", f"{BUSY_S * 1000:.0f}"
    # The last: a process that was stopped in the midst of a transaction must not keep its rows locked.
    limits = f"-c statement_timeout={statement} -c lock_timeout={busy} -c idle_in_transaction_session_timeout={statement}"
    return create_async_engine(
        url,
        pool_size=5,
        max_overflow=10,
        pool_timeout=BUSY_S,
        pool_pre_ping=True,
        connect_args={**SERVER_OPTIONS, "options": limits},
    )


def _sqlite(url: URL) -> AsyncEngine:
    engine = create_async_engine(url, pool_size=5, max_overflow=10, pool_timeout=BUSY_S, connect_args={"timeout": BUSY_S})

    @event.listens_for(engine.sync_engine, "connect")
    def opened(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous=FULL")  # who was told that a job is taken finds it after a power cut
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begun(connection: Any) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


async def use_wal(database: Database) -> None:
    """Switch a SQLite file to write-ahead logging (once; the file remembers), so that readers and the writer do not wait for each other.

    Needs the file for itself for a moment, and SQLite does not wait for that by itself. Raises `StoreUnavailableError`.
    """
    if database.postgres or database.url.database is None:
        return
    path = Path(database.url.database)
    ends = time.monotonic() + BUSY_S

    def switch() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")

    while True:
        try:
            await asyncio.to_thread(switch)
            return
        except OSError as error:
            raise StoreUnavailableError(f"The folder of the job database cannot be made: {error}.") from error
        except sqlite3.OperationalError as error:
            if not _passes(error) or time.monotonic() > ends:
                raise StoreUnavailableError(f"The job database {path} cannot be opened: {error}.") from error
            await asyncio.sleep(0.02)


@contextmanager
def _told() -> Iterator[None]:
    """Turn errors that may pass into `StoreUnavailableError`; the others are faults of ours and pass through."""
    try:
        yield
    except Exception as error:
        if isinstance(error, DBAPIError):
            cause, passes = error.orig, error.connection_invalidated or isinstance(error, InterfaceError) or _passes(error.orig)
        else:  # of the connection pool, of the socket, or of who used the driver's connection directly
            cause = error
            passes = isinstance(error, PoolTimeoutError | OSError) or _passes(error) or _passes(error.__cause__)
        if passes:
            log.warning("the job database cannot be used now", error=str(cause))
            raise StoreUnavailableError(f"The job database cannot be used now: {_reason(cause)}.") from error
        raise


def _reason(cause: BaseException | None) -> str:
    """In words for clients, who need not know where the database is."""
    if isinstance(cause, sqlite3.Error):
        return str(cause)
    return "its disk is full" if type(cause).__name__ == "DiskFull" else "it does not answer"


def _passes(error: BaseException | None) -> bool:
    """Whether a driver's error comes from the machine, not from the statement, and may pass."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorname", "").startswith(PASSING)
    # psycopg's own class need not be there. It is raised for: no connection, shut down, no room, timed out, chosen to end a deadlock.
    return any(kind.__module__.startswith("psycopg") and kind.__name__ == "OperationalError" for kind in type(error).__mro__)


# ---- changes --------------------------------------------------------------------------------------------------------


class SqliteChanges:
    """Looks at the file's change counter, which costs some microseconds, every `poll` seconds."""

    def __init__(self, url: URL, poll: float) -> None:
        self._path = str(url.database)
        self._poll = poll
        self._connection: aiosqlite.Connection | None = None
        self._seen: int | None = None

    async def wait(self, timeout: float) -> bool:
        ends = time.monotonic() + timeout
        while True:
            seen = await self._version()
            if seen != self._seen:
                self._seen = seen
                return True
            left = ends - time.monotonic()
            if left <= 0:
                return False
            await asyncio.sleep(min(self._poll, left))

    async def _version(self) -> int | None:
        import aiosqlite

        try:
            if self._connection is None:
                self._connection = await aiosqlite.connect(self._path, timeout=BUSY_S)
            async with self._connection.execute("PRAGMA data_version") as cursor:
                row = await cursor.fetchone()
            return int(row[0]) if row is not None else None
        except sqlite3.Error:
            return None  # whoever uses the table hears of it there

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


class PostgresChanges:
    """Listens. While it has no connection it says, every `poll` seconds, that there may be something new."""

    def __init__(self, url: URL, poll: float) -> None:
        self._conninfo = conninfo(url)
        self._poll = poll
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def wait(self, timeout: float) -> bool:
        import psycopg

        try:
            if self._connection is None:
                connection = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True, **SERVER_OPTIONS)
                await connection.execute(f"LISTEN {CHANNEL}")
                self._connection = connection
                return True  # nobody listened until now
            if heard := [told async for told in self._connection.notifies(timeout=timeout, stop_after=1)]:
                await asyncio.sleep(SETTLE_S)
                heard += [told async for told in self._connection.notifies(timeout=0)]
            return bool(heard)
        except psycopg.OperationalError:
            await self.close()
            await asyncio.sleep(min(timeout, max(self._poll, 0.1)))
            return True

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()
