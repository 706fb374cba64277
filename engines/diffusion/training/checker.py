"""Looking at a picture or clip and saying what it shows; comparing that with the scene it should show.

No network: background from the border, 8-connected components, colour by the nearest of the palette, shape by overlap with rendered
templates, size by the fitted radius, places and relations by centroids. On rendered truth it must say "right" every time (a test).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..tinyflow.scene import Scene
from ..tinyflow.words import COLOURS, PALETTE, SHAPES
from .render import CANVAS, LARGEST, RADIUS_CUTS, SMALLEST, TRAVEL, coverage, placed

Floats = npt.NDArray[np.float32]
_PALETTE = np.array([PALETTE[colour] for colour in COLOURS], np.float32)
_NEAR = 4.5
"""How far, in canvas pixels, a thing may stand from its place."""
_MOST = 0.8
"""The share of a clip's frames in which an attribute must be right."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing found in a picture."""

    shape: str
    colour: str
    x: float
    y: float
    r: float

    @property
    def size(self) -> str:
        return "small" if self.r < RADIUS_CUTS[0] else "medium" if self.r < RADIUS_CUTS[1] else "large"


def look(picture: Tensor) -> tuple[str, list[Seen]]:
    """`picture` is `[3, 64, 64]` in -1..1: the background's colour, and the things on it."""
    rgb = ((picture.float().clamp(-1, 1) + 1) * 127.5).permute(1, 2, 0).numpy()
    nearest = ((rgb[:, :, None, :] - _PALETTE) ** 2).sum(-1).argmin(-1)
    border = np.concatenate([nearest[:2].ravel(), nearest[-2:].ravel(), nearest[:, :2].ravel(), nearest[:, -2:].ravel()])
    ground = int(np.bincount(border, minlength=len(COLOURS)).argmax())
    ground_rgb = np.median(rgb[nearest == ground].reshape(-1, 3), axis=0)
    distance = np.sqrt(((rgb - ground_rgb) ** 2).sum(-1))
    pieces = [piece for piece in _components(distance > 36) if len(piece) >= 20]
    return COLOURS[ground], [_identify(piece, rgb, nearest, distance, ground_rgb) for piece in pieces]


def _identify(piece: npt.NDArray[np.int64], rgb: Floats, nearest: npt.NDArray[np.int64], distance: Floats, ground: Floats) -> Seen:
    far = distance[piece[:, 0], piece[:, 1]]
    core = piece[far >= 0.8 * np.percentile(far, 90)]
    colour = int(np.bincount(nearest[core[:, 0], core[:, 1]], minlength=len(COLOURS)).argmax())
    towards = np.median(rgb[core[:, 0], core[:, 1]], axis=0) - ground
    between = np.clip(((rgb - ground) @ towards) / (towards @ towards + 1e-6), 0, 1)  # where each pixel is between ground and thing
    near = np.zeros((CANVAS, CANVAS), bool)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            near[np.clip(piece[:, 0] + dy, 0, CANVAS - 1), np.clip(piece[:, 1] + dx, 0, CANVAS - 1)] = True
    soft: Floats = np.where(near, between, 0.0).astype(np.float32)
    area = float(soft.sum())
    ys, xs = np.mgrid[0:CANVAS, 0:CANVAS] + 0.5
    x, y = float((soft * xs).sum() / area), float((soft * ys).sum() / area)
    best = max((_overlap(shape, soft, area, x, y) for shape in SHAPES), key=lambda fit: fit[0])
    _, shape, r, centre_x, centre_y = best
    return Seen(shape, COLOURS[colour], centre_x, centre_y, r)


def _overlap(shape: str, soft: Floats, area: float, x: float, y: float) -> tuple[float, str, float, float, float]:
    """How well a shape of this area and centroid fits (intersection over union), with its radius and centre."""
    per_radius, offset_x, offset_y = _moments(shape)
    r = math.sqrt(max(area, 1.0) / per_radius)
    x, y = x - offset_x * r, y - offset_y * r
    template = coverage(shape, x, y, r).numpy()
    union = max(float(np.maximum(template, soft).sum()), 1e-6)
    return float(np.minimum(template, soft).sum()) / union, shape, r, x, y


