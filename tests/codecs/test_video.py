"""MP4 clips: written frame by frame, read back, and nothing left of those that failed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from antiphon.codecs.video import Mp4Writer, VideoError, encode_mp4, h264_encoder, probe, read_frames


def moving(count: int = 16, height: int = 64, width: int = 96) -> np.ndarray:
    """A green square that wanders over red."""
    clip = np.empty((count, height, width, 3), np.uint8)
    clip[:] = (200, 30, 30)
    for number in range(count):
        left = 4 * number % (width - 24)
        clip[number, 8:32, left : left + 24] = (20, 180, 60)
    return clip


def write(path: Path, frames: Iterable[np.ndarray]) -> None:
    with Mp4Writer(path, 8.0) as writer:
        for frame in frames:
            writer.write(frame)


def boxes(data: bytes) -> list[str]:
    """The names of an MP4's outermost boxes, in order."""
    names, at = [], 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        names.append(data[at + 4 : at + 8].decode("ascii"))
        at += size
    return names


def test_a_clip_there_and_back() -> None:
    data = encode_mp4(moving(), 8.0)
    info = probe(data)
    assert (info.frames, info.fps, info.size, info.duration, info.codec) == (16, 8.0, (96, 64), 2.0, "h264")
    back = np.stack(list(read_frames(data)))
    assert back.shape == moving().shape
    assert np.abs(back.astype(int) - moving()).mean() < 4


def test_the_index_comes_before_the_frames() -> None:
    """So a browser can begin to play before the whole file has come."""
    names = boxes(encode_mp4(moving(), 8.0))
    assert names.index("moov") < names.index("mdat")


def test_the_same_frames_give_the_same_bytes() -> None:
    assert encode_mp4(moving(), 8.0) == encode_mp4(moving(), 8.0)


@pytest.mark.parametrize("fps", [1.0, 7.5, 23.976, 29.97, 60.0])
def test_rates(fps: float) -> None:
    info = probe(encode_mp4(moving(9), fps))
    assert info.fps == pytest.approx(fps, rel=1e-4)
    assert info.duration == pytest.approx(9 / fps, rel=0.01)
    assert info.frames == 9


def test_odd_sides_become_even() -> None:
    clip = moving(3, 33, 51)
    data = encode_mp4(clip, 8.0)
    assert probe(data).size == (52, 34)
    back = next(read_frames(data)).astype(int)
    assert np.abs(back[:33, :51] - clip[0]).mean() < 6
    assert np.abs(back[33] - back[32]).mean() < 8


def test_small_clips_are_enlarged_by_whole_numbers() -> None:
    data = encode_mp4(moving(), 8.0, least=256)
    assert probe(data).size == (288, 192)
    assert probe(encode_mp4(moving(), 8.0, least=96)).size == (96, 64)
    assert probe(encode_mp4(moving(1), 8.0)).frames == 1


def test_better_quality_is_larger() -> None:
    noise = np.random.default_rng(1).integers(0, 255, (6, 64, 64, 3)).astype(np.uint8)
    sizes = [len(encode_mp4(noise, 8.0, quality=quality)) for quality in (40, 28, 18)]
    assert sizes == sorted(sizes)


def test_frames_are_written_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    with Mp4Writer(path, 24.0) as writer:
        for frame in moving(200, 128, 192):
            writer.write(frame)
            assert not path.exists()
        (unfinished,) = tmp_path.iterdir()
        assert unfinished.stat().st_size > 0  # most of it is on the disk already
        assert writer.frames == 200
    assert [file.name for file in tmp_path.iterdir()] == ["clip.mp4"]
    assert probe(path).frames == 200


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"the old one")

    def failing() -> Iterator[np.ndarray]:
        yield from moving(4)
        raise RuntimeError("the model failed")

    with pytest.raises(RuntimeError, match="the model failed"):
        write(path, failing())
    assert path.read_bytes() == b"the old one"
    assert len(list(tmp_path.iterdir())) == 1


def test_aborting_twice_or_after_the_end_does_nothing(tmp_path: Path) -> None:
    writer = Mp4Writer(tmp_path / "clip.mp4", 8.0)
    writer.write(moving(1)[0])
    writer.finish()
    writer.abort()
    writer.abort()
    assert probe(tmp_path / "clip.mp4").frames == 1


def test_an_empty_clip_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match="at least one frame"):
        write(tmp_path / "clip.mp4", [])
    with pytest.raises(VideoError, match="at least one frame"):
        encode_mp4([], 8.0)
    assert not list(tmp_path.iterdir())


def test_a_full_or_forbidden_place_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write(tmp_path / "nowhere" / "clip.mp4", moving(1))
    (tmp_path / "clip.mp4").mkdir()
    with pytest.raises(OSError, match="directory"):
        write(tmp_path / "clip.mp4", moving(1))
    assert os.listdir(tmp_path) == ["clip.mp4"]


def test_wrong_frames_are_named(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match=r"was \[64, 96, 3\], is \[64, 98, 3\]"):
        write(tmp_path / "a.mp4", [moving(1)[0], moving(1, 64, 98)[0]])
    for wrong in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((0, 4, 3), np.uint8)):
        with pytest.raises(VideoError, match="a frame is an array"):
            encode_mp4([wrong], 8.0)
    with pytest.raises(VideoError, match="too large"):
        encode_mp4([np.zeros((2, 4098, 3), np.uint8)], 8.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fps", [0.0, -1.0, float("nan"), 241.0])
def test_impossible_rates_are_refused(fps: float) -> None:
    with pytest.raises(VideoError, match="rate between 0 and 240"):
        encode_mp4(moving(1), fps)


@pytest.mark.parametrize("data", [b"", b"hello", encode_mp4(moving(2), 8.0)[:300]])
def test_what_is_no_video_is_an_error(data: bytes) -> None:
    with pytest.raises(VideoError, match=r"the video|no video"):
        probe(data)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        probe(tmp_path / "nothing.mp4")


def test_reading_is_bounded() -> None:
    with pytest.raises(VideoError, match="more than 5 frames"):
        list(read_frames(encode_mp4(moving(8), 8.0), most=5))


def test_there_is_an_encoder() -> None:
    assert h264_encoder() in ("libopenh264", "libx264")
