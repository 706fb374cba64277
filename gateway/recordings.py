"""Where recordings of sessions go: one file each, written from a thread of its own so that the disk never holds up a voice."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from pathlib import Path

from ..sessions.recording import Recorder, RecordingHeader
from .logs import logger
from .settings import RecordingSettings

log = logger("gateway.recordings")

SUFFIX = ".antiphon"
QUEUE_BOUND = 4096
QUEUE_BYTES = 64 * 1024 * 1024
"""Frames on their way to the disk, and their bytes; policy: the recording ends beyond either."""
CLOSE_TIMEOUT = 5.0


class Recording:
    """A recording in progress. Give `recorder` the session's steps, then `close`."""

    def __init__(self, path: Path, header: RecordingHeader, max_bytes: int) -> None:
        self.path = path
        self._frames: queue.Queue[bytes | None] = queue.Queue(QUEUE_BOUND)
        self._fault: OSError | None = None
        self._put_bytes = 0
        self._written_bytes = 0
        """Counted on either side of the queue: what is on its way is the difference."""
        self._thread = threading.Thread(target=self._write, name=f"recording {path.name}", daemon=True)
        self._thread.start()
        self.recorder = Recorder(self._put, header, max_bytes=max_bytes)

    def close(self) -> None:
        """Nothing more will come. Returns at once; what is queued is still written."""
        if self.recorder.stopped:
            log.warning("recording cut short", path=str(self.path), reason=self.recorder.stopped)
        try:
            self._frames.put_nowait(None)
        except queue.Full:
            self._fault = self._fault or OSError("the disk is too slow")

    async def written(self) -> None:
        """Wait, at most `CLOSE_TIMEOUT` seconds, until the file is complete: the thread would not outlive the process."""
        ends = time.monotonic() + CLOSE_TIMEOUT
        while self._thread.is_alive() and time.monotonic() < ends:  # noqa: ASYNC110 - a thread tells nobody
            await asyncio.sleep(0.005)

    def _put(self, frame: bytes) -> None:
        if self._fault is not None:
            raise self._fault
        if self._put_bytes - self._written_bytes > QUEUE_BYTES:
            raise OSError("the disk is too slow")
        try:
            self._frames.put_nowait(frame)
        except queue.Full:
            raise OSError("the disk is too slow") from None
        self._put_bytes += len(frame)

    def _write(self) -> None:
        try:
            with self.path.open("wb") as file:
                while (frame := self._next()) is not None:
                    file.write(frame)
                    if self._frames.empty():
                        file.flush()
                    self._written_bytes += len(frame)
        except OSError as error:
            self._fault = error

    def _next(self) -> bytes | None:
        """The next frame; None at the end, also when a fault left no room for the end mark."""
        while True:
            try:
                return self._frames.get(timeout=1.0)
            except queue.Empty:
                if self._fault is not None:
                    return None


def start_recording(settings: RecordingSettings, header: RecordingHeader) -> Recording | None:
    """A recording of a new session, if they are on. A folder that cannot be made only costs the recording."""
    if not settings.on:
        return None
    try:
        settings.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        log.error("no recording", folder=str(settings.folder), error=str(error))
        return None
    return Recording(settings.folder / f"{header.session_id}{SUFFIX}", header, settings.max_mb * 1_000_000)
