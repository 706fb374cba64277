"""Instructions for training: a pool of encoded sentences a task, drawn anew now and then."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...engines.action.card import NetworkShape
from ...engines.action.prompts import embed_prompt
from ..sim.instructions import Language

POOL = 256
"""Sentences a task."""
LASTS = 250
"""Training steps until the pool is drawn anew."""


class PromptPool:
    """See the module's docstring. What it holds depends on seed and step alone, so that a resumed run goes on alike."""

    def __init__(self, language: Language, tasks: tuple[str, ...], shape: NetworkShape, seed: int) -> None:
        self._language, self._tasks, self._shape, self._seed = language, tasks, shape, seed
        self._drawn = -1
        self._pool = torch.empty(0)

    def draw(self, tasks: Tensor, step: int, generator: torch.Generator) -> Tensor:
        """`[B, buckets]` for `[B]` task numbers."""
        if step // LASTS != self._drawn:
            self._drawn = step // LASTS
            random = np.random.default_rng((self._seed, 2, self._drawn))
            shape = self._shape
            rows = [
                embed_prompt(self._language.say(task, random), shape.prompt_buckets, shape.prompt_encoding)
                for task in self._tasks
                for _ in range(POOL)
            ]
            self._pool = torch.from_numpy(np.stack(rows)).view(len(self._tasks), POOL, -1)
        which = torch.randint(0, POOL, tasks.shape, generator=generator)
        return self._pool[tasks, which]
