"""Procrastinate's queue beside the `jobs` table: a token for each job that waits, written in the transaction that writes the row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import procrastinate
from procrastinate.schema import SchemaManager
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from ...engines.interface import WorkClass
from .job import Job
from .runner import CLASS_OF
from .schema import Migration, migrate

TASK = "antiphon.job"
INTERACTIVE_BONUS = 100
"""A token's priority is the job's, and this more when its class of work is interactive: classes come before priorities."""


class Tokens:
    """The `TokenQueue` of Procrastinate. `app` is the application whose workers take the tokens; it need not be open for this."""

    def __init__(self, app: procrastinate.App) -> None:
        self._app = app

    async def install(self, connection: AsyncConnection) -> None:
        """Procrastinate's own tables, at the version of its package; and an index to find the tokens of a job."""
        await migrate(connection, "procrastinate", _migrations(), fresh=_script(SchemaManager.get_schema()))
        await connection.execute(text("CREATE INDEX IF NOT EXISTS antiphon_tokens ON procrastinate_jobs ((args->>'job_id'))"))

    async def put(self, connection: AsyncConnection, job: Job) -> None:
        work_class = CLASS_OF[job.kind]
        token = self._app.configure_task(
            TASK,
            queue=job.lane,
            priority=job.priority + (INTERACTIVE_BONUS if work_class is WorkClass.INTERACTIVE else 0),
            schedule_at=datetime.fromtimestamp(job.not_before, UTC) if job.not_before is not None else None,
            connection=await _driver(connection),
        )
        await token.defer_async(job_id=job.id, work_class=int(work_class))

    async def withdraw(self, connection: AsyncConnection, job: Job) -> None:
        """Tokens that wait are removed; who works on the job is told by NOTIFY."""
        query = text("SELECT id FROM procrastinate_jobs WHERE args->>'job_id' = :job AND status IN ('todo', 'doing')")
        found = (await connection.execute(query, {"job": job.id})).scalars().all()
        driver = await _driver(connection)
        for token in found:
            await self._app.job_manager.cancel_job_by_id_async(token, abort=True, delete_job=True, connection=driver)


async def _driver(connection: AsyncConnection) -> Any:
    """The psycopg connection under a SQLAlchemy one."""
    return (await connection.get_raw_connection()).driver_connection


def _script(statements: str) -> Migration:
    async def run(connection: AsyncConnection) -> None:
        await (await _driver(connection)).execute(statements)

    return run


def _migrations() -> Sequence[tuple[str, Migration]]:
    """Procrastinate's, by the names of their files, which sort by version."""
    files = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
    return [(file.stem, _script(file.read_text(encoding="utf-8"))) for file in files]
