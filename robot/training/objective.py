"""The flow-matching loss: what the network is shown and what it must answer.

A chunk x1 is mixed with noise x0 to `(1 - tau) x0 + tau x1`, the answer is `x1 - x0` (Lipman et al. 2023); tau is drawn from Beta(1, 1.5),
which looks more at the noisy end. With a prefix of d given actions the first d of the chunk stay as they are, are marked in the mask, and
do not count (training-time real-time chunking).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ...engines.action.network import FlowNetwork

FREE = 0.5
"""Of the windows that need no prefix, how many get none."""


def draw_prefix(needed: Tensor, longest: int, generator: torch.Generator) -> Tensor:
    """`[B]` lengths of prefixes: those that the windows need at least, and more at random."""
    length = torch.randint(0, longest + 1, needed.shape, generator=generator)
    free = torch.rand(needed.shape, generator=generator) < FREE
    return torch.maximum(torch.where(free, 0, length), needed)


def draw_times(count: int, generator: torch.Generator) -> Tensor:
    """`[B]` from Beta(1, 1.5), by its inverse."""
    uniform = torch.rand(count, generator=generator)
    return 1 - (1 - uniform) ** (1 / 1.5)


def flow_loss(network: FlowNetwork, condition: Tensor, chunks: Tensor, prefix: Tensor, generator: torch.Generator) -> Tensor:
    """The mean squared error over the actions that were not given. `chunks` `[B, H, A]` normalised, `prefix` `[B]` lengths; `condition` may
    have a whole fraction of B rows: each is then used several times over."""
    count, horizon, _ = chunks.shape
    noise = torch.randn(chunks.shape, generator=generator)
    tau = draw_times(count, generator)
    mask = (torch.arange(horizon) < prefix[:, None]).float()
    mixed = torch.lerp(noise, chunks, tau[:, None, None])
    mixed = torch.where(mask[:, :, None] > 0, chunks, mixed)
    if len(condition) != count:
        condition = condition.repeat(count // len(condition), 1)
    answer = network.velocity(mixed, network.time(tau), condition, mask)
    error = functional.mse_loss(answer.float(), chunks - noise, reduction="none").mean(-1)
    free = 1 - mask
    return (error * free).sum() / free.sum()