@lru_cache(maxsize=len(SHAPES))
def _moments(shape: str) -> tuple[float, float, float]:
    """A shape's area over its radius squared, and where its centroid is from its centre, in radii."""
    r, resolution = 14.0, 256
    mask = coverage(shape, CANVAS / 2, CANVAS / 2, r, resolution)
    scale = CANVAS / resolution
    axis = (torch.arange(resolution) + 0.5) * scale - CANVAS / 2
    total = float(mask.sum())
    return total * scale**2 / r**2, float((mask * axis[None]).sum()) / total / r, float((mask * axis[:, None]).sum()) / total / r


def _components(mask: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.int64]]:
    """The 8-connected components, each as its pixels `[n, 2]` (row, column)."""
    left = {(int(y), int(x)) for y, x in zip(*np.nonzero(mask), strict=True)}
    found = []
    while left:
        stack = [left.pop()]
        pixels = []
        while stack:
            y, x = stack.pop()
            pixels.append((y, x))
            for near in ((y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)):
                if near in left:
                    left.remove(near)
                    stack.append(near)
        found.append(np.array(pixels))
    return found


def check_picture(picture: Tensor, scene: Scene) -> dict[str, bool]:
    """Which attributes of the scene the picture shows; `strict` means all of them. `picture` is `[3, 64, 64]` in -1..1."""
    ground, seen = look(picture)
    wanted = placed(scene)
    sizes = [thing.size for thing, cells in zip(scene.things, scene.cells(), strict=True) for _ in cells]
    result = {"background": ground == scene.background, "count": len(seen) == len(wanted)}
    pairs = []  # each wanted thing with the nearest seen one
    for want in wanted:
        got = min(seen, key=lambda item: math.hypot(item.x - want.x, item.y - want.y), default=None)
        pairs.append((want, got))
    complete = all(got is not None for _, got in pairs)
    result["colour"] = complete and all(got is not None and got.colour == want.colour for want, got in pairs)
    result["shape"] = complete and all(got is not None and got.shape == want.shape for want, got in pairs)
    result["size"] = complete and all(got is not None and got.size == size for (_, got), size in zip(pairs, sizes, strict=True))
    result["place"] = complete and all(got is not None and math.hypot(got.x - want.x, got.y - want.y) < _NEAR for want, got in pairs)
    result["strict"] = all(result.values())
    return result


def check_clip(frames: Tensor, scene: Scene) -> dict[str, bool]:
    """The same for a clip, `[frames, 3, 64, 64]`: per-frame attributes in nearly all frames, the motion, and that nothing flickers."""
    looks = [look(frame) for frame in frames]
    thing = scene.things[0]
    most = _MOST * len(looks)
    main = [max(seen, key=lambda item: item.r) if seen else None for _, seen in looks]
    found = [item for item in main if item is not None]
    result = {
        "background": sum(ground == scene.background for ground, _ in looks) >= most,
        "count": sum(len(seen) == 1 for _, seen in looks) >= most,
        "colour": sum(item.colour == thing.colour for item in found) >= most,
        "shape": sum(item.shape == thing.shape for item in found) >= most,
    }
    if thing.size:
        result["size"] = sum(item.size == thing.size for item in found) >= most
    whole = len(found) == len(looks)
    track = np.array([(item.x, item.y, item.r) for item in found]) if whole else np.zeros((0, 3))
    result["motion"] = whole and _moves(track, scene)
    result["constancy"] = whole and _constant(track, scene)
    result["strict"] = all(result.values())
    return result


def _truth(scene: Scene, frames: int) -> npt.NDArray[np.float64]:
    items = [placed(scene, index / max(frames - 1, 1))[0] for index in range(frames)]
    return np.array([(item.x, item.y, item.r) for item in items])


def _moves(track: npt.NDArray[np.float64], scene: Scene) -> bool:
    """The right axis, direction and way; always onwards but for a pixel."""
    want = _truth(scene, len(track))
    axis = int(np.abs(want[-1] - want[0]).argmax())
    sign = np.sign(want[-1, axis] - want[0, axis])
    way = sign * (track[-1, axis] - track[0, axis])
    least = 0.7 * (TRAVEL if axis < 2 else LARGEST - SMALLEST)
    return bool(way >= least and np.all(sign * np.diff(track[:, axis]) > -1.0))


def _constant(track: npt.NDArray[np.float64], scene: Scene) -> bool:
    """What should not change does not, and the thing stays near its path."""
    want = _truth(scene, len(track))
    off = np.abs(track - want)
    return bool(np.all(np.hypot(off[:, 0], off[:, 1]) < _NEAR) and np.median(off[:, 2]) < 0.2 * want[:, 2].mean())
