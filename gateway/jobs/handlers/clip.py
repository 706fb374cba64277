"""A clip while it is being made: an MP4 file that grows frame by frame, and the small pictures that show what is in it. Its methods
compute: call them on a thread, one at a time."""

from __future__ import annotations

from pathlib import Path

from ....codecs import images, sheets
from ....codecs.video import Mp4Writer
from .pictures import Frames, Picture, fit

THUMBNAIL_SIDE = 480
CELLS, CELL_SIDE = 25, 160
SMALL_QUALITY = 85


class Clip:
    """See the module's docstring. `width` and `height` are those of the file, `frames` how many are expected. Raises `VideoError` for what
    cannot be encoded."""

    def __init__(self, path: Path, width: int, height: int, *, fps: float, frames: int) -> None:
        self.count = 0
        self._size = (width, height)
        self._file = Mp4Writer(path, fps)
        self._shown = frozenset(sheets.choose_frames(max(1, frames), CELLS))
        self._cells: list[Picture] = []
        self._first: Picture | None = None

    def add(self, frames: Frames) -> None:
        """`[n, height, width, 3]`, in order, in the size that the model draws."""
        for frame in fit(frames, *self._size):
            if self._first is None:
                self._first = images.thumbnail(frame, THUMBNAIL_SIDE)
            if self.count in self._shown:
                self._cells.append(images.thumbnail(frame, CELL_SIDE))
            self._file.write(frame)
            self.count += 1

    def finish(self) -> tuple[bytes, bytes]:
        """Complete the MP4 file. The thumbnail (WebP) and the sheet of frames (JPEG)."""
        self._file.finish()
        assert self._first is not None, "a file without frames cannot be finished"
        height, width, _ = self._cells[0].shape
        sheet = sheets.arrange(self._cells, sheets.layout(len(self._cells), width, height, cells=CELLS, longest=CELL_SIDE))
        return images.encode(self._first, "webp", compression=SMALL_QUALITY), images.encode(sheet, "jpeg", compression=SMALL_QUALITY)

    def close(self) -> None:
        """Let go of the file, complete or not. Harmless when called again."""
        self._file.abort()
