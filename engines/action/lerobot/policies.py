"""lerobot's policies as step policies. Whoever shares a step, a row's actions are those that lerobot's own `predict_action_chunk` makes
from the same observation with the random numbers of the row's seed.

Pictures are uint8 on the wire and floats from 0 to 1 with channels first in lerobot; the checkpoint's processors do the rest.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import EngineError, InvalidRequestError
from ...messages import ActBody
from ..step_policy import Actions
from .checkpoint import Checkpoint, Layout, Wired
from .loading import Loaded, populate_queues

STATE = "observation.state"
ENVIRONMENT = "observation.environment_state"
IMAGES = "observation.images"
PREFIX = "observation."
BATCHED = ("act",)
"""Policies without randomness, whose rows can share a forward pass."""


@dataclass(slots=True, eq=False)
class LerobotRow:
    """`inputs` are what the policy takes, `[n, ...]` each with the n moments of its history. `chunk` `[h, A]`, normalised."""

    inputs: dict[str, Tensor]
    seed: int
    steps: int
    generator: torch.Generator
    step: int = 0
    prefix_length: int = 0
    chunk: Tensor = field(default_factory=lambda: torch.empty(0))
    condition: Tensor = field(default_factory=lambda: torch.empty(0))


class LerobotModel:
    """Each row by itself, in one step: what any policy with `predict_action_chunk` can do."""

    def __init__(self, loaded: Loaded, checkpoint: Checkpoint, wired: Sequence[Wired], layout: Layout, steps: int) -> None:
        self._loaded = loaded
        self._policy = loaded.policy
        self._config = checkpoint.config
        self._action_dim = checkpoint.action_dim
        self._wired = wired
        self._layout = layout
        self._steps = steps

    def prepare(self, body: ActBody, seed: int) -> LerobotRow:
        """See `StepPolicy`. Raises `InvalidRequestError` for an observation that does not fit."""
        if body.prefix is not None:
            raise InvalidRequestError(f"a {self._config.type!r} policy of lerobot cannot continue given actions")
        moments = max(1, self._config.n_obs_steps)
        batch: dict[str, Any] = {wired.key: self._read(wired, body, moments) for wired in self._wired}
        batch["task"] = [body.prompt] * moments
        with torch.inference_mode():
            inputs = {
                key: value for key, value in self._loaded.preprocess(batch).items() if key.startswith(PREFIX) and isinstance(value, Tensor)
            }
        return self._row(inputs, body, seed)

    def _row(self, inputs: dict[str, Tensor], body: ActBody, seed: int) -> LerobotRow:
        return LerobotRow(inputs=inputs, seed=seed, steps=1, generator=torch.Generator().manual_seed(seed))

    def _read(self, wired: Wired, body: ActBody, moments: int) -> Tensor:
        """An array of the observation, `[moments, ...]` as lerobot knows it."""
        spec = wired.spec
        if spec.key not in body.observation:
            raise InvalidRequestError(f"the observation has no {spec.key!r}")
        array = body.observation[spec.key].numpy()
        if array.shape != spec.shape or array.dtype != np.dtype(spec.dtype):
            raise InvalidRequestError(
                f"{spec.key!r} is {array.dtype} {list(array.shape)}; the policy takes {spec.dtype} {list(spec.shape)}"
            )
        if len(array.shape) == len(wired.shape):
            array = np.broadcast_to(array, (moments, *array.shape))
        if not wired.picture:
            return torch.from_numpy(np.array(array, np.float32))
        if self._layout == "HWC":
            array = np.moveaxis(array, -1, -3)
        return torch.from_numpy(np.ascontiguousarray(array)).float() / 255

    def begin(self, rows: Sequence[LerobotRow]) -> None:
        """Nothing that could be done together."""

    def advance(self, rows: Sequence[LerobotRow]) -> None:
        for row, chunk in zip(rows, [self._alone(row) for row in rows], strict=True):
            row.chunk = chunk
            row.step += 1

    def _alone(self, row: LerobotRow) -> Tensor:
        device = self._loaded.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.inference_mode():
            torch.manual_seed(row.seed)
            self._policy.reset()
            queues = vars(self._policy).get("_queues") or {}
            for moment in range(max(1, self._config.n_obs_steps)):
                batch = {key: value[moment : moment + 1] for key, value in row.inputs.items()}
                if IMAGES in queues:
                    batch[IMAGES] = torch.stack([batch[key] for key in self._policy.config.image_features], dim=-4)
                populate_queues(queues, batch)
            chunk: Tensor = self._policy.predict_action_chunk(batch)
        if chunk.ndim != 3 or chunk.shape[0] != 1 or chunk.shape[2] != self._action_dim:
            raise EngineError(
                f"a {self._config.type!r} policy of lerobot made actions of shape {list(chunk.shape)}, not [1, h, {self._action_dim}]"
            )
        return chunk[0]

    def finish(self, row: LerobotRow) -> Actions:
        with torch.inference_mode():
            actions = self._loaded.postprocess(row.chunk)
        return np.ascontiguousarray(actions.float().cpu().numpy(), np.float32)


class BatchedModel(LerobotModel):
    """Rows side by side in one forward pass: policies that make their chunk at once and without randomness (ACT)."""

    def advance(self, rows: Sequence[LerobotRow]) -> None:
        with torch.inference_mode():
            chunks = self._policy.predict_action_chunk(_stacked([{key: value[-1] for key, value in row.inputs.items()} for row in rows]))
        for row, chunk in zip(rows, chunks, strict=True):
            row.chunk = chunk
            row.step += 1


class DiffusionModel(LerobotModel):
    """Diffusion Policy: a step is one denoising step of its scheduler, shared by rows wherever they are in theirs."""

    def __init__(self, loaded: Loaded, checkpoint: Checkpoint, wired: Sequence[Wired], layout: Layout, steps: int) -> None:
        super().__init__(loaded, checkpoint, wired, layout, steps)
        self._model = loaded.policy.diffusion
        self._schedulers: dict[int, Any] = {}
        self._dtype = next(self._model.parameters()).dtype

    def _row(self, inputs: dict[str, Tensor], body: ActBody, seed: int) -> LerobotRow:
        row = super()._row(inputs, body, seed)
        row.steps = min(int(self._policy.config.num_train_timesteps), max(1, body.steps or self._steps))
        return row

    def begin(self, rows: Sequence[LerobotRow]) -> None:
        batch = _stacked([row.inputs for row in rows])
        if self._policy.config.image_features:
            batch[IMAGES] = torch.stack([batch[key] for key in self._policy.config.image_features], dim=-4)
        with torch.inference_mode():
            conditions = self._model._prepare_global_conditioning(batch)
            for row, condition in zip(rows, conditions, strict=True):
                row.condition = condition
                shape = (1, self._policy.config.horizon, self._action_dim)
                row.chunk = torch.randn(shape, generator=row.generator, dtype=self._dtype)[0].to(self._loaded.device)
                row.inputs = {}

    def advance(self, rows: Sequence[LerobotRow]) -> None:
        with torch.inference_mode():
            times = [self._scheduler(row.steps).timesteps[row.step] for row in rows]
            predicted = self._model.unet(
                torch.stack([row.chunk for row in rows]),
                torch.stack(times).to(self._loaded.device, torch.long),
                global_cond=torch.stack([row.condition for row in rows]),
            )
            for row, time, output in zip(rows, times, predicted, strict=True):
                moved = self._scheduler(row.steps).step(output[None], time, row.chunk[None], generator=row.generator)
                row.chunk = moved.prev_sample[0]
                row.step += 1

    def finish(self, row: LerobotRow) -> Actions:
        """The actions from the newest observation on, as many as are meant to be executed."""
        config = self._policy.config
        start = config.n_obs_steps - 1
        row.chunk = row.chunk[start : start + config.n_action_steps]
        return super().finish(row)

    def _scheduler(self, steps: int) -> Any:
        """The scheduler set to so many steps; there are at most `num_train_timesteps` of them."""
        scheduler = self._schedulers.get(steps)
        if scheduler is None:
            scheduler = self._schedulers[steps] = copy.deepcopy(self._model.noise_scheduler)
            scheduler.set_timesteps(steps)
        return scheduler


def _stacked(inputs: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {key: torch.stack([each[key] for each in inputs]) for key in inputs[0]}
