"""Between pictures as bytes and pictures as the networks see them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from .words import COLOURS, PALETTE


def to_frames(pictures: Tensor, width: int, height: int) -> npt.NDArray[np.uint8]:
    """`[n, 3, h, w]` in -1..1 -> `[n, height, width, 3]` sRGB bytes."""
    pictures = ((resize(pictures.float(), width, height).clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    frames: npt.NDArray[np.uint8] = pictures.permute(0, 2, 3, 1).contiguous().numpy()
    return frames


def from_frames(frames: npt.NDArray[np.uint8], width: int, height: int) -> Tensor:
    """The way back: `[n, h, w, 3]` bytes -> `[n, 3, height, width]` in -1..1."""
    pictures = torch.from_numpy(frames.astype(np.float32)).permute(0, 3, 1, 2) / 127.5 - 1
    return resize(pictures, width, height)


def resize(pictures: Tensor, width: int, height: int) -> Tensor:
    """Smaller by averaging, larger by cubic interpolation."""
    if pictures.shape[-2:] == (height, width):
        return pictures
    if pictures.shape[-2] > height and pictures.shape[-1] > width:
        return F.interpolate(pictures, size=(height, width), mode="area")
    return F.interpolate(pictures, size=(height, width), mode="bicubic", align_corners=False)


def border_colour(picture: Tensor) -> str:
    """The palette's name for the commonest colour along the edge of `[3, h, w]`."""
    edge = torch.cat([picture[:, 0], picture[:, -1], picture[:, :, 0], picture[:, :, -1]], 1).T
    palette = torch.tensor(list(PALETTE.values()), dtype=torch.float32) / 127.5 - 1
    return COLOURS[int(torch.cdist(edge, palette).argmin(1).bincount(minlength=len(COLOURS)).argmax())]
