"""The rectified-flow transformer: noisy latents, a caption, a noise level and a moment -> the clean latents.

The path is x_s = (1 - s) x + s n for s from 0 (clean) to 1 (noise). The network predicts x through EDM's preconditioning (Karras et al.
2022, adapted to this path, channel by channel), so its target has unit variance at every noise level.

A clip's frame is a row like a picture: its moment u (0 the first frame, 1 the last; 0 for pictures) is one more condition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import FlowBlock
from .saved import ModelMixin, register_to_config, zero

_WAVES = 64


@dataclass(frozen=True, slots=True)
class Condition:
    """What the network needs of caption and moment, computed once a request: rows `[n, ...]`."""

    keys_values: list[tuple[Tensor, Tensor]]
    """For each block, `[n, heads, words, dim / heads]` twice."""
    mask: Tensor
    """`[n, 1, 1, words]`."""
    summary: Tensor
    """`[n, dim]`."""


def _grid_positions(grid: int, dim: int) -> Tensor:
    """Sines and cosines of row and column, `[grid * grid, dim]`."""
    rates = 1.5 / 100 ** (torch.arange(dim // 4).float() / (dim // 4))
    angles = torch.arange(grid).float()[:, None] * rates
    axis = torch.cat([angles.sin(), angles.cos()], -1)
    return torch.cat([axis[:, None].expand(grid, grid, -1), axis[None].expand(grid, grid, -1)], -1).reshape(grid * grid, dim).clone()


class TinyFlowTransformer(ModelMixin):
    """See the module."""

    variance: Tensor
    noise_rates: Tensor
    moment_rates: Tensor
    blocks: Any

    @register_to_config
    def __init__(
        self, grid: int = 4, channels: int = 128, dim: int = 256, heads: int = 4, layers: int = 6, hidden: int = 640, text_dim: int = 192
    ) -> None:
        super().__init__()
        self.inp = nn.Linear(channels, dim)
        self.positions = nn.Parameter(_grid_positions(grid, dim))
        self.text = nn.Linear(text_dim, dim)
        self.moment = nn.Linear(2 * _WAVES, dim)
        self.summary = nn.Linear(dim, dim)
        self.noise = nn.Linear(2 * _WAVES, dim)
        self.mix = nn.Linear(dim, dim)
        self.modulation = nn.Linear(dim, 6 * dim)
        self.blocks = nn.ModuleList(FlowBlock(dim, heads, hidden) for _ in range(layers))
        self.norm = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.modulation_out = nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(dim, channels)
        for layer in (self.modulation, self.modulation_out, self.out):
            zero(layer)
        self.register_buffer("variance", torch.ones(channels))
        self.register_buffer("noise_rates", torch.exp(-math.log(10000) * torch.arange(_WAVES) / _WAVES) * 1000.0, persistent=False)
        self.register_buffer("moment_rates", torch.exp(-math.log(64) * torch.arange(_WAVES) / _WAVES) * 24.0, persistent=False)

    def set_deviation(self, deviation: Tensor) -> None:
        """The codec's standard deviation per channel."""
        self.variance.copy_(deviation.float() ** 2)

    @staticmethod
    def _waves(values: Tensor, rates: Tensor, dtype: torch.dtype) -> Tensor:
        angles = values.float()[:, None] * rates.float()
        return torch.cat([angles.cos(), angles.sin()], -1).to(dtype)

    def prepare(self, text: Tensor, mask: Tensor, moments: Tensor) -> Condition:
        """Encoded captions `[n, words, text_dim]`, their mask `[n, words]` and moments `[n]` -> the rows' condition.

        The moment becomes one more word of the caption, and part of the modulation.
        """
        words = self.text(text)
        moment = self.moment(self._waves(moments, self.moment_rates, words.dtype))
        weight = mask[..., None].to(words.dtype)
        mean = (words * weight).sum(1) / weight.sum(1).clamp(min=1)
        summary = self.summary(F.silu(mean + moment))
        words = torch.cat([words, moment[:, None]], 1)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        return Condition([block.cross.keys_values(words) for block in self.blocks], mask[:, None, None], summary)

    def precondition(self, latents: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """-> the network's input, the part of the answer that needs no network, and the scale of the network's part."""
        keep, s = (1 - noise)[:, None, None], noise[:, None, None]
        total = keep * keep * self.variance + s * s
        return latents / total.sqrt(), keep * self.variance / total * latents, s * (self.variance / total).sqrt()

    def embed(self, scaled: Tensor, noise: Tensor, summary: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """-> tokens `[n, tiles, dim]`, the condition vector `[n, dim]` and the blocks' modulation `[n, 6, dim]`."""
        vector = F.silu(self.noise(self._waves(noise, self.noise_rates, summary.dtype)) + summary)
        vector = F.silu(self.mix(vector))
        return self.inp(scaled.to(summary.dtype)) + self.positions, vector, self.modulation(vector).view(len(noise), 6, -1)

    def head(self, x: Tensor, vector: Tensor) -> Tensor:
        """-> the network's unit-variance answer `[n, tiles, channels]`, float32."""
        scale, shift = self.modulation_out(vector).chunk(2, -1)
        answer: Tensor = self.out(self.norm(x) * (1 + scale[:, None]) + shift[:, None])
        return answer.float()

    def forward(self, latents: Tensor, noise: Tensor, condition: Condition) -> Tensor:
        """`latents` `[n, tiles, channels]` float32 at noise levels `[n]` (a level a row: requests at different steps share a batch)
        -> the predicted clean latents."""
        scaled, skip, scale = self.precondition(latents.float(), noise.float())
        x, vector, modulation = self.embed(scaled, noise, condition.summary)
        for block, keys_values in zip(self.blocks, condition.keys_values, strict=True):
            x = block(x, modulation, keys_values, condition.mask)
        return skip + scale * self.head(x, vector)
