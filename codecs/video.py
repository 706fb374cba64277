"""Clips as files: H.264 in MP4, written frame by frame, and what a file holds.

Written for browsers: yuv420p, even sides, the index before the frames ("faststart"). PyAV is imported when it is first needed.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from .images import Clip, Picture, enlarge

MEDIA_TYPE = "video/mp4"
MAX_SIDE = 4096
"""What common H.264 decoders take."""

_ENCODERS = ("libopenh264", "libx264")
"""The first that PyAV's build has. OpenH264 is BSD licensed, x264 GPL."""
_BT709, _LIMITED = 1, 1
"""FFmpeg's numbers of the colours of high definition, and of luma from 16 to 235."""


class VideoError(ValueError):
    """The clip cannot be written or read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoInfo:
    """What a video file holds. `duration` in seconds, `size` (width, height), `codec` by FFmpeg's name ("h264")."""

    frames: int
    fps: float
    size: tuple[int, int]
    duration: float
    codec: str


@functools.cache
def h264_encoder() -> str:
    """The name of the H.264 encoder that this installation has. Raises `VideoError`."""
    from av.codec import Codec
    from av.codec.codec import UnknownCodecError

    for name in _ENCODERS:
        with contextlib.suppress(UnknownCodecError):
            Codec(name, "w")
            return name
    raise VideoError(f"PyAV's FFmpeg has no H.264 encoder (looked for {', '.join(_ENCODERS)}); install the wheel from PyPI")


