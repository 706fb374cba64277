"""The training loop: resumable at any step, the same again from the same seed."""

from __future__ import annotations

import copy
import math
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...engines.action.network import FlowNetwork
from .dataset import Floats, Windows
from .errors import CheckpointError
from .objective import draw_prefix, flow_loss
from .prompts import PromptPool
from .recipes import Recipe
from .scaling import Scaling

WARM_UP = 200
EMA = 0.999
TELLING = 0.3
"""Weight of the loss of telling facts from pictures."""
CLIP = 10.0
"""Deviations that a state is clipped to; the card's `state_clip`."""


@dataclass(slots=True)
class Batches:
    """The windows, normalised, as tensors; drawn so that tasks are as likely as the recipe says."""

    states: Tensor
    facts: Tensor
    """What is true of the world, normalised; a network that sees learns to tell it from pictures."""
    pictures: Tensor | None
    tasks: Tensor
    start: Tensor
    prefix: Tensor
    chunks: Tensor
    by_task: list[Tensor]
    """The windows of each task."""
    often: Tensor
    """How likely each task is."""

    @classmethod
    def of(cls, windows: Windows, facts: Tensor, scaling: Scaling, recipe: Recipe) -> Batches:
        states = torch.from_numpy(scaling.states(windows.states, CLIP))
        states[:, list(recipe.hidden)] = 0
        tasks = torch.from_numpy(windows.tasks[windows.start])
        return cls(
            states=states,
            facts=facts,
            pictures=None if windows.pictures is None else torch.from_numpy(windows.pictures),
            tasks=tasks,
            start=torch.from_numpy(windows.start),
            prefix=torch.from_numpy(windows.prefix),
            chunks=torch.from_numpy(scaling.actions(windows.chunks)),
            by_task=[torch.nonzero(tasks == task)[:, 0] for task in range(len(recipe.tasks))],
            often=torch.tensor(recipe.often or (1.0,) * len(recipe.tasks)),
        )

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Numbers of windows."""
        tasks = torch.multinomial(self.often, count, replacement=True, generator=generator)
        where = torch.rand(count, generator=generator)
        return torch.stack(
            [self.by_task[task][int(at * len(self.by_task[task]))] for task, at in zip(tasks.tolist(), where.tolist(), strict=True)]
        )


def spread_of(facts: Floats) -> tuple[Tensor, Tensor]:
    """Mean and deviation of `[N, F]`; what never varies counts as if it did."""
    found = torch.from_numpy(facts)
    spread = found.std(0)
    return found.mean(0), torch.where(spread < 1e-4, 1.0, spread)


class Trainer:
    """A network in training, with its moving average. `step` steps are done."""

    def __init__(self, recipe: Recipe, scaling: Scaling, facts: tuple[Tensor, Tensor], seed: int) -> None:
        """`facts`: mean and deviation of what is true of the world."""
        self.recipe, self.scaling, self.seed = recipe, scaling, seed
        torch.manual_seed(seed)  # fresh weights
        self._facts = facts
        self.network = FlowNetwork(len(scaling.state_mean), recipe.horizon, len(scaling.action_mean), recipe.network)
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        shape = recipe.network
        self.teller = nn.Linear(max(1, 2 * shape.keypoints * shape.eyes), len(facts[0]))
        """Tells the facts from what is seen; needed in training only."""
        learning = [*self.network.parameters(), *(self.teller.parameters() if recipe.sees else ())]
        self._optimizer = torch.optim.AdamW(learning, lr=recipe.rate, weight_decay=1e-4, betas=(0.9, 0.99), fused=True)
        self._random = torch.Generator().manual_seed(seed)
        self._prompts = PromptPool(recipe.language(), recipe.tasks, recipe.network, seed)
        self.half = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        """Multiply in bfloat16 (weights, averages and losses stay float32): by a third faster on a CPU that can, much slower on others."""
        self.step = 0
        self.seconds = 0.0
        """CPU seconds spent in steps."""
        self.losses: list[tuple[int, float]] = []

    # ---- steps ------------------------------------------------------------------------------------------------------

    def batches(self, windows: Windows, facts: Floats) -> Batches:
        """The windows as this trainer takes them; `facts` `[N, F]` belong to their steps."""
        mean, spread = self._facts
        scaled = ((torch.from_numpy(facts) - mean) / spread).clamp(-CLIP, CLIP)
        return Batches.of(windows, scaled, self.scaling, self.recipe)

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
            seen = self.network.see(self._disturbed(batches.pictures[at])) if batches.pictures is not None else None
            condition = self.network.condition(state, prompt, seen)
            loss = flow_loss(self.network, condition, chunks, prefix, random)
            if seen is not None:
                loss = loss + TELLING * functional.mse_loss(self.teller(seen).float(), batches.facts[at])
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self._optimizer.step()
        self.step += 1
        keep = min(EMA, self.step / (self.step + 9))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 - keep)
        return loss.detach()

    def _disturbed(self, pictures: Tensor) -> Tensor:
        """Pictures `[B, eyes, 3, s, s]` in a little more or less light, of a little other colour. They stay where they are: what is to be
        learned from them is places."""
        light = 1 + 0.1 * torch.randn(len(pictures), 1, 1, 1, 1, generator=self._random)
        colour = 6 * torch.randn(len(pictures), 1, 3, 1, 1, generator=self._random)
        return torch.addcmul(colour, pictures.float(), light).clamp_(0, 255)

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
            "teller": self.teller.state_dict(),
            "facts": self._facts,
            "optimizer": self._optimizer.state_dict(),
            "random": self._random.get_state(),
            "step": self.step,
            "seconds": self.seconds,
            "losses": self.losses,
            "scaling": {each.name: torch.from_numpy(getattr(scaling, each.name)) for each in fields(scaling)},
            "seed": self.seed,
            "recipe": self.recipe.name,
        }

    @classmethod
    def load(cls, file: Path, recipe: Recipe) -> Trainer:
        """Go on from a checkpoint. Raises `CheckpointError` when it is another recipe's or no checkpoint."""
        try:
            state = torch.load(file, weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise CheckpointError(f"{file} is no checkpoint: it cannot be read ({type(error).__name__})") from error
        if state["recipe"] != recipe.name:
            raise CheckpointError(f"{file} is of recipe {state['recipe']!r}, not {recipe.name!r}; --out names another folder")
        scaling = Scaling(**{name: value.numpy() for name, value in state["scaling"].items()})
        trainer = cls(recipe, scaling, tuple(state["facts"]), state["seed"])
        try:
            trainer.teller.load_state_dict(state["teller"])
            trainer.network.load_state_dict(state["network"])
            trainer.average.load_state_dict(state["average"])
        except RuntimeError as error:
            raise CheckpointError(f"{file} was made with another network than recipe {recipe.name!r} has now: {error}") from error
        trainer._optimizer.load_state_dict(state["optimizer"])
        trainer._random.set_state(state["random"])
        trainer.step, trainer.seconds, trainer.losses = state["step"], state["seconds"], state["losses"]
        return trainer
