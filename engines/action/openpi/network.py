"""The network of pi0 and pi0.5: eyes (SigLIP) and reader (Gemma) turn pictures and words into keys and values, once a chunk; the actor (a
smaller Gemma that attends to them) gives the velocity of the flow, once a step.

Sources: "pi0: A Vision-Language-Action Flow Model" (arXiv 2410.24164), "pi0.5" (2504.16054), PaliGemma (2407.07726), and what openpi's own
network does with the same weights, to which this one is held by a test. Flow time runs from 1 (noise) to 0 (actions).
"""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from .checkpoint import Shape

EPSILON = 1e-6
ROPE_BASE = 10_000.0
EYES_HEADS = 16
PERIODS = (4e-3, 4.0)
"""The shortest and the longest wave of the embedding of flow time."""

Memory: TypeAlias = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, `[B, 1, P, head_size]`."""


class EyeBlock(nn.Module):
    """A layer of SigLIP."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(width, EPSILON)
        self.layer_norm2 = nn.LayerNorm(width, EPSILON)
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))
        self.fc1 = nn.Linear(width, inner)
        self.fc2 = nn.Linear(inner, width)

    def forward(self, seen: Tensor) -> Tensor:
        normal = self.layer_norm1(seen)
        query, key, value = (
            part(normal).unflatten(-1, (EYES_HEADS, -1)).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        heads = functional.scaled_dot_product_attention(query, key, value)
        seen = seen + self.out_proj(heads.transpose(1, 2).flatten(2))
        added: Tensor = self.fc2(functional.gelu(self.fc1(self.layer_norm2(seen)), approximate="tanh"))
        return seen + added


class Eyes(nn.Module):
    """`[N, 3, s, s]` from -1 to 1 -> `[N, patches, width]`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.patch_embedding = nn.Conv2d(3, shape.eyes_width, shape.patch, shape.patch)
        self.position_embedding = nn.Embedding((shape.side // shape.patch) ** 2, shape.eyes_width)
        self.layers = nn.ModuleList(EyeBlock(shape.eyes_width, shape.eyes_inner) for _ in range(shape.eyes_depth))
        self.post_layernorm = nn.LayerNorm(shape.eyes_width, EPSILON)

    def forward(self, pictures: Tensor) -> Tensor:
        seen = self.patch_embedding(pictures).flatten(2).transpose(1, 2) + self.position_embedding.weight
        for layer in self.layers:
            seen = layer(seen)
        normal: Tensor = self.post_layernorm(seen)
        return normal


class Norm(nn.Module):
    """RMS norm; with a condition `[B, c]` (pi0.5's actor) its scale, shift and gate come from there."""

    def __init__(self, width: int, condition: int = 0) -> None:
        super().__init__()
        if condition:
            self.dense = nn.Linear(condition, 3 * width)
        else:
            self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, hidden: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor | None]:
        wide = hidden.float()
        normal = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
        if condition is None:
            return (normal * (1 + self.weight.float())).to(hidden.dtype), None
        scale, shift, gate = self.dense(condition)[:, None].chunk(3, -1)
        return (normal * (1 + scale.float()) + shift.float()).to(hidden.dtype), gate.to(hidden.dtype)


class Layer(nn.Module):
    """A layer of Gemma with one head of keys and values."""

    def __init__(self, width: int, inner: int, heads: int, head_size: int, condition: int) -> None:
        super().__init__()
        self.heads = heads
        self.input_layernorm = Norm(width, condition)
        self.post_attention_layernorm = Norm(width, condition)
        self.q_proj = nn.Linear(width, heads * head_size, bias=False)
        self.k_proj = nn.Linear(width, head_size, bias=False)
        self.v_proj = nn.Linear(width, head_size, bias=False)
        self.o_proj = nn.Linear(heads * head_size, width, bias=False)
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def keys(self, normal: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values `[B, 1, L, head_size]` of normalised tokens."""
        return rotate(self.k_proj(normal)[:, None], turn), self.v_proj(normal)[:, None]

    def forward(
        self, hidden: Tensor, turn: Tensor, mask: Tensor, condition: Tensor | None = None, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """`mask` `[B, 1, L, P + L]`, true: may be attended to. Returns the tokens, and their keys and values."""
        normal, gate = self.input_layernorm(hidden, condition)
        own = self.keys(normal, turn)
        key, value = own if past is None else (torch.cat((past[0], own[0]), 2), torch.cat((past[1], own[1]), 2))
        query = rotate(self.q_proj(normal).unflatten(-1, (self.heads, -1)).transpose(1, 2), turn)
        spread = (-1, self.heads, -1, -1)
        heads = functional.scaled_dot_product_attention(query, key.expand(spread), value.expand(spread), attn_mask=mask)
        hidden = _added(hidden, self.o_proj(heads.transpose(1, 2).flatten(2)), gate)
        normal, gate = self.post_attention_layernorm(hidden, condition)
        inner = functional.gelu(self.gate_proj(normal), approximate="tanh") * self.up_proj(normal)
        return _added(hidden, self.down_proj(inner), gate), own


class Gemma(nn.Module):
    """Layers of Gemma; the reader has a table of tokens."""

    def __init__(self, width: int, inner: int, shape: Shape, *, vocabulary: int = 0, condition: int = 0) -> None:
        super().__init__()
        if vocabulary:
            self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, inner, shape.heads, shape.head_size, condition) for _ in range(shape.depth))
        self.norm = Norm(width, condition)


class Pi0Network(nn.Module):
    """See the module's docstring. Its parameters are named as openpi's, shortened by `short_name`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.actor_width
        self.shape = shape
        self.eyes = Eyes(shape)
        self.project = nn.Linear(shape.eyes_width, shape.width)
        self.reader = Gemma(shape.width, shape.inner, shape, vocabulary=shape.vocabulary)
        self.actor = Gemma(width, shape.actor_inner, shape, condition=width if shape.pi05 else 0)
        self.action_in_proj = nn.Linear(shape.action_dim, width)
        self.action_out_proj = nn.Linear(width, shape.action_dim)
        if shape.pi05:
            self.time_mlp_in = nn.Linear(width, width)
            self.time_mlp_out = nn.Linear(width, width)
        else:
            self.state_proj = nn.Linear(shape.action_dim, width)
            self.action_time_mlp_in = nn.Linear(2 * width, width)
            self.action_time_mlp_out = nn.Linear(width, width)

    def to_precision(self, dtype: torch.dtype) -> None:
        """Eyes, reader and actor in `dtype`; norms and what leads actions in and out in float32, as openpi has it."""
        self.to(dtype)
        for name, part in self.named_children():
            if name not in ("eyes", "project", "reader", "actor"):
                part.float()
        for part in self.modules():
            if isinstance(part, Norm):
                part.float()

    def see(self, pictures: Tensor) -> Tensor:
        """`[N, 3, s, s]` uint8 -> `[N, patches, width]`."""
        scaled = pictures.float() / 255 * 2 - 1
        seen: Tensor = self.project(self.eyes(scaled.to(self.project.weight.dtype)))
        return seen

    def words(self, tokens: Tensor) -> Tensor:
        """`[T]` -> `[T, width]`."""
        told: Tensor = self.reader.embed_tokens(tokens) * math.sqrt(self.shape.width)
        return told

    def read(self, told: Tensor, lengths: Tensor) -> Memory:
        """What the actor attends to: `[B, P, width]`, of which the first `lengths` `[B]` are there, each seeing all of these."""
        places = torch.arange(told.shape[1], device=told.device)
        turn = turning(places.expand(len(told), -1), self.shape.head_size)
        mask = (places < lengths[:, None])[:, None, None]
        memory: Memory = []
        for layer in list(self.reader.layers)[:-1]:
            told, kept = layer(told, turn, mask)
            memory.append(kept)
        last = self.reader.layers[-1]
        assert isinstance(last, Layer)
        memory.append(last.keys(last.input_layernorm(told, None)[0], turn))
        return memory

    def velocity(self, chunk: Tensor, time: Tensor, state: Tensor, memory: Memory, lengths: Tensor) -> Tensor:
        """`[B, H, A]` chunk at flow time `[B]`, normalised `[B, A]` state -> `[B, H, A]`."""
        hidden, condition = self._tokens(chunk, time, state)
        count, horizon = hidden.shape[1], chunk.shape[1]
        places = torch.arange(count, device=chunk.device)
        turn = turning(lengths[:, None] + places, self.shape.head_size)
        there = torch.arange(memory[0][0].shape[2], device=chunk.device) < lengths[:, None]
        own = places[:, None] >= count - horizon
        own = own | (places[:, None] == places)  # actions attend to all, the state to itself alone
        mask = torch.cat((there[:, None].expand(-1, count, -1), own.expand(len(chunk), -1, -1)), 2)[:, None]
        hidden = hidden.to(self.project.weight.dtype)
        for layer, past in zip(self.actor.layers, memory, strict=True):
            hidden, _ = layer(hidden, turn, mask, condition, past)
        moved: Tensor = self.action_out_proj(self.actor.norm(hidden, condition)[0][:, -horizon:].float())
        return moved

    def _tokens(self, chunk: Tensor, time: Tensor, state: Tensor) -> tuple[Tensor, Tensor | None]:
        """The actor's tokens, and what steers its norms (pi0.5)."""
        waves = time_waves(time, self.shape.actor_width)
        actions = self.action_in_proj(chunk)
        if self.shape.pi05:
            return actions, functional.silu(self.time_mlp_out(functional.silu(self.time_mlp_in(waves))))
        timed = torch.cat((actions, waves[:, None].expand_as(actions)), -1)
        timed = self.action_time_mlp_out(functional.silu(self.action_time_mlp_in(timed)))
        return torch.cat((self.state_proj(state)[:, None], timed), 1), None


def short_name(name: str) -> str | None:
    """A parameter's name here, by its name in openpi's file; None: it is not used."""
    for long, short in _PARTS.items():
        if name.startswith(long):
            name = short + name[len(long) :]
            break
    else:
        if name.startswith("paligemma_with_expert."):
            return None
    for middle in ("embeddings.", "encoder.", "self_attn.", "mlp."):
        name = name.replace(f".{middle}", ".")
    return name


_PARTS = {
    "paligemma_with_expert.paligemma.model.vision_tower.vision_model.": "eyes.",
    "paligemma_with_expert.paligemma.model.multi_modal_projector.linear.": "project.",
    "paligemma_with_expert.paligemma.model.language_model.": "reader.",
    "paligemma_with_expert.gemma_expert.model.": "actor.",
}


def time_waves(time: Tensor, width: int) -> Tensor:
    """`[B]` -> `[B, width]`: sines, then cosines."""
    shortest, longest = PERIODS
    periods = shortest * (longest / shortest) ** torch.linspace(0, 1, width // 2, dtype=torch.float64, device=time.device)
    angles = 2 * math.pi * time[:, None].double() / periods
    return torch.cat((angles.sin(), angles.cos()), 1).float()


def turning(places: Tensor, size: int) -> Tensor:
    """The angles of rotary embedding, `[B, L]` places -> `[B, 1, L, size / 2]` float32."""
    speeds = ROPE_BASE ** (-torch.arange(0, size, 2, device=places.device).float() / size)
    return places[:, None, :, None].float() * speeds


def rotate(heads: Tensor, turn: Tensor) -> Tensor:
    """Rotary embedding of `[B, heads, L, size]`, the halves of each head paired."""
    cosine, sine = turn.cos().to(heads.dtype), turn.sin().to(heads.dtype)
    first, second = heads.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


def _added(hidden: Tensor, more: Tensor, gate: Tensor | None) -> Tensor:
    return hidden + (more if gate is None else more * gate)
