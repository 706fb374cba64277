"""A trained flow network with its card, as a step policy: normalised in, robot's units out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from ..errors import InvalidRequestError, WeightsError
from ..messages import ActBody
from .card import Card, checked_weights
from .network import FlowNetwork
from .prompts import embed_prompt
from .step_policy import Actions


@dataclass(slots=True, eq=False)
class FlowRow:
    """One robot's chunk in the making: `chunk` `[H, A]` (normalised), `mask` `[H]` and `given` `[H, A]` of the prefix; `pictures`
    `[eyes, 3, s, s]`."""

    state: Tensor
    prompt: Tensor
    chunk: Tensor
    mask: Tensor
    given: Tensor
    seed: int
    steps: int
    prefix_length: int = 0
    step: int = 0
    pictures: Tensor | None = None
    condition: Tensor = field(default_factory=lambda: torch.empty(0))


@dataclass(slots=True)
class _Stack:
    """The rows of the last step side by side, so that a step with the same rows moves nothing."""

    rows: list[FlowRow]
    chunk: Tensor
    condition: Tensor
    mask: Tensor
    given: Tensor
    has_prefix: bool


class FlowModel:
    """See the module's docstring and `step_policy.StepPolicy`. Used on one thread only."""

    def __init__(self, card: Card, network: FlowNetwork, device: str = "cpu") -> None:
        self.card = card
        self._device = torch.device(device)
        self._network = network.to(self._device).float().eval().requires_grad_(False)
        self._state_mean = np.asarray(card.state_mean, np.float32)
        self._state_std = np.asarray(card.state_std, np.float32)
        self._action_mean = np.asarray(card.action_mean, np.float32)
        self._action_std = np.asarray(card.action_std, np.float32)
        self._times: dict[int, Tensor] = {}
        self._stack: _Stack | None = None

    @classmethod
    def load(cls, folder: Path, card: Card, device: str = "cpu") -> FlowModel:
        """Read the weights (fp16 or fp32). Raises `WeightsError`."""
        network = FlowNetwork.of(card)
        try:
            network.load_state_dict(load_safetensors(checked_weights(folder, card)))
        except (RuntimeError, SafetensorError) as error:
            raise WeightsError(f"the weights of policy {card.policy!r} do not fit its card: {error}") from error
        return cls(card, network, device)

    def prepare(self, body: ActBody, seed: int) -> FlowRow:
        """See `StepPolicy`. Raises `InvalidRequestError` for an observation or a prefix of the wrong size."""
        card = self.card
        try:
            parts = [body.observation[key].numpy().reshape(-1) for key in card.state]
            state = np.concatenate(parts).astype(np.float32)
        except (KeyError, ValueError) as error:
            raise InvalidRequestError(f"the observation does not fit policy {card.policy!r}: {error}") from None
        if len(state) != card.state_size:
            raise InvalidRequestError(f"the observation's state has {len(state)} numbers; policy {card.policy!r} takes {card.state_size}")
        state = np.clip((state - self._state_mean) / self._state_std, -card.state_clip, card.state_clip)
        noise = torch.randn(card.horizon, card.action_dim, generator=torch.Generator().manual_seed(seed))
        row = FlowRow(
            state=torch.from_numpy(state),
            prompt=torch.from_numpy(embed_prompt(body.prompt, card.network.prompt_buckets, card.network.prompt_encoding)),
            chunk=noise.to(self._device),
            mask=torch.zeros(card.horizon, device=self._device),
            given=torch.zeros(card.horizon, card.action_dim, device=self._device),
            seed=seed,
            steps=min(card.max_steps, max(1, body.steps or card.steps)),
        )
        if card.pictures:
            row.pictures = self._read_pictures(body)
        if body.prefix is not None:
            self._give_prefix(row, body.prefix.numpy())
        return row

    def _read_pictures(self, body: ActBody) -> Tensor:
        card = self.card
        layouts = {entry.key: entry.layout for entry in card.observation}
        size = card.network.picture_size
        pictures = []
        for key in card.pictures:
            if key not in body.observation:
                raise InvalidRequestError(f"policy {card.policy!r} needs the picture {key!r}")
            picture = body.observation[key].numpy()
            if layouts[key] == "HWC" and picture.ndim == 3:
                picture = picture.transpose(2, 0, 1)
            if picture.shape != (3, size, size) or picture.dtype != np.uint8:
                raise InvalidRequestError(f"the picture {key!r} does not fit policy {card.policy!r}: {picture.dtype} {list(picture.shape)}")
            pictures.append(picture)
        return torch.from_numpy(np.stack(pictures))

    def _give_prefix(self, row: FlowRow, prefix: Actions) -> None:
        card = self.card
        if prefix.ndim != 2 or prefix.shape[1] != card.action_dim or len(prefix) > card.max_prefix:
            raise InvalidRequestError(
                f"a prefix of shape {list(prefix.shape)} cannot be continued: policy {card.policy!r} takes [d, {card.action_dim}] "
                f"with d up to {card.max_prefix}"
            )
        row.prefix_length = len(prefix)
        row.mask[: len(prefix)] = 1
        row.given[: len(prefix)] = torch.from_numpy((prefix.astype(np.float32) - self._action_mean) / self._action_std).to(self._device)

    @torch.inference_mode()
    def begin(self, rows: Sequence[FlowRow]) -> None:
        state = torch.stack([row.state for row in rows]).to(self._device)
        prompt = torch.stack([row.prompt for row in rows]).to(self._device)
        seen = None
        if self.card.pictures:
            seen = self._network.see(torch.stack([row.pictures for row in rows if row.pictures is not None]).to(self._device))
        for row, condition in zip(rows, self._network.condition(state, prompt, seen), strict=True):
            row.condition = condition
            row.pictures = None

    @torch.inference_mode()
    def advance(self, rows: Sequence[FlowRow]) -> None:
        stack = self._stacked(rows)
        time = torch.stack([self._time(row.steps)[row.step] for row in rows])
        chunk = _with_prefix(stack)
        pace = {row.steps for row in rows}
        velocity = self._network.velocity(chunk, time, stack.condition, stack.mask)
        if len(pace) == 1:
            stack.chunk = chunk.add(velocity, alpha=1 / pace.pop())
        else:
            stack.chunk = chunk + velocity / torch.tensor([row.steps for row in rows], device=self._device)[:, None, None]
        for row, moved in zip(rows, stack.chunk, strict=True):
            row.chunk = moved
            row.step += 1

    def finish(self, row: FlowRow) -> Actions:
        with torch.inference_mode():
            chunk = torch.where(row.mask[:, None] > 0, row.given, row.chunk)
            actions: Actions = chunk.cpu().numpy() * self._action_std + self._action_mean
        if self.card.action_low or self.card.action_high:
            low = np.asarray(self.card.action_low, np.float32) if self.card.action_low else None
            high = np.asarray(self.card.action_high, np.float32) if self.card.action_high else None
            actions = np.clip(actions, low, high)
        return np.ascontiguousarray(actions, np.float32)

    def _stacked(self, rows: Sequence[FlowRow]) -> _Stack:
        stack = self._stack
        if stack is not None and len(stack.rows) == len(rows) and all(a is b for a, b in zip(stack.rows, rows, strict=True)):
            return stack
        self._stack = _Stack(
            rows=list(rows),
            chunk=torch.stack([row.chunk for row in rows]),
            condition=torch.stack([row.condition for row in rows]),
            mask=torch.stack([row.mask for row in rows]),
            given=torch.stack([row.given for row in rows]),
            has_prefix=any(row.prefix_length for row in rows),
        )
        return self._stack

    def _time(self, steps: int) -> Tensor:
        """The time embedding of each of so many steps, `[steps, c]`; there are at most `max_steps` of these tables."""
        table = self._times.get(steps)
        if table is None:
            tau = torch.arange(steps, device=self._device) / steps
            table = self._times[steps] = self._network.time(tau)
        return table


def _with_prefix(stack: _Stack) -> Tensor:
    """The chunks with the given actions written into them."""
    if not stack.has_prefix:
        return stack.chunk
    return torch.where(stack.mask[:, :, None] > 0, stack.given, stack.chunk)
