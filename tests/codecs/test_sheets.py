"""Sprite sheets and contact sheets."""

from __future__ import annotations

import numpy as np
import pytest
from antiphon.codecs.images import ImageError
from antiphon.codecs.sheets import arrange, choose_frames, contact_sheet, layout, sprite_sheet
from hypothesis import given
from hypothesis import strategies as st


def numbered(count: int, height: int = 36, width: int = 64) -> np.ndarray:
    """A clip whose frame n has the grey level n."""
    return np.stack([np.full((height, width, 3), index, np.uint8) for index in range(count)])


@given(st.integers(1, 2000), st.integers(1, 256))
def test_frames_are_spread_from_the_first_to_the_last(count: int, wanted: int) -> None:
    chosen = choose_frames(count, wanted)
    assert len(chosen) == min(count, wanted)
    assert chosen[0] == 0
    assert len(chosen) == 1 or chosen[-1] == count - 1
    gaps = np.diff(chosen)
    assert len(gaps) == 0 or (gaps.min() >= 1 and gaps.max() - gaps.min() <= 1)


@given(st.integers(1, 400), st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 64), st.none() | st.integers(1, 9))
def test_every_cell_lies_on_the_sheet_and_no_two_meet(count: int, width: int, height: int, cells: int, columns: int | None) -> None:
    found = layout(count, width, height, cells=cells, columns=columns, longest=160)
    assert max(found.cell_width, found.cell_height) <= 160
    corners = [found.corner(cell) for cell in range(len(found.frames))]
    assert len(set(corners)) == len(corners)
    for left, top in corners:
        assert 0 <= left <= found.size[0] - found.cell_width
        assert 0 <= top <= found.size[1] - found.cell_height
    assert (found.rows - 1) * found.columns < len(found.frames) <= found.rows * found.columns


def test_each_cell_shows_its_frame() -> None:
    clip = numbered(30)
    sheet, found = sprite_sheet(clip, cells=7, columns=3, longest=32)
    assert (found.columns, found.rows, found.cell_width, found.cell_height) == (3, 3, 32, 18)
    assert sheet.shape == (54, 96, 3)
    for cell, number in enumerate(found.frames):
        left, top = found.corner(cell)
        assert (sheet[top : top + 18, left : left + 32] == number).all()
    assert (sheet[36:, 32:] == 0).all()


def test_a_sheet_of_a_long_clip_needs_only_the_frames_it_shows() -> None:
    found = layout(5000, 64, 36, cells=4, longest=32)
    assert found.frames == (0, 1666, 3333, 4999)
    assert arrange([numbered(1)[0]] * 4, found).shape[2] == 3
    with pytest.raises(ImageError, match="4 cells to fill, not 3"):
        arrange([numbered(1)[0]] * 3, found)


def test_wide_and_tall_clips_make_sheets_that_are_about_square() -> None:
    for width, height in [(1280, 720), (720, 1280), (512, 512)]:
        across, down = layout(64, width, height, cells=16).size
        assert 0.5 < across / down < 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cells": 257}, "at most 256 cells"),
        ({"cells": 0}, "at least one"),
        ({"columns": 0}, "at least one column"),
        ({"longest": 9000, "columns": 2}, "a side may have"),
    ],
)
def test_impossible_sheets_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ImageError, match=message):
        layout(300, 9000, 9000, **options)


def test_contact_sheets_take_pictures_of_all_sizes() -> None:
    pictures = [np.full((20, 40, 3), 10, np.uint8), np.full((40, 20, 3), 20, np.uint8), np.full((400, 400, 3), 30, np.uint8)]
    sheet = contact_sheet(pictures, columns=2, longest=40, gap=4)
    assert sheet.shape == (4 + 2 * 44, 4 + 2 * 44, 3)
    for level, area in [(10, 800), (20, 800), (30, 1600)]:
        assert (sheet[..., 0] == level).sum() == area
    assert (sheet[:4] == 255).all()
    with pytest.raises(ImageError, match="at least one picture"):
        contact_sheet([], columns=2)
