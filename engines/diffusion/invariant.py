"""Networks whose answer for a row is the same to the last bit whichever rows share its batch.

A matrix product's rows do not depend on each other, but the kernel that computes them does depend on how many there are: one row goes to
another routine than four, and the sums come out in another order. So each linear layer gets its rows in a way that the batch cannot
change, the cheap way where the library's kernels allow it:

- padded: products of fewer than `FLOOR` rows are filled up. MKL's float32 kernels agree with each other from four rows on, so this
  costs next to nothing (measured: 0 to 3 % of a step).
- tiled: every product is computed in tiles of exactly `TILE` rows (measured: 22 % of a step of 16 rows).

Convolutions (a transformer has one at most, to cut the picture into tiles) take one row at a time.

Which way holds is found out by trying, on this machine, with this network, when it is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

log = logging.getLogger(__name__)

FLOOR = 16
TILE = 32
SIZES = (1, 2, 3, 5, 8, 16, 32)
"""Batch sizes that are tried."""

Forward = Callable[[Sequence[int]], Tensor]
"""Rows of a fixed set, by their numbers below `max(SIZES)`, to what the network answers: `[rows, ...]`."""


class RowLinear(nn.Module):
    """A linear layer in place of `nn.Linear`, with the same parameters; `tiled` as in the module's docstring."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.tiled = False

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out = torch.cat([self._filled(tile, TILE) for tile in torch.split(rows, TILE)]) if self.tiled else self._filled(rows, FLOOR)
        return out.view(*x.shape[:-1], self.out_features)

    def _filled(self, rows: Tensor, least: int) -> Tensor:
        count = len(rows)
        if count >= least:
            return F.linear(rows, self.weight, self.bias)
        return F.linear(F.pad(rows, (0, 0, 0, least - count)), self.weight, self.bias)[:count]


class RowConvolution(nn.Module):
    """A convolution in place of `nn.Conv2d` and its kin, with the same parameters, row by row."""

    def __init__(self, convolution: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> None:
        super().__init__()
        self.weight = convolution.weight
        self.bias = convolution.bias
        self._one = [convolution]  # in a list: it must not be found as a second module with the same parameters

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self._one[0](row) for row in torch.split(x, 1)])


def make_rows_independent(network: nn.Module, forward: Forward) -> str:
    """Replace the network's linear layers and convolutions, and see that `forward` (which uses the network) gives each row the same bits
    in every batch.

    Returns "padded" or "tiled", the cheapest that holds; "none" when neither does (some other kernel depends on the batch), with a warning.
    """
    layers = _replace(network)
    for way in ("padded", "tiled"):
        for layer in layers:
            layer.tiled = way == "tiled"
        if rows_are_independent(forward):
            return way
    log.warning("the bytes of %s depend on what shares its batch on this machine", type(network).__name__)
    for layer in layers:
        layer.tiled = False
    return "none"


def rows_are_independent(forward: Forward) -> bool:
    """Does `forward` give each row the same bits, whatever the batch's size and the row's place in it?"""
    with torch.inference_mode():
        alone = {row: forward([row])[0] for row in range(max(SIZES))}
        for size in SIZES:
            for rows in (range(size), range(max(SIZES) - 1, max(SIZES) - 1 - size, -1)):
                together = forward(list(rows))
                if not all(torch.equal(together[place], alone[row]) for place, row in enumerate(rows)):
                    return False
    return True


def _replace(module: nn.Module) -> list[RowLinear]:
    """-> the linear layers, old and new."""
    replaced: list[RowLinear] = []
    for name, child in module.named_children():
        if isinstance(child, RowLinear):
            replaced.append(child)
        elif type(child) is nn.Linear:
            layer = RowLinear(child)
            setattr(module, name, layer)
            replaced.append(layer)
        elif isinstance(child, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            setattr(module, name, RowConvolution(child))
        else:
            replaced += _replace(child)
    return replaced
