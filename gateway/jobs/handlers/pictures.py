"""Pictures between the engine and the client: read what was sent, fit it into a size, write it in a format. Arrays are sRGB uint8."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....codecs import images
from ....codecs.images import ImageError
from ..errors import JobFailedError

Picture = npt.NDArray[np.uint8]
"""`[height, width, 3]`."""
Frames = npt.NDArray[np.uint8]
"""`[frames, height, width, 3]`."""


def read_picture(data: bytes) -> Picture:
    """`[height, width, 3]` of a PNG, JPEG, WebP or GIF file (its first frame), upright, over white where it is transparent. Raises
    `JobFailedError("invalid_request")`."""
    return _decoded(data).picture


def read_mask(data: bytes, width: int, height: int) -> npt.NDArray[np.uint8]:
    """`[height, width]` of a mask, placed like its picture: 255 where the picture may change (the mask is transparent; one without
    transparency: white), 0 where it stays. Raises `JobFailedError("invalid_request")`."""
    decoded = _decoded(data)
    free = 255 - decoded.alpha if decoded.alpha is not None else decoded.picture.mean(axis=2).astype(np.uint8)
    inner, left, top = placed(free.shape[1], free.shape[0], width, height)
    # Its nearest pixels, for a mask has no shades.
    rows = (np.arange(inner[1]) + 0.5) * free.shape[0] // inner[1]
    columns = (np.arange(inner[0]) + 0.5) * free.shape[1] // inner[0]
    field = np.zeros((height, width), np.uint8)
    field[top : top + inner[1], left : left + inner[0]] = free[rows.astype(int)[:, np.newaxis], columns.astype(int)]
    return np.where(field >= 128, np.uint8(255), np.uint8(0))


def _decoded(data: bytes) -> images.Decoded:
    try:
        return images.decode(data)
    except ImageError as error:
        raise JobFailedError("invalid_request", f"The file cannot be read as a picture: {error}.") from error


def placed(width: int, height: int, into_width: int, into_height: int) -> tuple[tuple[int, int], int, int]:
    """Size and left and top edge of a picture that is scaled to fit into a frame and centred."""
    scale = min(into_width / width, into_height / height)
    inner = (max(1, min(into_width, round(width * scale))), max(1, min(into_height, round(height * scale))))
    return inner, (into_width - inner[0]) // 2, (into_height - inner[1]) // 2


def fit(frames: Frames, width: int, height: int) -> Frames:
    """The frames scaled to fit and centred; what remains takes the colour of the first frame's border."""
    if frames.shape[1:3] == (height, width):
        return frames
    inner, left, top = placed(frames.shape[2], frames.shape[1], width, height)
    fitted = np.empty((len(frames), height, width, 3), np.uint8)
    fitted[:] = border_colour(frames[0])
    for frame, target in zip(frames, fitted, strict=True):
        target[top : top + inner[1], left : left + inner[0]] = images.resize(frame, *inner)
    return fitted


def border_colour(picture: Picture) -> npt.NDArray[np.uint8]:
    """`[3]`: the median of the outermost pixels."""
    edges = np.concatenate((picture[0], picture[-1], picture[:, 0], picture[:, -1]))
    colour: npt.NDArray[np.uint8] = np.median(edges, axis=0).astype(np.uint8)
    return colour


def encode(picture: Picture, picture_format: str, quality: int = 90) -> bytes:
    """A picture as "png", "webp" or "jpeg". `quality` (0 to 100) is for the last two."""
    return images.encode(picture, picture_format, compression=quality)


def media_type(picture_format: str) -> str:
    """The media type of a format."""
    return images.format_of(picture_format).media_type
