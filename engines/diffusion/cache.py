"""The residual cache: skip a row's transformer blocks while their input has hardly moved since they were last computed.

Of the kind of TeaCache (Liu et al. 2024): the probe is the first block's modulated input; its relative change (L1) is added up from step
to step, and while the sum stays below the threshold the blocks' last residual is used again. Per row, so the halves of a guided request,
and the frames of a clip, decide for themselves. The first and the last step are always computed. It helps the deterministic sampler
only: fresh noise moves the input at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class RowCache:
    """What one row of one request remembers between its steps."""

    threshold: float
    drift: float = 0.0
    probe: Tensor | None = None
    residual: Tensor | None = None

    def may_skip(self, probe: Tensor, last: bool) -> bool:
        """Look at this step's probe; True: the last residual still serves."""
        previous, self.probe = self.probe, probe
        if self.residual is None or previous is None or last:
            self.drift = 0.0
            return False
        self.drift += float((probe - previous).abs().mean() / previous.abs().mean().clamp(min=1e-12))
        if self.drift < self.threshold:
            return True
        self.drift = 0.0
        return False


def through_blocks(
    x: Tensor,
    probe: Tensor,
    caches: Sequence[RowCache | None],
    last: Sequence[bool],
    blocks: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, list[int]]:
    """`x` `[n, tokens, dim]` after the blocks, and the numbers of the rows that were really computed.

    `caches`: None for a row without; `last`: is it the row's last step; `blocks(x, rows)` computes the batch's rows `rows` (`[k]` int64),
    whose inputs are `x` `[k, tokens, dim]`.
    """
    computed = [row for row, cache in enumerate(caches) if cache is None or not cache.may_skip(probe[row], last[row])]
    if len(computed) == len(caches):
        out = blocks(x, torch.arange(len(x)))
    else:
        out = torch.empty_like(x)
        if computed:
            rows = torch.tensor(computed)
            out[rows] = blocks(x[rows], rows)
    fresh = set(computed)
    for row, cache in enumerate(caches):
        if cache is None:
            continue
        if row in fresh:
            cache.residual = out[row] - x[row]
        elif cache.residual is not None:
            out[row] = x[row] + cache.residual
    return out, computed
