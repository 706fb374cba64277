"""The flow-matching network: an MLP over the flattened action chunk, steered by observation, instruction and flow time.

It predicts the velocity that carries noise (tau 0) to actions (tau 1). The instruction reaches it by FiLM over the observation's layers
(and not by addition alone: then it would be drowned by the state), observation and time by adaptive layer norm in each block. Given
actions (a prefix) are marked by a mask over the horizon.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .card import Card, NetworkShape
from .vision import Eye


class Block(nn.Module):
    """The weights of a residual MLP block with adaptive layer norm; `move` computes it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)


class Layers(NamedTuple):
    """Weights and biases of what is computed at each integration step, as `move` takes them: on a CPU the call of a module takes about as
    long as the product of so small a matrix."""

    into: tuple[Tensor, Tensor]
    blocks: tuple[tuple[Tensor, Tensor, Tensor, Tensor], ...]
    """Weight and bias up, weight and bias down."""
    out: tuple[Tensor, Tensor]


def move(layers: Layers, chunk: Tensor, mask: Tensor, steering: Tensor) -> Tensor:
    """Flattened chunks `[B, H A]`, `[B, H]` masks (1: given), `FlowNetwork.steering` `[B, 2 depth d]` -> the velocity `[B, H A]`."""
    hidden = functional.linear(torch.cat((chunk, mask), 1), *layers.into)
    width = hidden.shape[1:]
    steps = iter(steering.chunk(2 * len(layers.blocks), -1))
    for (up, up_bias, down, down_bias), scale, shift in zip(layers.blocks, steps, steps, strict=True):
        normal = torch.addcmul(shift, functional.layer_norm(hidden, width), scale)
        hidden = hidden + functional.linear(functional.gelu(functional.linear(normal, up, up_bias)), down, down_bias)
    return functional.linear(hidden, *layers.out)


class FlowNetwork(nn.Module):
    """See the module's docstring. B rows, S numbers of state, H actions of A numbers each."""

    frequencies: Tensor
    still: Tensor

    def __init__(self, state: int, horizon: int, action_dim: int, shape: NetworkShape | None = None) -> None:
        super().__init__()
        shape = shape or NetworkShape()
        self.horizon, self.action_dim, self.shape = horizon, action_dim, shape
        inner = shape.observation_width
        self.prompt_film = nn.Linear(shape.prompt_buckets, shape.prompt_width)
        self.prompt_direct = nn.Linear(shape.prompt_buckets, shape.condition)
        self.eyes = nn.ModuleList(Eye(shape.keypoints) for _ in range(shape.eyes))
        self.observation_in = nn.Linear(state + 2 * shape.keypoints * shape.eyes, inner)
        self.observation_mid = nn.Linear(inner, inner)
        self.observation_out = nn.Linear(inner, shape.condition)
        self.film_in = nn.Linear(shape.prompt_width, 2 * inner)
        self.film_mid = nn.Linear(shape.prompt_width, 2 * inner)
        self.mix = nn.Linear(shape.condition, shape.condition)
        frequencies = torch.exp(torch.linspace(0, math.log(200.0), shape.frequencies))
        self.register_buffer("frequencies", frequencies)
        self.time_in = nn.Linear(2 * shape.frequencies, shape.condition)
        self.time_out = nn.Linear(shape.condition, shape.condition)
        self.chunk_in = nn.Linear(horizon * action_dim + horizon, shape.width)
        self.films = nn.Linear(shape.condition, shape.depth * 2 * shape.width)
        self.blocks = nn.ModuleList(Block(shape.width) for _ in range(shape.depth))
        self.chunk_out = nn.Linear(shape.width, horizon * action_dim)
        still = torch.tensor([1.0, 0.0] * shape.depth).repeat_interleave(shape.width)  # scales of 1, shifts of 0
        self.register_buffer("still", still, persistent=False)
        self._start_still()

    @classmethod
    def of(cls, card: Card) -> FlowNetwork:
        """The network that a card describes, with fresh weights."""
        return cls(card.state_size, card.horizon, card.action_dim, card.network)

    def _start_still(self) -> None:
        """Begin as the identity: zero velocity, blocks that add nothing."""
        for linear in (self.films, self.chunk_out, *(block.down for block in self.blocks)):
            assert isinstance(linear, nn.Linear)
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)

    def see(self, pictures: Tensor) -> Tensor:
        """`[B, eyes, 3, s, s]` uint8 -> `[B, 2 * keypoints * eyes]`."""
        return torch.cat([eye(pictures[:, index]) for index, eye in enumerate(self.eyes)], -1)

    def instruct(self, prompt: Tensor) -> Tensor:
        """`[B, buckets]` prompt -> `[B, told]`, all that depends on it alone: once an instruction."""
        told = functional.gelu(self.prompt_film(prompt))
        return torch.cat((self.film_in(told), self.film_mid(told), self.prompt_direct(prompt)), -1)

    def observe(self, state: Tensor, told: Tensor, seen: Tensor | None = None) -> Tensor:
        """`[B, S]` normalised state, what `instruct` gives and, where there are eyes, what `see` gives -> `[B, c]`: once a chunk."""
        inner = self.shape.observation_width
        scale, shift, scale_mid, shift_mid, direct = torch.split(told, [inner, inner, inner, inner, self.shape.condition], -1)
        hidden = self.observation_in(state if seen is None else torch.cat((state, seen), -1))
        hidden = self.observation_mid(functional.gelu(torch.addcmul(shift, hidden, 1 + scale)))
        hidden = self.observation_out(functional.gelu(torch.addcmul(shift_mid, hidden, 1 + scale_mid)))
        mixed: Tensor = self.mix(functional.gelu(hidden + direct))
        return mixed

    def condition(self, state: Tensor, prompt: Tensor, seen: Tensor | None = None) -> Tensor:
        """`observe` for `[B, buckets]` prompts."""
        return self.observe(state, self.instruct(prompt), seen)

    def time(self, tau: Tensor) -> Tensor:
        """`[B]` flow times -> `[B, c]`."""
        angles = tau[:, None] * self.frequencies
        waves = torch.cat((angles.sin(), angles.cos()), -1)
        embedded: Tensor = self.time_out(functional.gelu(self.time_in(waves)))
        return embedded

    def steering(self, condition: Tensor, time: Tensor) -> Tensor:
        """`[..., c]` both -> `[..., 2 depth d]`: scale and shift of each block in turn."""
        steering: Tensor = self.films(functional.gelu(condition + time))
        return steering + self.still

    def layers(self) -> Layers:
        """What `move` needs."""
        blocks = [block for block in self.blocks if isinstance(block, Block)]
        return Layers(
            into=(self.chunk_in.weight, self.chunk_in.bias),
            blocks=tuple((block.up.weight, block.up.bias, block.down.weight, block.down.bias) for block in blocks),
            out=(self.chunk_out.weight, self.chunk_out.bias),
        )

    def velocity(self, chunk: Tensor, time: Tensor, condition: Tensor, mask: Tensor) -> Tensor:
        """`[B, H, A]` chunk, `time(tau)`, `condition(…)`, `[B, H]` mask (1: given) -> `[B, H, A]`."""
        moved = move(self.layers(), chunk.flatten(1), mask, self.steering(condition, time))
        return moved.view(-1, self.horizon, self.action_dim)