class Mp4Writer:
    """Writes a clip to `path` frame by frame: only the frames that the encoder looks ahead are in memory.

    Use it in a `with`: on the normal way out the file appears at `path`, whole and in one go; when the body raises there is nothing. Frames
    are `[H, W, 3] uint8` of one size, `quality` is x264's constant rate factor (18 looks lossless, 28 is small). Small pictures are
    enlarged by a whole number so that the longer side has at least `least` pixels; odd sides get their last row or column twice.
    Raises `VideoError`.
    """

    def __init__(self, path: str | os.PathLike[str], fps: float, *, quality: int = 20, least: int = 0) -> None:
        if not 0 < fps <= 240:
            raise VideoError(f"a clip needs a rate between 0 and 240 frames a second, not {fps}")
        if not 0 <= quality <= 51:
            raise VideoError(f"the quality is a rate factor between 0 and 51, not {quality}")
        self.path = Path(path)
        self.frames = 0
        self._rate = Fraction(fps).limit_denominator(1001)
        self._quality = quality
        self._least = least
        self._shape: tuple[int, ...] | None = None
        self._factor = 1
        self._container: Any = None
        self._stream: Any = None
        self._unfinished = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}.mp4")

    def write(self, frame: Picture) -> None:
        """Add a frame."""
        import av
        from av.video.reformatter import ColorRange, Colorspace

        if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8 or not frame.size:
            raise VideoError(f"a frame is an array [H, W, 3] of uint8, not {list(frame.shape)} of {frame.dtype}")
        if self._shape is None:
            self._begin(frame)
        elif frame.shape != self._shape:
            raise VideoError(f"all frames must have the first one's size: [H, W, 3] was {list(self._shape)}, is {list(frame.shape)}")
        pixels = np.ascontiguousarray(_even(enlarge(frame, self._factor)))
        picture = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(
            format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG
        )
        picture.pts = self.frames
        picture.time_base = 1 / self._rate
        self._container.mux(self._stream.encode(picture))
        self.frames += 1

    def finish(self) -> Path:
        """Write the end and put the file in its place. Raises `VideoError` when there is no frame."""
        if self._container is None:
            self.abort()
            raise VideoError("a clip needs at least one frame")
        try:
            self._container.mux(self._stream.encode(None))
            self._container.close()
            self._container = None
            os.replace(self._unfinished, self.path)
        except BaseException:
            self.abort()
            raise
        return self.path

    def abort(self) -> None:
        """Leave nothing behind. Harmless when called again, or after `finish`."""
        container, self._container = self._container, None
        if container is not None:
            with contextlib.suppress(OSError, ValueError):
                container.close()
        self._unfinished.unlink(missing_ok=True)

    def __enter__(self) -> Mp4Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.finish()
        else:
            self.abort()

    def _begin(self, first: Picture) -> None:
        import av

        height, width, _ = first.shape
        self._factor = max(1, -(-self._least // max(width, height)))
        width, height = (-(-side * self._factor // 2) * 2 for side in (width, height))
        if max(width, height) > MAX_SIDE:
            raise VideoError(f"frames of {width}x{height} are too large: sides of MP4 clips have at most {MAX_SIDE} pixels")
        self._shape = first.shape
        self._container = av.open(str(self._unfinished), "w", format="mp4", options={"movflags": "+faststart"})
        stream = self._container.add_stream(h264_encoder(), rate=self._rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        context = stream.codec_context
        context.thread_count = 1  # cheaper than slices on many threads, and the same bytes on every machine
        context.time_base = 1 / self._rate
        # Which colours the numbers mean. Without it players guess by the picture's size, and large clips come out tinted.
        context.colorspace = context.color_primaries = context.color_trc = _BT709
        context.color_range = _LIMITED
        if context.name == "libx264":
            # No B-frames: choosing them, x264's lookahead reads memory that it has not written, and about one clip in a hundred came out
            # with other bytes (measured with small clips of several sizes in one process; never without its assembly code).
            stream.options = {"preset": "veryfast", "crf": str(self._quality), "bf": "0"}
        else:  # OpenH264 wants a rate: about what x264 needs at this factor
            stream.bit_rate = max(100_000, int(width * height * float(self._rate) * 0.2 * 2 ** ((20 - self._quality) / 6)))
        self._stream = stream


def encode_mp4(frames: Clip | Iterable[Picture], fps: float, *, quality: int = 20, least: int = 0) -> bytes:
    """A clip as the bytes of an MP4 file; see `Mp4Writer`. Raises `VideoError`."""
    with tempfile.TemporaryDirectory(prefix="antiphon-", dir=_scratch()) as folder:
        path = Path(folder) / "clip.mp4"
        with Mp4Writer(path, fps, quality=quality, least=least) as writer:
            for frame in frames:
                writer.write(frame)
        return path.read_bytes()


def probe(source: str | os.PathLike[str] | bytes) -> VideoInfo:
    """What a video file (its path or its bytes) holds; its packets are counted, nothing is decoded. Raises `VideoError`, OSError."""
    with _opened(source) as (container, stream):
        frames = sum(1 for packet in container.demux(stream) if packet.size)
        if not frames:
            raise VideoError("the video has no frames")
        rate = float(stream.average_rate or stream.guessed_rate or 0)
        duration = float(stream.duration * stream.time_base) if stream.duration else frames / rate if rate else 0.0
        return VideoInfo(
            frames=frames, fps=rate, size=(stream.width, stream.height), duration=duration, codec=stream.codec_context.codec.name
        )


def read_frames(source: str | os.PathLike[str] | bytes, *, most: int = 100_000) -> Iterator[Picture]:
    """The frames of a video file, one by one. Raises OSError, `VideoError`, also for more than `most`."""
    with _opened(source) as (container, stream):
        stream.codec_context.thread_count = 1
        for number, frame in enumerate(container.decode(stream)):
            if number >= most:
                raise VideoError(f"the video has more than {most} frames")
            picture: Picture = frame.to_ndarray(format="rgb24")
            yield picture


@contextlib.contextmanager
def _opened(source: str | os.PathLike[str] | bytes) -> Iterator[tuple[Any, Any]]:
    """The container and its first video stream. What FFmpeg says of it, as a `VideoError`."""
    import av

    # Always an open file, never a name: FFmpeg would take some names for addresses.
    file = io.BytesIO(source) if isinstance(source, bytes) else io.FileIO(source)
    try:
        with file, av.open(file) as container:
            if not container.streams.video:
                raise VideoError("the file holds no video")
            stream = container.streams.video[0]
            if max(stream.width, stream.height) > 4 * MAX_SIDE:
                raise VideoError(f"the video is {stream.width}x{stream.height}: too large")
            yield container, stream
    except (av.error.FFmpegError, OSError) as error:
        raise VideoError(f"the video cannot be read: {error}") from None


def _even(frame: Picture) -> Picture:
    height, width, _ = frame.shape
    return frame if not (height % 2 or width % 2) else np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def _scratch() -> str | None:
    """A folder in memory where the system has one: MP4's index is written last and then moved to the front, which needs a file."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
