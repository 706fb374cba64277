"""The training loop: resumable at any step, the same again from the same seed."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...engines.action.network import FlowNetwork
from .dataset import Windows
from .objective import draw_prefix, flow_loss
from .prompts import PromptPool
from .recipes import Recipe
from .scaling import Scaling

WARM_UP = 200
EMA = 0.999
CLIP = 10.0
"""Deviations that a state is clipped to; the card's `state_clip`."""


@dataclass(slots=True)
class Batches:
    """The windows, normalised, as tensors; drawn so that every task is as likely as another."""

    states: Tensor
    pictures: Tensor | None
    tasks: Tensor
    start: Tensor
    prefix: Tensor
    chunks: Tensor
    by_task: list[Tensor]
    """The windows of each task."""

    @classmethod
    def of(cls, windows: Windows, scaling: Scaling, hidden: tuple[int, ...], count: int) -> Batches:
        states = torch.from_numpy(scaling.states(windows.states, CLIP))
        states[:, list(hidden)] = 0
        tasks = torch.from_numpy(windows.tasks[windows.start])
        return cls(
            states=states,
            pictures=None if windows.pictures is None else torch.from_numpy(windows.pictures),
            tasks=tasks,
            start=torch.from_numpy(windows.start),
            prefix=torch.from_numpy(windows.prefix),
            chunks=torch.from_numpy(scaling.actions(windows.chunks)),
            by_task=[torch.nonzero(tasks == task)[:, 0] for task in range(count)],
        )

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Numbers of windows."""
        tasks = torch.randint(0, len(self.by_task), (count,), generator=generator)
        where = torch.rand(count, generator=generator)
        return torch.stack(
            [self.by_task[task][int(at * len(self.by_task[task]))] for task, at in zip(tasks.tolist(), where.tolist(), strict=True)]
        )


class Trainer:
    """A network in training, with its moving average. `step` steps are done."""

    def __init__(self, recipe: Recipe, scaling: Scaling, state_size: int, seed: int) -> None:
        self.recipe, self.scaling, self.seed = recipe, scaling, seed
        torch.manual_seed(seed)  # fresh weights
        self.network = FlowNetwork(state_size, recipe.horizon, len(scaling.action_mean), recipe.network)
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        self._optimizer = torch.optim.AdamW(self.network.parameters(), lr=recipe.rate, weight_decay=1e-4, betas=(0.9, 0.99), fused=True)
        self._random = torch.Generator().manual_seed(seed)
        self._prompts = PromptPool(recipe.language(), recipe.tasks, recipe.network, seed)
        self.half = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        """Multiply in bfloat16 (weights, averages and losses stay float32): by a third faster on a CPU that can, much slower on others."""
        self.step = 0
        self.seconds = 0.0
        """CPU seconds spent in steps."""
        self.losses: list[tuple[int, float]] = []

    # ---- steps ------------------------------------------------------------------------------------------------------

    def run(self, batches: Batches, until: int, planned: int, report: Callable[[Trainer], None], every: int = 100) -> None:
        """Train up to step `until` of `planned` (which the learning rate's cosine ends at); `report` is called every so many steps."""
        total = torch.zeros(())
        count = 0
        began = time.process_time()
        while self.step < until:
            total += self._one(batches, planned)
            count += 1
            if self.step % every == 0 or self.step == until:
                self.losses.append((self.step, float(total) / count))
                total.zero_()
                count = 0
                self.seconds += time.process_time() - began
                began = time.process_time()
                report(self)

    def _one(self, batches: Batches, planned: int) -> Tensor:
        recipe, random = self.recipe, self._random
        pace = min(1.0, (self.step + 1) / WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * min(1.0, self.step / planned)))
        for group in self._optimizer.param_groups:
            group["lr"] = recipe.rate * max(pace, 0.01)
        which = batches.draw(recipe.batch, random)
        at = batches.start[which]
        state = batches.states[at]
        state = state + recipe.state_noise * torch.randn(state.shape, generator=random)
        state[:, list(recipe.hidden)] = 0
        prompt = self._prompts.draw(batches.tasks[which], self.step, random)
        chunks = batches.chunks[which].repeat(recipe.repeat, 1, 1)
        prefix = draw_prefix(batches.prefix[which].repeat(recipe.repeat), recipe.max_prefix, random)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            condition = self.network.condition(state, prompt)
            loss = flow_loss(self.network, condition, chunks, prefix, random)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self._optimizer.step()
        self.step += 1
        keep = min(EMA, self.step / (self.step + 9))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 - keep)
        return loss.detach()

    def served(self) -> FlowNetwork:
        """The moving average, apart from training, blind to what it must not see."""
        network = copy.deepcopy(self.average)
        with torch.no_grad():
            network.observation_in.weight[:, list(self.recipe.hidden)] = 0
        return network

    # ---- checkpoints ------------------------------------------------------------------------------------------------

    def save(self, file: Path) -> None:
        """Write a checkpoint; the file changes whole or not at all."""
        unfinished = file.with_suffix(".part")
        torch.save(self._state(), unfinished)
        os.replace(unfinished, file)

    def _state(self) -> dict[str, Any]:
        scaling = self.scaling
        return {
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "random": self._random.get_state(),
            "step": self.step,
            "seconds": self.seconds,
            "losses": self.losses,
            "scaling": {
                name: torch.from_numpy(getattr(scaling, name)) for name in ("state_mean", "state_std", "action_mean", "action_std")
            },
            "seed": self.seed,
        }

    @classmethod
    def load(cls, file: Path, recipe: Recipe) -> Trainer:
        """Go on from a checkpoint. Raises `RuntimeError` when it is another recipe's."""
        state = torch.load(file, weights_only=True)
        scaling = Scaling(**{name: value.numpy() for name, value in state["scaling"].items()})
        trainer = cls(recipe, scaling, len(scaling.state_mean), state["seed"])
        trainer.network.load_state_dict(state["network"])
        trainer.average.load_state_dict(state["average"])
        trainer._optimizer.load_state_dict(state["optimizer"])
        trainer._random.set_state(state["random"])
        trainer.step, trainer.seconds, trainer.losses = state["step"], state["seconds"], state["losses"]
        return trainer
