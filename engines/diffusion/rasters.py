"""Frames as the chunks that carry them, and when a preview is due."""

from __future__ import annotations

from collections.abc import Iterator

from ..messages import Raster, RasterChunk
from .step_model import Frames

CHUNK_BYTES = 2 << 20
"""About as large as a chunk of finished frames gets; one frame is never split."""
PREVIEW_BYTES = 1 << 20
"""A preview of more is thinned to fewer frames."""


def raster(frames: Frames) -> Raster:
    """`[frames, height, width, 3]` as a raster."""
    count, height, width, _ = frames.shape
    return Raster(width=width, height=height, frames=count, rgb=frames.tobytes())


def chunks(frames: Frames) -> Iterator[RasterChunk]:
    """Finished frames in chunks of about `CHUNK_BYTES`."""
    each = max(1, CHUNK_BYTES // max(1, frames[0].nbytes))
    for first in range(0, len(frames), each):
        yield RasterChunk(first=first, raster=raster(frames[first : first + each]))


def preview(frames: Frames) -> Raster:
    """A preview; of a large clip, every so manieth frame."""
    every = max(1, -(-frames.nbytes // PREVIEW_BYTES))
    return raster(frames[::every])


def preview_due(step: int, steps: int, previews: int) -> bool:
    """Is a preview due after `step` of `steps`, when `previews` are spread over them? Never after the last: then the picture is there."""
    previews = min(previews, steps - 1)
    return any(step == round(number * steps / (previews + 1)) for number in range(1, previews + 1))
