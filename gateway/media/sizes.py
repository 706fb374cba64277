"""Which sizes and lengths may be asked for, and how a model that draws others serves them. Pure.

Stock clients name OpenAI's sizes whatever the model can draw. A picture or clip of such a size is drawn at the model's own size whose
shape comes nearest, scaled to fit and centred (`Plan`): nothing of it is cut off or distorted, the rest is filled with the colour of its
border, and the file has the size that was asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...engines.interface import MediaCapabilities
from ..errors import ApiError

VIDEO_SIZES = ("720x1280", "1280x720", "1024x1792", "1792x1024")
"""What OpenAI's video models make; always accepted."""
IMAGE_SIZES = ("256x256", "512x512", "1024x1024", "1536x1024", "1024x1536", "1792x1024", "1024x1792")
"""What OpenAI's image models make; always accepted."""
SHORTEST_S, LONGEST_S = 0.1, 20.0
"""Seconds that a clip may last."""
USUAL_S = 4.0
MOST_FPS = 60.0

_SIZE = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A size that was asked for (`width`, `height`) and the one that the model draws; all in pixels."""

    width: int
    height: int
    drawn_width: int
    drawn_height: int

    @property
    def size(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """A clip: so many frames, shown at `fps`. `slowed`: the model makes too few frames for its own rate, so each is shown for longer."""

    frames: int
    fps: float
    slowed: bool = False

    @property
    def seconds(self) -> str:
        """As the API says it: a number in a string, without needless digits."""
        return f"{self.frames / self.fps:.3f}".rstrip("0").rstrip(".")


def plan_size(size: str | None, media: MediaCapabilities, usual: Sequence[str]) -> Plan:
    """The plan for a size like "1280x720"; None and "auto" take the model's own. Raises a 400 `ApiError` that lists what is possible."""
    if size is None or size == "auto":
        width, height = media.sizes[0] if media.sizes else _square(media)
        return Plan(width=width, height=height, drawn_width=width, drawn_height=height)
    match = _SIZE.fullmatch(size)
    if match is None:
        raise _no_size(size, media, usual)
    width, height = int(match[1]), int(match[2])
    if can_draw(width, height, media):
        return Plan(width=width, height=height, drawn_width=width, drawn_height=height)
    if size not in usual:
        raise _no_size(size, media, usual)
    drawn_width, drawn_height = _nearest(width, height, media)
    return Plan(width=width, height=height, drawn_width=drawn_width, drawn_height=drawn_height)


def can_draw(width: int, height: int, media: MediaCapabilities) -> bool:
    """Whether the model draws pictures of exactly this size."""
    if media.sizes:
        return (width, height) in media.sizes
    return width <= media.max_side and height <= media.max_side and width % media.multiple == 0 and height % media.multiple == 0


def possible_sizes(media: MediaCapabilities, usual: Sequence[str]) -> str:
    """For people: the sizes that may be asked for."""
    own = ", ".join(f"{width}x{height}" for width, height in media.sizes)
    if not media.sizes:
        own = f"any multiples of {media.multiple} up to {media.max_side}x{media.max_side}"
    return f"{own} (the model's own), and scaled: {', '.join(usual)}"


def plan_length(media: MediaCapabilities, *, seconds: str | None = None, frames: int | None = None, fps: float | None = None) -> Length:
    """How many frames, shown how fast, make the clip that was asked for.

    Two of the three settle the third; one alone goes with the model's own rate. Raises a 400 `ApiError`.
    """
    if frames is not None and frames > media.max_frames:
        raise ApiError(400, "invalid_value", f"num_frames must be at most {media.max_frames} for this model.", param="num_frames")
    wanted = read_seconds(seconds) if seconds is not None else None
    if frames is not None and fps is not None:
        length = Length(frames=frames, fps=fps)
        if wanted is not None and abs(frames / fps - wanted) > 0.5 / fps:
            message = f"{frames} frames at {fps:g} a second last {length.seconds} s, not {wanted:g}: leave one of the three out."
            raise ApiError(400, "invalid_value", message, param="seconds")
    elif frames is not None:
        length = Length(frames=frames, fps=frames / wanted if wanted is not None else media.fps)
    else:
        wanted = USUAL_S if wanted is None else wanted
        rate = fps if fps is not None else media.fps
        count = max(1, round(wanted * rate))
        if count > media.max_frames:
            return Length(frames=media.max_frames, fps=media.max_frames / wanted, slowed=True)
        length = Length(frames=count, fps=count / wanted)
    if length.fps > MOST_FPS:
        raise ApiError(400, "invalid_value", f"That is {length.fps:g} frames a second; at most {MOST_FPS:g} are made.", param="fps")
    if not SHORTEST_S * 0.99 <= length.frames / length.fps <= LONGEST_S * 1.01:
        message = f"That is a clip of {length.seconds} s; clips last {SHORTEST_S:g} to {LONGEST_S:g} s."
        raise ApiError(400, "invalid_value", message, param="num_frames")
    return length


def read_seconds(seconds: str) -> float:
    """The number in "4" or "2.5". Raises a 400 `ApiError`."""
    value = float(seconds) if _SECONDS.fullmatch(seconds) else math.nan
    if not SHORTEST_S <= value <= LONGEST_S:  # also for nan
        message = f"seconds must be a number from {SHORTEST_S:g} to {LONGEST_S:g}, such as '4', not {seconds[:40]!r}."
        raise ApiError(400, "invalid_value", message, param="seconds")
    return value


def _square(media: MediaCapabilities) -> tuple[int, int]:
    side = max(media.multiple, min(media.max_side, 1024) // media.multiple * media.multiple)
    return side, side


def _nearest(width: int, height: int, media: MediaCapabilities) -> tuple[int, int]:
    """The model's size for a shape: of the nearest proportions, then the smallest that need not be enlarged, else the largest."""
    if not media.sizes:
        scale = min(1.0, media.max_side / max(width, height))
        return tuple(max(media.multiple, int(side * scale) // media.multiple * media.multiple) for side in (width, height))  # type: ignore[return-value]
    wanted = math.log(width / height)

    def rank(own: tuple[int, int]) -> tuple[float, bool, int]:
        covers = own[0] >= width and own[1] >= height
        area = own[0] * own[1]
        return round(abs(math.log(own[0] / own[1]) - wanted), 3), not covers, area if covers else -area

    return min(media.sizes, key=rank)


def _no_size(size: str, media: MediaCapabilities, usual: Sequence[str]) -> ApiError:
    return ApiError(400, "invalid_value", f"The size {size[:40]!r} cannot be had. There are: {possible_sizes(media, usual)}.", param="size")
