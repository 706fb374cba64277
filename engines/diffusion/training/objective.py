"""What the transformer is trained on: the flow's error, and what each tile shows.

The second loss reads the tokens half-way up: shape, colour and background of the tile, and where the thing's centre is. It works like
representation alignment (REPA, Yu et al. 2024), with the world's own labels for features: the layout is learnt directly instead of through
pixels, and the upper half of the network only has to paint. Its head is thrown away after training.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..tinyflow.transformer import TinyFlowTransformer
from ..tinyflow.words import COLOURS, SHAPES
from .compose import EMPTY, Composed

_PARTS = (len(SHAPES) + 1, len(COLOURS), len(COLOURS), 3)


class TileHead(nn.Module):
    """Tokens half-way up -> what their tiles show."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.read = nn.Linear(dim, sum(_PARTS))

    def loss(self, tokens: Tensor, batch: Composed, known: Tensor) -> Tensor:
        """`known` `[n]` says which rows had their caption."""
        if not bool(known.any()):
            return tokens.new_zeros(())
        shape, colour, background, geometry = self.read(self.norm(tokens[known])).float().split(_PARTS, -1)
        wanted, full = batch.shape[known], batch.shape[known] != EMPTY
        ground = batch.background[known][:, None].expand_as(wanted)
        total = F.cross_entropy(shape.flatten(0, 1), wanted.flatten()) + 0.5 * F.cross_entropy(background.flatten(0, 1), ground.flatten())
        total = total + F.cross_entropy(colour[full], batch.colour[known][full])
        error: Tensor = total + 4 * (geometry[full] - batch.geometry[known][full]).square().mean()
        return error


@dataclass(frozen=True, slots=True)
class Losses:
    """`flow` has unit scale: 1 is what an untrained network pays. `noisy` is the flow's error where noise is above 0.9."""

    total: Tensor
    flow: float
    noisy: float
    tiles: float


def draw_noise_levels(n: int, generator: torch.Generator) -> Tensor:
    """Mostly high levels: there the caption decides; lower ones are nearly denoising."""
    levels = torch.sigmoid(torch.randn(n, generator=generator) * 1.4 + 1.2)
    choice = torch.rand(n, generator=generator)
    levels = torch.where(choice < 0.1, torch.rand(n, generator=generator), levels)
    levels = torch.where(choice > 0.88, 1 - 0.03 * torch.rand(n, generator=generator), levels)
    return torch.where(choice > 0.96, torch.ones(n), levels).clamp(0.002, 1.0)


def losses(
    model: TinyFlowTransformer,
    head: TileHead,
    batch: Composed,
    text: tuple[Tensor, Tensor],
    moments: Tensor,
    known: Tensor,
    generator: torch.Generator,
    tile_weight: float,
) -> Losses:
    """One batch's losses; `text` is the encoder's answer, the null caption's where not `known`."""
    clean = batch.latents
    levels = draw_noise_levels(len(clean), generator)
    noise = torch.randn(clean.shape, generator=generator)
    noisy = (1 - levels)[:, None, None] * clean + levels[:, None, None] * noise
    condition = model.prepare(*text, moments)
    scaled, skip, scale = model.precondition(noisy, levels)
    x, vector, modulation = model.embed(scaled, levels, condition.summary)
    tiles = x.new_zeros(())
    for index, (block, keys_values) in enumerate(zip(model.blocks, condition.keys_values, strict=True)):
        x = block(x, modulation, keys_values, condition.mask)
        if index + 1 == len(model.blocks) // 2:
            tiles = head.loss(x, batch, known)
    error = model.head(x, vector) - (clean - skip) / scale
    weight = model.variance**0.75 / (model.variance**0.75).mean()  # between equal channels and equal pixels
    rows = (error.square() * weight).mean((1, 2))
    high = levels > 0.9
    flow = rows.mean()
    at_high = rows.detach()[high & known]
    return Losses(flow + tile_weight * tiles, float(flow.detach()), float(at_high.mean()) if len(at_high) else 0.0, float(tiles.detach()))
