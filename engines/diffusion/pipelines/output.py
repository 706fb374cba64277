"""The pipeline's result as frames of bytes. What is no picture is an error: not a black one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import EngineError
from ..step_model import Frames


def frames_of(output: Any, name: str) -> Frames:
    """The first clip or picture of a pipeline's output as `[frames, height, width, 3]`. Raises `EngineError`."""
    if any(getattr(output, "nsfw_content_detected", None) or ()):
        raise EngineError(f"{name}'s safety checker has blacked out the picture", code="content_filter")
    clip = getattr(output, "frames", None)
    made = clip[0] if clip is not None else getattr(output, "images", None)
    if made is None or not len(made):
        raise EngineError(f"{name} gave no pictures", code="bad_output")
    first = _bytes(made[0], name)
    frames: Frames = np.empty((len(made), *first.shape), np.uint8)
    for index in range(len(made)):  # one by one: a long clip in floats is large enough once
        frames[index] = _bytes(made[index], name)
    return frames


def _bytes(picture: Any, name: str) -> Frames:
    """A picture, an array of floats in [0, 1] or bytes, as `[height, width, 3]`."""
    array = np.asarray(picture)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4):
        raise EngineError(f"{name} gave an array of shape {array.shape} for a picture", code="bad_output")
    if array.dtype != np.uint8:
        if not np.isfinite(array).all():
            raise EngineError(
                f"{name} computed numbers that are none (NaN): its arithmetic has overflowed. "
                'Another dtype helps ("bfloat16" or "float32" instead of "float16").',
                code="bad_output",
            )
        array = (array.clip(0, 1) * 255).round().astype(np.uint8)
    array = array[..., :3]
    return np.broadcast_to(array, (*array.shape[:2], 3))


def composed(frames: Frames, image: Frames, mask: Frames) -> Frames:
    """The frames where the mask is set, the picture that was given elsewhere: a codec's way there and back would alter what must stay.

    `image` `[height, width, 3]` and `mask` `[height, width]` have the frames' size.
    """
    result: Frames = np.where(mask[None, ..., None] > 127, frames, image[None])
    return result
