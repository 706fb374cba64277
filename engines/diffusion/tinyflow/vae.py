"""The picture codec: 64 x 64 pixels -> a 4 x 4 grid of latents -> 256 x 256 pixels.

The encoder is linear, principal components of 16 x 16 tiles, partly whitened; so a picture that is a sum of parts has latents that are the
sum of the parts' latents, and training composes latents without rendering. The decoder is the transpose and a small convolutional network
that mends what the missing components blur and quadruples the resolution.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .saved import ModelMixin, register_to_config, zero


class TinyFlowVAE(ModelMixin):
    """`encode` and `decode` batches of pictures in -1..1; `deviation` is each latent channel's standard deviation."""

    mean: Tensor
    analysis: Tensor
    synthesis: Tensor
    deviation: Tensor

    @register_to_config
    def __init__(self, channels: int = 128, tile: int = 16, width: int = 48, depth: int = 4, upscale: int = 4) -> None:
        super().__init__()
        size = 3 * tile * tile
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("analysis", torch.zeros(size, channels))
        self.register_buffer("synthesis", torch.zeros(channels, size))
        self.register_buffer("deviation", torch.ones(channels))
        self.stem = nn.Conv2d(12, width, 3, padding=1)
        self.middle = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.head = nn.Conv2d(width, 3 * (2 * upscale) ** 2, 1)
        zero(self.head)

    @torch.no_grad()
    def fit(self, tiles: Tensor, power: float = 0.5) -> None:
        """Set the linear part from sample tiles `[n, 3 * 16 * 16]`. Each channel is scaled by its deviation to the -`power`."""
        tiles = tiles.double()
        mean = tiles.mean(0)
        values, vectors = torch.linalg.eigh((tiles - mean).T @ (tiles - mean) / len(tiles))
        values, vectors = values.flip(0)[: self.config.channels].clamp(min=1e-9), vectors.flip(1)[:, : self.config.channels]
        scale = values.sqrt() ** -power
        scale = scale / (values * scale * scale).mean().sqrt()
        self.mean.copy_(mean)
        self.analysis.copy_(vectors * scale)
        self.synthesis.copy_((vectors / scale).T)
        self.deviation.copy_(values.sqrt() * scale)

    def tiles(self, pictures: Tensor) -> Tensor:
        """`[n, 3, h, w]` -> `[n, tiles, 3 * 16 * 16]`, row by row."""
        side = self.config.tile
        n, channels, height, width = pictures.shape
        cut = pictures.view(n, channels, height // side, side, width // side, side).permute(0, 2, 4, 1, 3, 5)
        return cut.reshape(n, -1, channels * side * side)

    def encode(self, pictures: Tensor) -> Tensor:
        """`[n, 3, 64, 64]` -> latents `[n, 16, channels]`."""
        return (self.tiles(pictures) - self.mean) @ self.analysis

    def decode_linear(self, latents: Tensor) -> Tensor:
        """Latents -> `[n, 3, 64, 64]`, without the network: a quick preview."""
        side, n, grid = self.config.tile, latents.shape[0], int(latents.shape[1] ** 0.5)
        tiles = (latents @ self.synthesis + self.mean).view(n, grid, grid, 3, side, side)
        return tiles.permute(0, 3, 1, 4, 2, 5).reshape(n, 3, grid * side, grid * side)

    def decode(self, latents: Tensor) -> Tensor:
        """Latents `[n, 16, channels]` -> `[n, 3, 64 * upscale, 64 * upscale]` in -1..1."""
        return self.refine(self.decode_linear(latents)).clamp(-1, 1)

    def refine(self, coarse: Tensor) -> Tensor:
        """`[n, 3, h, w]`, or a piece of it with even sides -> the same at full resolution, not yet clamped."""
        hidden = F.gelu(self.stem(F.pixel_unshuffle(coarse, 2)))
        for layer in self.middle:
            hidden = hidden + F.gelu(layer(hidden))
        detail = F.pixel_shuffle(self.head(hidden), 2 * self.config.upscale)
        larger = F.interpolate(coarse, scale_factor=self.config.upscale, mode="bilinear", align_corners=False)
        return larger + detail
