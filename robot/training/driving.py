"""The policy in training, driving simulations: through the code that serves it, so that it meets what it will be served."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...engines.action.card import Card
from ...engines.action.flow_model import FlowModel
from ...engines.action.network import FlowNetwork
from ...engines.messages import ActBody, Array
from ..sim.simulation import Action, Simulation, observation_of
from .collecting import Run
from .dataset import Floats
from .recipes import Recipe

ROWS = 64
"""Chunks made at once at most."""


class Policy:
    """Chunks for many simulations at once."""

    def __init__(self, recipe: Recipe, model: FlowModel) -> None:
        self._recipe = recipe
        self._model = model

    @classmethod
    def of(cls, recipe: Recipe, card: Card, network: FlowNetwork) -> Policy:
        """A network as it stands."""
        return cls(recipe, FlowModel(card, network))

    @classmethod
    def load(cls, recipe: Recipe, folder: Path, card: Card) -> Policy:
        """A policy's folder. Raises `WeightsError`."""
        return cls(recipe, FlowModel.load(folder, card))

    def chunks(self, asked: Sequence[tuple[Simulation, str, int, Sequence[Action]]]) -> list[Floats]:
        """`[H, A]` for each (simulation as it stands, instruction, seed of the noise, prefix)."""
        made: list[Floats] = []
        for at in range(0, len(asked), ROWS):
            rows = [self._model.prepare(self._body(*one[:2], one[3]), one[2]) for one in asked[at : at + ROWS]]
            self._model.begin(rows)
            for _ in range(rows[0].steps):
                self._model.advance(rows)
            made += [self._model.finish(row) for row in rows]
        return made

    def _body(self, simulation: Simulation, prompt: str, prefix: Sequence[Action]) -> ActBody:
        observation = observation_of(simulation, self._recipe.cameras, self._recipe.picture_size)
        return ActBody(
            observation={key: Array.of(value) for key, value in observation.items()},
            prompt=prompt,
            prefix=Array.of(np.stack(prefix).astype(np.float32)) if prefix else None,
        )


class Driver:
    """Drives the runs of `collecting.collect`, each with a delay of its own, continuing its own prefixes as a served robot does."""

    def __init__(self, policy: Policy, recipe: Recipe) -> None:
        self._policy = policy
        self._recipe = recipe

    def __call__(self, runs: Sequence[Run]) -> list[Action]:
        recipe = self._recipe
        asking = [run for run in runs if len(run.queue) <= self._delay(run)]
        asked = []
        for run in asking:
            prefix = run.queue[: self._delay(run)] if recipe.max_prefix else []
            asked.append((run.simulation, run.prompt, int(run.random.integers(2**31)), prefix))
        for run, (*_, prefix), chunk in zip(asking, asked, self._policy.chunks(asked), strict=True):
            run.queue = list(chunk[: len(prefix) + recipe.execute])
        return [run.queue.pop(0) for run in runs]

    def _delay(self, run: Run) -> int:
        """0 half of the time, else up to three quarters of the longest prefix."""
        if run.delay is None:
            run.delay = int(run.random.integers(0, 2)) * int(run.random.integers(0, self._recipe.max_prefix * 3 // 4 + 1))
        return run.delay
