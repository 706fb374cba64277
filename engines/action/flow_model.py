"""A trained flow network with its card, as a step policy: normalised in, robot's units out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import is_
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from ..errors import InvalidRequestError, WeightsError
from ..messages import ActBody
from .card import Card, checked_weights
from .network import FlowNetwork, move
from .prompts import embed_prompt
from .step_policy import Actions

MAX_TOLD = 256
"""Instructions whose encoding is kept; policy: the one that was not asked for longest goes."""


@dataclass(slots=True, eq=False)
class FlowRow:
    """One robot's chunk in the making: `state` `[S]` in the robot's units, `told` the encoded instruction, `chunk` `[H A]` (normalised,
    flattened), `mask` `[H]` and `given` `[H A]` of the prefix, `pictures` `[eyes, 3, s, s]`. `steering`: how the network is steered at each
    step, known from the beginning on."""

    state: Tensor
    told: Tensor
    chunk: Tensor
    mask: Tensor
    given: Tensor
    seed: int
    steps: int
    prefix_length: int = 0
    step: int = 0
    pictures: Tensor | None = None
    steering: tuple[Tensor, ...] = ()


@dataclass(slots=True)
class _Stack:
    """The rows of the last step side by side, so that a step with the same rows moves nothing. Their chunks are here only, until the stack
    is dissolved. `held`: which numbers of the chunks are given; None: none."""

    rows: list[FlowRow]
    chunk: Tensor
    mask: Tensor
    given: Tensor
    held: Tensor | None

    def dissolve(self) -> None:
        for row, chunk in zip(self.rows, self.chunk.unbind(), strict=True):
            row.chunk = chunk


class FlowModel:
    """See the module's docstring and `step_policy.StepPolicy`. Used on one thread only."""

    def __init__(self, card: Card, network: FlowNetwork, device: str = "cpu") -> None:
        self.card = card
        self._device = torch.device(device)
        self._network = network.to(self._device).float().eval().requires_grad_(False)
        self._state_mean = torch.tensor(card.state_mean, device=self._device)
        self._state_std = torch.tensor(card.state_std, device=self._device)
        self._action_mean = np.asarray(card.action_mean, np.float32)
        self._action_std = np.asarray(card.action_std, np.float32)
        self._low = np.asarray(card.action_low or -np.inf, np.float32)
        self._high = np.asarray(card.action_high or np.inf, np.float32)
        self._layers = self._network.layers()
        self._no_mask = torch.zeros(card.horizon, device=self._device)
        self._nothing_given = torch.zeros(card.horizon * card.action_dim, device=self._device)
        self._generator = torch.Generator()
        self._times: dict[int, Tensor] = {}
        self._told = lru_cache(maxsize=MAX_TOLD)(self._instructed)
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
            state = np.concatenate([body.observation[key].numpy().reshape(-1) for key in card.state], dtype=np.float32)
        except (KeyError, ValueError) as error:
            raise InvalidRequestError(f"the observation does not fit policy {card.policy!r}: {error}") from None
        if len(state) != card.state_size:
            raise InvalidRequestError(f"the observation's state has {len(state)} numbers; policy {card.policy!r} takes {card.state_size}")
        noise = torch.randn(card.horizon * card.action_dim, generator=self._generator.manual_seed(seed))
        row = FlowRow(
            state=torch.from_numpy(state),
            told=self._told(body.prompt),
            chunk=noise.to(self._device),
            mask=self._no_mask,
            given=self._nothing_given,
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
        row.mask = (torch.arange(card.horizon) < len(prefix)).float().to(self._device)
        given = ((prefix.astype(np.float32) - self._action_mean) / self._action_std).reshape(-1)
        row.given = torch.nn.functional.pad(torch.from_numpy(given), (0, self._nothing_given.numel() - given.size)).to(self._device)

    @torch.inference_mode()
    def begin(self, rows: Sequence[FlowRow]) -> None:
        state = torch.stack([row.state for row in rows]).to(self._device)
        state = ((state - self._state_mean) / self._state_std).clamp_(-self.card.state_clip, self.card.state_clip)
        told = torch.stack([row.told for row in rows])
        seen = None
        if self.card.pictures:
            seen = self._network.see(torch.stack([row.pictures for row in rows if row.pictures is not None]).to(self._device))
        condition = self._network.observe(state, told, seen)
        times = torch.cat([self._time(row.steps) for row in rows])
        counts = [row.steps for row in rows]
        each = condition.repeat_interleave(torch.tensor(counts, device=self._device), 0, output_size=sum(counts))
        steering = iter(self._network.steering(each, times).unbind())
        for row in rows:
            row.steering = tuple(islice(steering, row.steps))
            row.pictures = None

    @torch.inference_mode()
    def advance(self, rows: Sequence[FlowRow]) -> None:
        stack = self._stacked(rows)
        chunk = stack.chunk if stack.held is None else torch.where(stack.held, stack.given, stack.chunk)
        velocity = move(self._layers, chunk, stack.mask, torch.stack([row.steering[row.step] for row in rows]))
        pace = {row.steps for row in rows}
        if len(pace) == 1:
            stack.chunk = chunk.add(velocity, alpha=1 / pace.pop())
        else:
            stack.chunk = chunk + velocity / torch.tensor([row.steps for row in rows], device=self._device)[:, None]
        for row in rows:
            row.step += 1

    @torch.inference_mode()
    def finish(self, row: FlowRow) -> Actions:
        if self._stack is not None and row in self._stack.rows:
            self._dissolve()
        actions = row.chunk.cpu().numpy().reshape(self.card.horizon, -1)
        if row.prefix_length:
            held = row.prefix_length
            actions = np.concatenate((row.given.cpu().numpy().reshape(actions.shape)[:held], actions[held:]))
        actions = actions * self._action_std + self._action_mean
        bounded: Actions = np.minimum(np.maximum(actions, self._low), self._high)
        return bounded

    def _stacked(self, rows: Sequence[FlowRow]) -> _Stack:
        stack = self._stack
        if stack is not None and len(stack.rows) == len(rows) and all(map(is_, stack.rows, rows)):
            return stack
        self._dissolve()
        mask = torch.stack([row.mask for row in rows])
        prefixed = any(row.prefix_length for row in rows)
        self._stack = _Stack(
            rows=list(rows),
            chunk=torch.stack([row.chunk for row in rows]),
            mask=mask,
            given=torch.stack([row.given for row in rows]),
            held=mask.repeat_interleave(self.card.action_dim, 1) > 0 if prefixed else None,
        )
        return self._stack

    def _dissolve(self) -> None:
        """Give each row of the stack its chunk back."""
        if self._stack is not None:
            self._stack.dissolve()
            self._stack = None

    @torch.inference_mode()
    def _instructed(self, prompt: str) -> Tensor:
        shape = self.card.network
        embedded = torch.from_numpy(embed_prompt(prompt, shape.prompt_buckets, shape.prompt_encoding)).to(self._device)
        return self._network.instruct(embedded[None])[0]

    def _time(self, steps: int) -> Tensor:
        """The time embedding of each of so many steps, `[steps, c]`; there are at most `max_steps` of these tables."""
        table = self._times.get(steps)
        if table is None:
            tau = torch.arange(steps, device=self._device) / steps
            table = self._times[steps] = self._network.time(tau)
        return table
