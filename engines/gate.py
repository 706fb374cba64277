"""The realtime gate: what all gateway processes of a machine tell the engines that should step aside.

A gateway says whether realtime or action work is being computed for it right now; a diffusion engine, in whatever process, looks before
each step. They share a small memory-mapped file with a slot per gateway process. A slot has one writer, so nothing needs a lock but
taking a slot. Nobody has to be told of a death: a slot whose process is gone, or whose work has given no sign for `STALE_S`, does not
count.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

SLOTS = 64
STALE_S = 5.0
"""Work that has given no sign of life for so long does not hold the gate (its process hangs, or its number was given to another)."""
ENVIRONMENT = "ANTIPHON_GATE"
"""Names another file than `default_path`; its processes then gate only each other."""

_WORDS = 4
_PID, _WORKING, _SIGN, _LAST = range(_WORDS)
_SIZE = SLOTS * _WORDS * 8
_ALIVE_FOR_S = 0.25


def default_path() -> Path:
    """One file for all of a user's processes on this machine, in memory where the system offers that."""
    chosen = os.environ.get(ENVIRONMENT)
    if chosen:
        return Path(chosen)
    memory = Path("/dev/shm")
    folder = memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    return folder / f"antiphon-gate-1-{os.getuid()}"


class _Table:
    """The mapped file: `SLOTS` rows of (pid, pieces of work being computed, last sign of them, last time there were any), times in ns."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(self.descriptor).st_uid != os.geteuid():
                raise PermissionError(f"{path} belongs to another user")
            if os.fstat(self.descriptor).st_size < _SIZE:
                os.ftruncate(self.descriptor, _SIZE)
            self._map = mmap.mmap(self.descriptor, _SIZE)
        except BaseException:
            os.close(self.descriptor)
            raise
        self.words = memoryview(self._map).cast("Q")

    def close(self) -> None:
        self.words.release()
        self._map.close()
        os.close(self.descriptor)


class GateWriter:
    """A gateway's side. Used from one thread.

    It takes its slot at the first piece of work; when there is no free one, or no file can be made, it says so once in the log and the
    gate stays as open as if it weren't there.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or default_path()
        self._table: _Table | None = None
        self._row = -1
        self._working = 0
        self._failed = False

    @contextmanager
    def working(self) -> Iterator[None]:
        """A piece of realtime or action work is being computed."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        if self._row < 0 and not self._failed:
            self._take_slot()
        self._working += change
        if self._table is not None:
            now = time.monotonic_ns()
            words, row = self._table.words, self._row * _WORDS
            words[row + _SIGN] = words[row + _LAST] = now
            words[row + _WORKING] = self._working

    def _take_slot(self) -> None:
        try:
            table = _Table(self._path)
        except OSError as error:
            self._failed = True
            log.warning("no realtime gate: %s", error)
            return
        fcntl.flock(table.descriptor, fcntl.LOCK_EX)
        try:
            for row in range(SLOTS):
                pid = table.words[row * _WORDS + _PID]
                if not pid or not alive(pid):
                    for word in (_WORKING, _SIGN, _LAST):
                        table.words[row * _WORDS + word] = 0
                    table.words[row * _WORDS + _PID] = os.getpid()
                    self._table, self._row = table, row
                    return
        finally:
            fcntl.flock(table.descriptor, fcntl.LOCK_UN)
        table.close()
        self._failed = True
        log.warning("no realtime gate: %s has no free slot", self._path)

    def close(self) -> None:
        """Give the slot back. Harmless when called again."""
        table, self._table = self._table, None
        if table is not None:
            table.words[self._row * _WORDS + _WORKING] = 0
            table.words[self._row * _WORDS + _PID] = 0
            table.close()
        self._failed = True


class GateReader:
    """An engine's side: cheap enough to be asked before each step. Raises OSError when the file cannot be made."""

    def __init__(self, path: Path | None = None) -> None:
        self._table = _Table(path or default_path())
        self._seen_alive: dict[int, float] = {}

    def busy(self) -> bool:
        """Is realtime or action work being computed for some gateway of this machine?"""
        words, now = self._table.words, time.monotonic_ns()
        for row in range(0, SLOTS * _WORDS, _WORDS):
            pid = words[row + _PID]
            if pid and words[row + _WORKING] and now - words[row + _SIGN] < STALE_S * 1e9 and self._alive(pid):
                return True
        return False

    def live(self, within_s: float) -> bool:
        """Has there been any in the last `within_s` seconds?"""
        words, now = self._table.words, time.monotonic_ns()
        return any(
            words[row + _PID] and words[row + _LAST] and now - words[row + _LAST] < within_s * 1e9
            for row in range(0, SLOTS * _WORDS, _WORDS)
        )

    def _alive(self, pid: int) -> bool:
        """Asked of the system at most every `_ALIVE_FOR_S`."""
        now = time.monotonic()
        if now - self._seen_alive.get(pid, -1.0) < _ALIVE_FOR_S:
            return True
        if not alive(pid):
            self._seen_alive.pop(pid, None)
            return False
        self._seen_alive[pid] = now
        return True

    def close(self) -> None:
        self._table.close()


def alive(pid: int) -> bool:
    """Does a process of this number run? (One that has ended but was not yet waited for does not.)"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return True
