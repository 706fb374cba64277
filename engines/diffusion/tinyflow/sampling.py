"""Walking from noise to a picture: the noise levels, and one Euler step along the flow."""

from __future__ import annotations

from torch import Tensor

SHIFT = 4.0
"""More than 1 spends more of the steps near pure noise, where the layout is decided."""


def noise_levels(steps: int, shift: float = SHIFT) -> list[float]:
    """`steps + 1` falling levels from 1 to 0."""
    even = [1 - index / steps for index in range(steps + 1)]
    return [shift * level / (1 + (shift - 1) * level) for level in even]


def guided(conditional: Tensor, unconditional: Tensor, guidance: float) -> Tensor:
    """Classifier-free guidance on predicted clean latents."""
    return unconditional + guidance * (conditional - unconditional)


def euler(latents: Tensor, clean: Tensor, now: float, then: float) -> Tensor:
    """From noise level `now` to `then` along the straight line through the predicted clean latents."""
    return latents + (then - now) / now * (latents - clean)
