"""SmolVLA as a step policy: a step is one Euler step of its flow, shared by rows wherever they are in theirs.

What was seen and told is read once a chunk, before the first step; each step attends to the keys and values that are left of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from ...messages import ActBody
from ..step_policy import Actions
from .checkpoint import MAX_FLOW_STEPS, Checkpoint, Layout, Wired
from .loading import Loaded
from .policies import LerobotModel, LerobotRow

TOKENS = "observation.language.tokens"
TOKENS_MASK = "observation.language.attention_mask"

Memory: TypeAlias = dict[int, dict[str, Tensor]]
"""By layer: "key_states" and "value_states", `[B, P, heads, size]`."""


@dataclass(slots=True, eq=False)
class SmolvlaRow(LerobotRow):
    """`there` `[P]`: which places of the memory count. `chunk` `[h, A]` is padded to the model's dimensions."""

    memory: Any = None
    there: Tensor | None = None


@dataclass(slots=True)
class _Stack:
    """What the rows of the last step attend to, side by side, so that a step with the same rows moves nothing."""

    rows: list[SmolvlaRow]
    memory: Memory
    there: Tensor


class SmolvlaModel(LerobotModel):
    """See the module's docstring."""

    def __init__(self, loaded: Loaded, checkpoint: Checkpoint, wired: Sequence[Wired], layout: Layout, steps: int) -> None:
        super().__init__(loaded, checkpoint, wired, layout, steps)
        self._flow = loaded.policy.model
        self._masks_of = importlib.import_module("lerobot.policies.smolvla.modeling_smolvla").make_att_2d_masks
        self._stack: _Stack | None = None

    def _row(self, inputs: dict[str, Tensor], body: ActBody, seed: int) -> SmolvlaRow:
        steps = min(MAX_FLOW_STEPS, max(1, body.steps or self._steps))
        return SmolvlaRow(inputs=inputs, seed=seed, steps=steps, generator=torch.Generator().manual_seed(seed))

    def begin(self, rows: Sequence[LerobotRow]) -> None:
        with torch.inference_mode():
            for row in rows:
                assert isinstance(row, SmolvlaRow)
                self._read_in(row)

    def _read_in(self, row: SmolvlaRow) -> None:
        policy, flow = self._policy, self._flow
        batch = policy._prepare_batch(dict(row.inputs))
        pictures, masks = policy.prepare_images(batch)
        state = policy.prepare_state(batch)
        told, there, blocks = flow.embed_prefix(pictures, masks, batch[TOKENS], batch[TOKENS_MASK], state=state)
        _, row.memory = flow.vlm_with_expert.forward(
            attention_mask=self._masks_of(there, blocks),
            position_ids=torch.cumsum(there, dim=1) - 1,
            past_key_values=None,
            inputs_embeds=[told, None],
            use_cache=True,
            fill_kv_cache=True,
        )
        row.there = there[0]
        shape = (policy.config.chunk_size, policy.config.max_action_dim)
        row.chunk = torch.randn(shape, generator=row.generator).to(self._loaded.device)
        row.inputs = {}

    def advance(self, rows: Sequence[LerobotRow]) -> None:
        with torch.inference_mode():
            stack = self._stacked([row for row in rows if isinstance(row, SmolvlaRow)])
            chunk = torch.stack([row.chunk for row in rows])
            time = torch.tensor([1 - row.step / row.steps for row in rows], device=chunk.device)
            pace = torch.tensor([1 / row.steps for row in rows], device=chunk.device)[:, None, None]
            velocity = self._flow.denoise_step(x_t=chunk, prefix_pad_masks=stack.there, past_key_values=stack.memory, timestep=time)
            for row, moved in zip(rows, chunk - pace * velocity, strict=True):
                row.chunk = moved
                row.step += 1

    def finish(self, row: LerobotRow) -> Actions:
        with torch.inference_mode():
            actions = row.chunk[None, :, : self._action_dim].clone()
            if self._policy.config.adapt_to_pi_aloha:
                actions = self._policy._pi_aloha_encode_actions(actions)
        row.chunk = actions[0]
        return super().finish(row)

    def _stacked(self, rows: list[SmolvlaRow]) -> _Stack:
        stack = self._stack
        if stack is not None and len(stack.rows) == len(rows) and all(a is b for a, b in zip(stack.rows, rows, strict=True)):
            return stack
        there = [row.there for row in rows if row.there is not None]
        longest = max(len(each) for each in there)

        def side_by_side(layer: int, part: str) -> Tensor:
            parts = [row.memory[layer][part][0] for row in rows]
            return torch.stack([functional.pad(each, (0, 0, 0, 0, 0, longest - len(each))) for each in parts])

        self._stack = _Stack(
            rows=rows,
            memory={layer: {part: side_by_side(layer, part) for part in kept} for layer, kept in rows[0].memory.items()},
            there=torch.stack([functional.pad(each, (0, longest - len(each))) for each in there]),
        )
        return self._stack
