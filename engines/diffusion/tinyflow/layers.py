"""The pieces of TinyFlow's transformers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head attention with normalised queries and keys; over another sequence when `cross`."""

    def __init__(self, dim: int, heads: int, cross: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.cross = cross
        if cross:
            self.query, self.key_value = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        else:
            self.query_key_value = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.query_norm, self.key_norm = nn.RMSNorm(dim // heads, eps=1e-6), nn.RMSNorm(dim // heads, eps=1e-6)

    def _split(self, x: Tensor, parts: int) -> Tensor:
        """`[n, length, parts * dim]` -> `[parts, n, heads, length, dim / heads]`."""
        n, length, _ = x.shape
        return x.view(n, length, parts, self.heads, -1).permute(2, 0, 3, 1, 4)

    def keys_values(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """What a cross attention needs of its context; the same at every denoising step."""
        keys, values = self._split(self.key_value(context), 2)
        return self.key_norm(keys), values

    def forward(self, x: Tensor, keys_values: tuple[Tensor, Tensor] | None = None, mask: Tensor | None = None) -> Tensor:
        if keys_values is not None:
            queries = self._split(self.query(x), 1)[0]
            keys, values = keys_values
        else:
            queries, keys, values = self._split(self.query_key_value(x), 3)
            keys = self.key_norm(keys)
        # Two matmuls: at a few tokens the CPU's fused kernel is several times slower, above all in bfloat16.
        scores = (self.query_norm(queries) * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e4)
        mixed = torch.softmax(scores, -1) @ values
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(x.shape))
        return out


class GatedMLP(nn.Module):
    """SwiGLU. Its products suit the job: a pixel is a mask times a difference of colours."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(dim, 2 * hidden, bias=False), nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, -1)
        out: Tensor = self.down(F.silu(gate) * value)
        return out


class TextBlock(nn.Module):
    """A pre-norm encoder block."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention, self.mlp = Attention(dim, heads), GatedMLP(dim, 2 * dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), mask=mask)
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class FlowBlock(nn.Module):
    """Self-attention over the picture, cross-attention to the caption, MLP; modulated by noise level, moment and caption (adaLN)."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False, eps=1e-6)
        self.norm_cross = nn.LayerNorm(dim, eps=1e-6)
        self.attention, self.cross = Attention(dim, heads), Attention(dim, heads, cross=True)
        self.mlp = GatedMLP(dim, hidden)
        self.table = nn.Parameter(torch.randn(6, dim) * 0.02)
        with torch.no_grad():  # open gates: closed ones (adaLN-zero) would cost a short training its first steps
            self.table[2] += 0.5
            self.table[5] += 0.5

    def modulate(self, modulation: Tensor) -> tuple[Tensor, ...]:
        """`[n, 6, dim]` -> six `[n, 1, dim]`."""
        return tuple(part[:, None] for part in (modulation + self.table).unbind(1))

    def probe(self, x: Tensor, modulation: Tensor) -> Tensor:
        """What enters the first attention: a cheap sign of how far the block's input has moved."""
        scale, shift, *_ = self.modulate(modulation)
        out: Tensor = self.norm1(x) * (1 + scale) + shift
        return out

    def forward(self, x: Tensor, modulation: Tensor, keys_values: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        scale1, shift1, gate1, scale2, shift2, gate2 = self.modulate(modulation)
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1)
        x = x + self.cross(self.norm_cross(x), keys_values=keys_values, mask=mask)
        out: Tensor = x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)
        return out
