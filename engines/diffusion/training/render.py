"""From scenes to pixels: signed-distance shapes with soft edges, at any resolution.

Lengths are in units of the 64 x 64 canvas, y points down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ..tinyflow.scene import Scene
from ..tinyflow.words import COLOURS, PALETTE, cell

CANVAS = 64
RGB = torch.tensor([PALETTE[colour] for colour in COLOURS], dtype=torch.float32) / 127.5 - 1
"""The palette in the order of `COLOURS`, `[12, 3]` in -1..1."""

RADII = {"small": 6.5, "medium": 9.0, "large": 12.0}
RADIUS_CUTS = (7.7, 10.4)
"""Between small and medium, and between medium and large."""
SMALLEST, LARGEST = 6.0, 13.0
"""The radii between which things grow and shrink."""
STEP = 16
"""Between columns and between rows; also the side of a tile."""
TRAVEL = 2 * STEP
"""How far a moving thing moves in a clip."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One shape as it stands in a frame."""

    shape: str
    colour: str
    x: float
    y: float
    r: float


def placed(scene: Scene, u: float = 0.0) -> list[Placed]:
    """The shapes of a scene, at moment `u` (0 the first, 1 the last) of a clip."""
    found = []
    for thing, cells in zip(scene.things, scene.cells(), strict=True):
        for place in cells:
            column, row = cell(place)
            x, y, r = STEP * (column + 1.0), STEP * (row + 1.0), RADII.get(thing.size, 0.0)
            x, y, r = _moved(scene.motion, u, x, y, r)
            found.append(Placed(thing.shape, thing.colour, x, y, r))
    return found


def _moved(motion: str, u: float, x: float, y: float, r: float) -> tuple[float, float, float]:
    near, far = STEP + TRAVEL * u, STEP + TRAVEL * (1 - u)
    match motion:
        case "moving right":
            return near, y, r
        case "moving left":
            return far, y, r
        case "moving down":
            return x, near, r
        case "moving up":
            return x, far, r
        case "growing":
            return x, y, SMALLEST + (LARGEST - SMALLEST) * u
        case "shrinking":
            return x, y, LARGEST + (SMALLEST - LARGEST) * u
    return x, y, r


def coverage(shape: str, x: float, y: float, r: float, resolution: int = CANVAS, tile: tuple[int, int, int] | None = None) -> Tensor:
    """How much of each pixel a shape covers, `[resolution, resolution]` in 0..1; `tile` (left, top, side) cuts a piece out."""
    grid_x, grid_y = _grid(resolution)
    if tile:
        left, top, side = tile
        grid_x, grid_y = grid_x[top : top + side, left : left + side], grid_y[top : top + side, left : left + side]
    distance = _distance(shape, grid_x - x, grid_y - y, r)
    return torch.clamp(0.5 - distance * (resolution / CANVAS), 0, 1)


def render(
    scenes: Sequence[Scene],
    moments: Sequence[float] | None = None,
    resolution: int = CANVAS,
    tiles: Sequence[tuple[int, int, int]] | None = None,
) -> Tensor:
    """`[scenes, 3, resolution, resolution]` in -1..1, each scene at its moment; `tiles` cuts a piece out of each, see `coverage`."""
    side = tiles[0][2] if tiles else resolution
    pictures = torch.empty(len(scenes), 3, side, side)
    for index, scene in enumerate(scenes):
        picture = pictures[index]
        picture[:] = RGB[COLOURS.index(scene.background)][:, None, None]
        for item in placed(scene, moments[index] if moments else 0.0):
            colour = RGB[COLOURS.index(item.colour)][:, None, None]
            picture += coverage(item.shape, item.x, item.y, item.r, resolution, tiles[index] if tiles else None) * (colour - picture)
    return pictures


@lru_cache(maxsize=8)
def _grid(resolution: int) -> tuple[Tensor, Tensor]:
    centres = (torch.arange(resolution, dtype=torch.float32) + 0.5) * (CANVAS / resolution)
    return centres[None, :].expand(resolution, resolution), centres[:, None].expand(resolution, resolution)


def _distance(shape: str, x: Tensor, y: Tensor, r: float) -> Tensor:
    """The signed distance (nearly) from a shape's edge, negative inside."""
    match shape:
        case "circle":
            return torch.sqrt(x * x + y * y) - r
        case "square":
            return torch.maximum(x.abs(), y.abs()) - 0.89 * r
        case "diamond":
            return (x.abs() * 1.25 + y.abs() - 1.18 * r) / 1.6
        case "triangle":  # points up, its centroid near 0
            low = y + 0.12 * r
            return torch.maximum(low - 0.825 * r, (x.abs() * 1.73205 - low) * 0.5 - 0.62 * r)
        case "cross":
            a, b, width, length = x.abs(), y.abs(), 0.36 * r, 1.05 * r
            return torch.minimum(torch.maximum(a - length, b - width), torch.maximum(a - width, b - length))
        case "ring":
            return (torch.sqrt(x * x + y * y) - 0.78 * r).abs() - 0.24 * r
        case "star":
            return _star(x, y, 1.15 * r)
        case "heart":
            return _heart(x, y, 1.75 * r)
    raise KeyError(shape)


def _star(x: Tensor, y: Tensor, r: float) -> Tensor:
    """Five points, by folding the plane (Inigo Quilez, "2D distance functions")."""
    inner, kx, ky = 0.45, 0.809016994375, -0.587785252292
    x, y = x.abs(), -y
    fold = torch.clamp(kx * x + ky * y, min=0)
    x, y = x - 2 * fold * kx, y - 2 * fold * ky
    fold = torch.clamp(-kx * x + ky * y, min=0)
    x, y = x + 2 * fold * kx, y - 2 * fold * ky
    x, y = x.abs(), y - r
    ax, ay = -inner * ky, inner * kx - 1.0
    along = torch.clamp((x * ax + y * ay) / (ax * ax + ay * ay), min=0, max=r)
    return torch.sqrt((x - ax * along) ** 2 + (y - ay * along) ** 2) * torch.sign(y * ax - x * ay)


def _heart(x: Tensor, y: Tensor, side: float) -> Tensor:
    """A heart of about this height (the same source)."""
    a, b = (x / side).abs(), (-y / side) + 0.52
    round_top = torch.sqrt(torch.clamp((a - 0.25) ** 2 + (b - 0.75) ** 2, min=1e-12)) - math.sqrt(2) / 4
    middle = 0.5 * torch.clamp(a + b, min=0)
    nearest = torch.minimum(a**2 + (b - 1.0) ** 2, (a - middle) ** 2 + (b - middle) ** 2)
    below = torch.sqrt(torch.clamp(nearest, min=1e-12)) * torch.sign(a - b)
    return torch.where(b + a > 1.0, round_top, below) * side
