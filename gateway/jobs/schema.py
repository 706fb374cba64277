"""The `jobs` table, how it came to be (migrations), and the way from a row to a `Job` and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    insert,
    select,
    update,
)
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .errors import SchemaError
from .job import Artifact, Job, JobFault, JobKind, JobStatus

metadata = MetaData()

versions = Table("antiphon_schema", metadata, Column("part", String(40), primary_key=True), Column("version", String(100), nullable=False))
"""How far each part of the database was migrated."""

SERIAL = BigInteger().with_variant(Integer(), "sqlite")  # SQLite numbers only an INTEGER by itself

jobs = Table(
    "jobs",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=True),
    Column("id", String(80), nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("lane", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("request", JSON, nullable=False),
    Column("request_hash", String(128), nullable=False),
    Column("status", String(16), nullable=False),
    Column("progress", Double, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("owner", Text),
    Column("lease_until", Double),
    Column("cancel_requested", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    Column("expires_at", Double),
    Column("expires_after", Double, nullable=False),
    Column("idempotency_key", Text),
    Column("remixed_from", Text),
    Column("webhook", Text),
    Column("fault", JSON(none_as_null=True)),
    Column("artifacts", JSON, nullable=False),
    Column("result", JSON, nullable=False),
    Column("not_before", Double),
    Column("preview", Integer, nullable=False),
    # What is nobody's business but the store's: the end that is still to be told, and how often that was tried.
    Column("tell_at", Double),
    Column("tell_tries", Integer, nullable=False, server_default="0"),
    UniqueConstraint("tenant", "idempotency_key"),
    Index("jobs_list", "tenant", "kind", "seq"),
    Index("jobs_turn", "status", "lane", "priority", "seq"),
    Index("jobs_expiry", "expires_at"),
    Index("jobs_telling", "tell_at"),
    sqlite_autoincrement=True,  # the number of a removed job is never given again
)


async def _v1(connection: AsyncConnection) -> None:
    await connection.run_sync(lambda sync: metadata.create_all(sync, tables=[jobs], checkfirst=True))


Migration = Callable[[AsyncConnection], Awaitable[None]]
MIGRATIONS: Sequence[tuple[str, Migration]] = (("1", _v1),)
"""Of the part `jobs`: names that sort, oldest first. Add to the end, change nothing."""


async def migrate(
    connection: AsyncConnection,
    part: str = "jobs",
    migrations: Sequence[tuple[str, Migration]] = MIGRATIONS,
    fresh: Migration | None = None,
) -> None:
    """Bring a part of the database to the newest version (`fresh`: how to get there from nothing, else by all migrations), in the caller's
    transaction, which must keep others from doing the same. Raises `SchemaError` when a newer version of this software was here before."""
    await connection.run_sync(lambda sync: versions.create(sync, checkfirst=True))
    found = (await connection.execute(select(versions.c.version).where(versions.c.part == part))).scalar_one_or_none()
    names = [name for name, _ in migrations]
    if found is not None and found not in names:
        raise SchemaError(f"The part {part!r} of the database has version {found}; this software knows only {names[-1]}. Update it.")
    if found is None and fresh is not None:
        await fresh(connection)
    else:
        for _, migration in migrations[names.index(found) + 1 if found is not None else 0 :]:
            await migration(connection)
    if found is None:
        await connection.execute(insert(versions).values(part=part, version=names[-1]))
    elif found != names[-1]:
        await connection.execute(update(versions).where(versions.c.part == part).values(version=names[-1]))


_FIELDS = tuple(field.name for field in dataclasses.fields(Job))
_PLAIN = tuple(name for name in _FIELDS if name not in ("kind", "status", "cancel_requested", "fault", "artifacts"))


def as_job(row: RowMapping) -> Job:
    """A row of the table as a job."""
    return Job(
        kind=JobKind(row["kind"]),
        status=JobStatus(row["status"]),
        cancel_requested=bool(row["cancel_requested"]),
        fault=JobFault(**row["fault"]) if row["fault"] is not None else None,
        artifacts=tuple(Artifact(**artifact) for artifact in row["artifacts"]),
        **{name: row[name] for name in _PLAIN},
    )


def as_row(job: Job) -> dict[str, Any]:
    """The columns of a job, `seq` left out when it has none yet (0)."""
    row: dict[str, Any] = {name: getattr(job, name) for name in _PLAIN if name != "seq" or job.seq}
    row.update(
        kind=job.kind.value,
        status=job.status.value,
        cancel_requested=int(job.cancel_requested),
        fault=dataclasses.asdict(job.fault) if job.fault is not None else None,
        artifacts=[dataclasses.asdict(artifact) for artifact in job.artifacts],
    )
    return row


def changes(before: Job, after: Job) -> dict[str, Any]:
    """The columns in which two states of a job differ."""
    old, new = as_row(before), as_row(after)
    return {name: value for name, value in new.items() if value != old[name]}
