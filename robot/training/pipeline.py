"""From nothing to weights, for one recipe, in a folder: data, checkpoints and a log. A run that was interrupted goes on where it stopped.

data/round-0-part-03.npz    episodes
checkpoint.pt               the training, every few hundred steps
log.jsonl                   what happened
policy/                     card and weights, as served
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...engines.action.card import load_card
from ..sim.simulation import Picture, Simulation
from .collecting import collect
from .dataset import load_windows, save_shard
from .driving import Driver, Policy
from .errors import CheckpointError
from .evaluation import evaluate, trials
from .export import export, make_card
from .recipes import Recipe
from .report import write
from .scaling import Scaling
from .trainer import Trainer, spread_of

SAVE_EVERY = 250
PART = 90
"""Episodes in a file, about: what an interrupted collection loses at most."""
SEEDS = 1_000_000
"""Seeds of a round; evaluation's lie beyond all of them."""


class Run:
    """See the module's docstring. `say` gets a line for a person now and then."""

    def __init__(self, folder: Path, recipe: Recipe, seed: int, say: Callable[[str], None]) -> None:
        self.folder, self.recipe, self.seed, self._say = folder, recipe, seed, say
        self.trainer: Trainer | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.pt"

    @property
    def policy(self) -> Path:
        return self.folder / "policy"

    def train(self, steps: int | None = None) -> Trainer:
        """Collect and train until `steps` (default: the recipe's) are done."""
        recipe = self.recipe
        planned = steps or recipe.steps
        if self.checkpoint.exists():
            self.trainer = Trainer.load(self.checkpoint, recipe)
            if self.trainer.seed != self.seed:
                raise CheckpointError(f"the run in {self.folder} was begun with seed {self.trainer.seed}, not {self.seed}")
            self.log("resumed", step=self.trainer.step)
        rounds = [one for one in recipe.rounds if one.at < planned]
        for number, one in enumerate(rounds):
            until = min(rounds[number + 1].at, planned) if number + 1 < len(rounds) else planned
            if self.trainer is not None and self.trainer.step >= until:
                continue
            self.gather(number, one.episodes)
            self._fit(number, until, planned)
        assert self.trainer is not None
        self._export(self.trainer)
        return self.trainer

    # ---- data -------------------------------------------------------------------------------------------------------

    def gather(self, number: int, episodes: int) -> None:
        """Collect what is still missing of a round."""
        recipe = self.recipe
        worlds: dict[str, list[Simulation]] = {}
        try:
            for part, wanted in enumerate(self._parts(number, episodes)):
                file = self._shard(number, part)
                if file.exists():
                    continue
                began = time.process_time()
                key = "" if recipe.shared_world else wanted[0][0]
                if key not in worlds:
                    _close(worlds)
                    worlds[key] = [recipe.simulate() for _ in range(recipe.collecting.together)]
                done, failed = collect(
                    worlds[key],
                    wanted,
                    recipe.collecting,
                    recipe.tasks,
                    pictures=self._pictures if recipe.cameras else None,
                    driver=self._driver() if number else None,
                    prompts=recipe.language().say,
                )
                save_shard(file, done)
                spent = time.process_time() - began
                self.log(
                    "collected",
                    round=number,
                    part=part,
                    episodes=len(done),
                    failed=failed,
                    steps=sum(map(len, done)),
                    cpu_s=round(spent, 1),
                )
        finally:
            _close(worlds)

    def _parts(self, number: int, episodes: int) -> list[list[tuple[str, int]]]:
        """The wanted episodes in parts. Where worlds are not shared a part is of one task."""
        recipe = self.recipe
        tasks = recipe.tasks
        first = (self.seed * 100 + number) * SEEDS
        if recipe.shared_world:
            wanted = [(tasks[index % len(tasks)], first + index) for index in range(episodes * len(tasks))]
            return [wanted[at : at + PART] for at in range(0, len(wanted), PART)]
        return [
            [(task, first + index) for index in range(at, min(at + PART, episodes))] for task in tasks for at in range(0, episodes, PART)
        ]

    def _shard(self, number: int, part: int) -> Path:
        return self.folder / "data" / f"round-{number}-part-{part:03d}.npz"

    def _pictures(self, simulation: Simulation) -> Picture:
        """`[cameras, 3, size, size]`."""
        drawn = [simulation.render(camera, self.recipe.picture_size) for camera in self.recipe.cameras.values()]
        return np.stack(drawn).transpose(0, 3, 1, 2)

    def _driver(self) -> Driver:
        trainer = self.trainer
        assert trainer is not None
        return Driver(Policy.of(self.recipe, make_card(self.recipe, trainer.scaling, self._about().rate), trainer.served()), self.recipe)

    # ---- training ---------------------------------------------------------------------------------------------------

    def _fit(self, number: int, until: int, planned: int) -> None:
        recipe = self.recipe
        files = [file for k in range(number + 1) for file in sorted((self.folder / "data").glob(f"round-{k}-part-*.npz"))]
        windows = load_windows(files, recipe.horizon, recipe.max_prefix)
        facts = windows.states
        if recipe.sees:
            windows = replace(windows, states=facts[:, list(self._about().robot)])
        if self.trainer is None:
            self.trainer = Trainer(recipe, Scaling.of(windows), spread_of(facts), self.seed)
        trainer = self.trainer
        self.log("fitting", round=number, windows=len(windows), from_step=trainer.step, until=until)
        batches = trainer.batches(windows, facts)
        trainer.run(batches, until, planned, self._note)
        trainer.save(self.checkpoint)

    def _note(self, trainer: Trainer) -> None:
        step, loss = trainer.losses[-1]
        self.log("trained", step=step, loss=round(loss, 5), cpu_s=round(trainer.seconds, 1))
        if step % SAVE_EVERY < 100:
            trainer.save(self.checkpoint)

    def _export(self, trainer: Trainer) -> None:
        export(self.policy, self.recipe, trainer.scaling, self._about().rate, trainer.served(), trainer.step)

    def _about(self) -> Simulation:
        """A simulation to be asked about itself."""
        simulation = self.recipe.simulate()
        simulation.close()
        return simulation

    def log(self, what: str, **more: Any) -> None:
        """A line for the log and one for the person."""
        with (self.folder / "log.jsonl").open("a") as out:
            out.write(json.dumps({"time": round(time.time(), 1), "what": what, **more}) + "\n")
        self._say(" ".join([what, *(f"{name}={value}" for name, value in more.items())]))


def _close(worlds: dict[str, list[Simulation]]) -> None:
    while worlds:
        for simulation in worlds.popitem()[1]:
            simulation.close()


def measure(
    folder: Path,
    weights: Path,
    recipe: Recipe,
    episodes: int,
    delays: Sequence[int],
    losses: Sequence[tuple[int, float]],
    say: Callable[[str], None],
) -> str:
    """Evaluate a policy's folder in closed loop, write the report into `folder`, return its table. Raises `WeightsError`, `EngineError`."""
    card = load_card(weights)
    policy = Policy.load(recipe, weights, card)
    outcomes = []
    for trial in trials(recipe, delays):
        outcomes.append(evaluate(recipe, policy, trial, episodes))
        say(f"{trial.name}: {outcomes[-1].succeeded}/{outcomes[-1].episodes}")
    about = {"policy": card.policy, "sha256": card.sha256, "steps": losses[-1][0] if losses else card.extras.get("training_steps", "?")}
    return write(folder, outcomes, losses, about)
