"""A PostgreSQL server of the tests' own: in a temporary folder, on a free port of 127.0.0.1, as a user who is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

PLACES = ("/usr/lib/postgresql", "/usr/local/pgsql", "/opt/homebrew/opt", "/usr/pgsql")
INSTALL = "Debian and Ubuntu: apt-get install postgresql; macOS: brew install postgresql"
USERS = ("postgres", "nobody")


def binaries() -> Path | None:
    """The folder with initdb and pg_ctl; the newest, if there are several."""
    if found := shutil.which("initdb"):
        folder = Path(found).resolve().parent
        if (folder / "pg_ctl").exists():
            return folder
    folders = [path.parent for place in PLACES for path in Path(place).glob("**/bin/initdb")]
    return max(folders, key=str, default=None)


class PostgresServer:
    """See the module's docstring."""

    def __init__(self, bin_folder: Path) -> None:
        self._bin = bin_folder
        self._folder = Path(tempfile.mkdtemp(prefix="antiphon-postgres-"))
        self._data = self._folder / "data"
        with socket.create_server(("127.0.0.1", 0)) as sock:
            self.port: int = sock.getsockname()[1]
        self._as_user: dict[str, Any] = {}
        if os.getuid() == 0:  # initdb refuses root
            user = next(entry for name in USERS for entry in pwd.getpwall() if entry.pw_name == name)
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            cwd=self._folder,
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=(self._folder / f"{program}.log").open("ab"),
            stderr=subprocess.STDOUT,
            timeout=120,
            **self._as_user,
        )
        if done.returncode:
            log = "\n".join(path.read_text(errors="replace")[-2000:] for path in self._folder.glob("*.log"))
            raise RuntimeError(f"{program} failed with {done.returncode}:\n{log}")

    def create(self) -> None:
        self._run("initdb", "-D", str(self._data), "-U", "antiphon", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    def start(self) -> None:
        """Durable in the face of killed clients; the tests pull no power plug, so it need not wait for the disk."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c max_connections=200"
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self._folder / "server.log"), "-o", options, "-w", "-t", "60", "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "-t", "60", "stop")

    @property
    def url(self) -> str:
        return f"postgresql://antiphon@127.0.0.1:{self.port}/postgres"

    def empty_database(self) -> str:
        """The URL of the database, emptied."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            others = "pid <> pg_backend_pid() AND datname = 'postgres'"
            connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return self.url

    def remove(self) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A server, stopped and removed at the end. Raises `RuntimeError` where PostgreSQL is not installed."""
    folder = binaries()
    if folder is None:
        raise RuntimeError(f"These tests need PostgreSQL's programs. {INSTALL}.")
    server = PostgresServer(folder)
    try:
        server.create()
        yield server
    finally:
        server.remove()
