"""Sheets: some frames of a clip side by side in one picture, for scrubbing through it or for a look at many pictures at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from . import images
from .images import Clip, ImageError, Picture

MAX_CELLS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetLayout:
    """How to find a frame on a sheet: cell n has its upper left corner at `(n % columns * cell_width, n // columns * cell_height)`.

    `frames` are the numbers of the clip's frames in the cells, in order; cells after the last are black.
    """

    columns: int
    rows: int
    cell_width: int
    cell_height: int
    frames: tuple[int, ...]

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the sheet."""
        return self.columns * self.cell_width, self.rows * self.cell_height

    def corner(self, cell: int) -> tuple[int, int]:
        """(left, top) of a cell."""
        return cell % self.columns * self.cell_width, cell // self.columns * self.cell_height


def choose_frames(count: int, wanted: int) -> tuple[int, ...]:
    """The numbers of at most `wanted` of `count` frames, evenly spread, the first and the last among them."""
    if count < 1 or wanted < 1:
        raise ImageError(f"a sheet needs at least one frame and one cell, not {count} and {wanted}")
    if wanted >= count:
        return tuple(range(count))
    if wanted == 1:
        return (0,)
    return tuple(round(index * (count - 1) / (wanted - 1)) for index in range(wanted))


def layout(count: int, width: int, height: int, *, cells: int = 16, columns: int | None = None, longest: int = 160) -> SheetLayout:
    """The layout of a clip's sheet: `count` frames of `width` x `height`, at most `cells` of them, each cell's longer side at most
    `longest` pixels. Without `columns` the sheet is about square. Raises `ImageError`."""
    if cells > MAX_CELLS:
        raise ImageError(f"a sheet has at most {MAX_CELLS} cells, not {cells}")
    chosen = choose_frames(count, cells)
    cell_width, cell_height = images.fit(width, height, longest)
    if columns is None:
        columns = max(1, min(len(chosen), round(math.sqrt(len(chosen) * cell_height / cell_width))))
    if columns < 1:
        raise ImageError(f"a sheet has at least one column, not {columns}")
    columns = min(columns, len(chosen))
    found = SheetLayout(columns=columns, rows=-(-len(chosen) // columns), cell_width=cell_width, cell_height=cell_height, frames=chosen)
    if max(found.size) > images.MAX_SIDE:
        raise ImageError(f"the sheet would be {found.size[0]}x{found.size[1]}; a side may have {images.MAX_SIDE} pixels")
    return found


def sprite_sheet(clip: Clip, *, cells: int = 16, columns: int | None = None, longest: int = 160) -> tuple[Picture, SheetLayout]:
    """Frames of a clip, evenly spread over it, in one picture, and where each is. Raises `ImageError`."""
    count, height, width, _ = clip.shape
    found = layout(count, width, height, cells=cells, columns=columns, longest=longest)
    return arrange([clip[number] for number in found.frames], found), found


def arrange(pictures: Sequence[Picture], found: SheetLayout) -> Picture:
    """The pictures of a layout's cells in one; they are brought to the cells' size. (A long clip need not be in memory whole for that.)"""
    if len(pictures) != len(found.frames):
        raise ImageError(f"the sheet has {len(found.frames)} cells to fill, not {len(pictures)}")
    width, height = found.size
    sheet = np.zeros((height, width, 3), np.uint8)
    for cell, picture in enumerate(pictures):
        left, top = found.corner(cell)
        sheet[top : top + found.cell_height, left : left + found.cell_width] = images.resize(picture, found.cell_width, found.cell_height)
    return sheet


def contact_sheet(pictures: Sequence[Picture], *, columns: int, longest: int = 160, gap: int = 4) -> Picture:
    """Pictures, perhaps of different sizes, in a grid on white, each in the middle of its cell. Raises `ImageError`."""
    if not pictures:
        raise ImageError("a contact sheet needs at least one picture")
    if columns < 1 or gap < 0:
        raise ImageError(f"a contact sheet needs at least one column and no negative gap, not {columns} and {gap}")
    small = [images.thumbnail(picture, longest) for picture in pictures]
    columns = min(columns, len(small))
    cell_width = max(picture.shape[1] for picture in small) + gap
    cell_height = max(picture.shape[0] for picture in small) + gap
    rows = -(-len(small) // columns)
    sheet = np.full((rows * cell_height + gap, columns * cell_width + gap, 3), 255, np.uint8)
    if max(sheet.shape) > images.MAX_SIDE:
        raise ImageError(f"the sheet would be {sheet.shape[1]}x{sheet.shape[0]}; a side may have {images.MAX_SIDE} pixels")
    for index, picture in enumerate(small):
        height, width, _ = picture.shape
        left = gap + index % columns * cell_width + (cell_width - gap - width) // 2
        top = gap + index // columns * cell_height + (cell_height - gap - height) // 2
        sheet[top : top + height, left : left + width] = picture
    return sheet
