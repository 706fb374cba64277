"""The flow-matching network: an MLP over the flattened action chunk, steered by observation, instruction and flow time.

It predicts the velocity that carries noise (tau 0) to actions (tau 1). The instruction reaches it by FiLM over the observation's layers
(and not by addition alone: then it would be drowned by the state), observation and time by adaptive layer norm in each block. Given
actions (a prefix) are marked by a mask over the horizon.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .card import Card, NetworkShape
from .vision import Eye


class Block(nn.Module):
    """A residual MLP block with adaptive layer norm: scale and shift `[B, 2d]` come from outside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, hidden: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        normal = functional.layer_norm(hidden, (self.width,))
        added: Tensor = self.down(functional.gelu(self.up(torch.addcmul(shift, normal, 1 + scale))))
        return hidden + added


class FlowNetwork(nn.Module):
    """See the module's docstring. B rows, S numbers of state, H actions of A numbers each."""

    frequencies: Tensor

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

    def condition(self, state: Tensor, prompt: Tensor, seen: Tensor | None = None) -> Tensor:
        """`[B, S]` normalised state, `[B, buckets]` prompt and, where there are eyes, what `see` gives -> `[B, c]`. Once a chunk."""
        told = functional.gelu(self.prompt_film(prompt))
        hidden = self.observation_in(state if seen is None else torch.cat((state, seen), -1))
        for film, layer in ((self.film_in, self.observation_mid), (self.film_mid, self.observation_out)):
            scale, shift = film(told).chunk(2, -1)
            hidden = layer(functional.gelu(torch.addcmul(shift, hidden, 1 + scale)))
        mixed: Tensor = self.mix(functional.gelu(hidden + self.prompt_direct(prompt)))
        return mixed

    def time(self, tau: Tensor) -> Tensor:
        """`[B]` flow times -> `[B, c]`."""
        angles = tau[:, None] * self.frequencies
        waves = torch.cat((angles.sin(), angles.cos()), -1)
        embedded: Tensor = self.time_out(functional.gelu(self.time_in(waves)))
        return embedded

    def velocity(self, chunk: Tensor, time: Tensor, condition: Tensor, mask: Tensor) -> Tensor:
        """`[B, H, A]` chunk, `time(tau)`, `condition(…)`, `[B, H]` mask (1: given) -> `[B, H, A]`."""
        steering = self.films(functional.gelu(condition + time)).chunk(2 * self.shape.depth, -1)
        hidden = self.chunk_in(torch.cat((chunk.flatten(1), mask), 1))
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, steering[2 * index], steering[2 * index + 1])
        moved: Tensor = self.chunk_out(hidden)
        return moved.view(-1, self.horizon, self.action_dim)
