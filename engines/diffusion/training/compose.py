"""Training latents without rendering: since the encoder is linear and no tile shows two things, a tile's latent is the background's plus
the thing's mask, encoded once per colour channel and kept, times the difference of colours."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..tinyflow.scene import Scene
from ..tinyflow.vae import TinyFlowVAE
from ..tinyflow.words import COLOURS, SHAPES
from .render import CANVAS, RGB, STEP, coverage, placed

GRID = CANVAS // STEP
TILES = GRID * GRID
EMPTY = len(SHAPES)
"""The shape label of a tile without a thing."""
_JITTER = 3.0 / 127.5
"""How much brighter or darker a colour may be: what is left to chance in a picture."""


@dataclass(frozen=True, slots=True)
class Composed:
    """A batch: latents, and what each tile shows."""

    latents: Tensor
    """`[n, 16, channels]`."""
    shape: Tensor
    """`[n, 16]`; `EMPTY` where there is none. Likewise `colour` (0 there) and, `[n]`, `background`."""
    colour: Tensor
    background: Tensor
    geometry: Tensor
    """`[n, 16, 3]`: the thing's centre relative to the tile's, and its radius, in tiles."""


class Composer:
    """Composes batches for one codec. Masks are rendered when first met (some thousands in all)."""

    def __init__(self, vae: TinyFlowVAE) -> None:
        side = vae.config.tile
        self._analysis = vae.analysis.float().view(3, side * side, -1)
        self._offset = vae.mean.float() @ vae.analysis.float()
        self._ground = self._analysis.sum(1)
        self._index: dict[tuple[str, float, float, float], int] = {}
        self._masks = torch.zeros(1024, 3, self._analysis.shape[-1])
        self._used = 1  # mask 0 is empty

    def __call__(self, scenes: Sequence[Scene], moments: Sequence[float], rng: random.Random) -> Composed:
        n = len(scenes)
        mask, shape = torch.zeros(n, TILES, dtype=torch.long), torch.full((n, TILES), EMPTY)
        colour, geometry = torch.zeros(n, TILES, dtype=torch.long), torch.zeros(n, TILES, 3)
        rows = [self._row(scene, moment) for scene, moment in zip(scenes, moments, strict=True)]
        where = torch.tensor([(i, cell[0]) for i, row in enumerate(rows) for cell in row]).T
        what = torch.tensor([cell[1:4] for row in rows for cell in row])
        mask[where[0], where[1]], shape[where[0], where[1]], colour[where[0], where[1]] = what.T
        geometry[where[0], where[1]] = torch.tensor([cell[4] for row in rows for cell in row])
        background = torch.tensor([COLOURS.index(scene.background) for scene in scenes])
        ground = RGB[background] + _jitter(rng, n)
        ink = RGB[colour] + _jitter(rng, n)[:, None]
        latents = torch.einsum("btk,btkc->btc", ink - ground[:, None], self._masks[mask])
        latents += (ground @ self._ground - self._offset)[:, None]
        return Composed(latents, shape, colour, background, geometry)

    def _row(self, scene: Scene, moment: float) -> list[tuple[int, int, int, int, tuple[float, float, float]]]:
        """For each tile that a thing reaches: tile, mask, shape, colour, geometry."""
        row = []
        for item in placed(scene, moment):
            shape, colour = SHAPES.index(item.shape), COLOURS.index(item.colour)
            for top in range(GRID):
                dy = item.y - STEP * top
                if not -STEP < dy < 2 * STEP:
                    continue
                for left in range(GRID):
                    dx = item.x - STEP * left
                    if -STEP < dx < 2 * STEP and (mask := self._mask(item.shape, dx, dy, item.r)):
                        row.append((top * GRID + left, mask, shape, colour, (dx / STEP - 0.5, dy / STEP - 0.5, item.r / STEP)))
        return row

    def _mask(self, shape: str, dx: float, dy: float, r: float) -> int:
        key = (shape, dx, dy, r)
        found = self._index.get(key)
        if found is None:
            pixels = coverage(shape, dx, dy, r, tile=(0, 0, STEP)).flatten()
            found = self._index[key] = self._used if bool(pixels.any()) else 0
            if found:
                self._keep(pixels)
        return found

    def _keep(self, pixels: Tensor) -> None:
        if self._used == len(self._masks):
            self._masks = torch.cat([self._masks, torch.zeros_like(self._masks)])
        self._masks[self._used] = torch.einsum("p,kpc->kc", pixels, self._analysis)
        self._used += 1


def _jitter(rng: random.Random, n: int) -> Tensor:
    return torch.tensor([[rng.uniform(-_JITTER, _JITTER)] for _ in range(n)])
