"""A policy in closed loop, in process: success per task, with other words, with wrong words, and under delay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..sim.simulation import Simulation
from .control import Handover, Rollout
from .driving import Policy
from .recipes import Recipe

FIRST_SEED = 7_000_000_000
"""Beyond all of training's."""
TOGETHER = 60
"""Episodes side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is tried: `name` for the report. `say` gives the instruction of a task's nth episode."""

    name: str
    say: Callable[[str, int], str]
    handover: Handover = "rtc"
    delay: int = 0


@dataclass(slots=True)
class Outcome:
    """What came of it. `tasks`: (succeeded, episodes) of each."""

    name: str
    handover: Handover
    delay: int
    tasks: dict[str, tuple[int, int]] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    """Of the episodes that succeeded."""
    stalled: float = 0.0
    """Of all control steps."""
    jump_median: float = 0.0
    jump_p95: float = 0.0

    @property
    def succeeded(self) -> int:
        return sum(won for won, _ in self.tasks.values())

    @property
    def episodes(self) -> int:
        return sum(tried for _, tried in self.tasks.values())

    @property
    def rate(self) -> float:
        return self.succeeded / max(1, self.episodes)


def trials(recipe: Recipe, delays: Sequence[int]) -> list[Trial]:
    """The recipe's own words, paraphrases that were kept out, another task's words, and each delay under each hand-over."""
    language = recipe.language()
    tasks = recipe.tasks

    def plain(task: str, _: int) -> str:
        return language.plain[task]

    def paraphrase(task: str, index: int) -> str:
        return language.kept_out[task][index % len(language.kept_out[task])]

    def wrong(task: str, index: int) -> str:
        return language.plain[tasks[(tasks.index(task) + 1 + index % (len(tasks) - 1)) % len(tasks)]]

    found = [
        Trial(name="its own instruction", say=plain),
        Trial(name="a paraphrase kept out of training", say=paraphrase),
        Trial(name="another task's instruction", say=wrong),
    ]
    handovers: list[Handover] = ["wait", "switch", "rtc"] if recipe.max_prefix else ["wait", "switch"]
    found += [
        Trial(name=f"delay of {delay} steps: {how}", say=plain, handover=how, delay=delay) for delay in delays if delay for how in handovers
    ]
    return found


def evaluate(recipe: Recipe, policy: Policy, trial: Trial, episodes: int, first_seed: int = FIRST_SEED) -> Outcome:
    """So many episodes of each task."""
    wanted = [(task, index) for task in recipe.tasks for index in range(episodes)]
    rollouts: list[Rollout] = []
    worlds: dict[str, list[Simulation]] = {}
    try:
        for group in _groups(recipe, wanted):
            rollouts += _together(recipe, policy, trial, group, worlds, first_seed)
    finally:
        _close(worlds)
    return _outcome(trial, recipe, rollouts)


def _groups(recipe: Recipe, wanted: Sequence[tuple[str, int]]) -> Iterable[Sequence[tuple[str, int]]]:
    """Episodes that run side by side; of one task where worlds are not shared."""
    for task in [None] if recipe.shared_world else list(recipe.tasks):
        mine = [one for one in wanted if task in (None, one[0])]
        for at in range(0, len(mine), TOGETHER):
            yield mine[at : at + TOGETHER]


def _together(
    recipe: Recipe, policy: Policy, trial: Trial, group: Sequence[tuple[str, int]], worlds: dict[str, list[Simulation]], first_seed: int
) -> list[Rollout]:
    key = "" if recipe.shared_world else group[0][0]
    if key not in worlds:
        _close(worlds)
        worlds[key] = []
    while len(worlds[key]) < len(group):
        worlds[key].append(recipe.simulate())
    rollouts = []
    for simulation, (task, index) in zip(worlds[key], group, strict=False):
        simulation.reset(task, first_seed + index + 1000 * recipe.tasks.index(task))
        rollouts.append(Rollout(simulation, task, trial.say(task, index), trial.handover, trial.delay, recipe.execute, recipe.limit))
    while running := [rollout for rollout in rollouts if not rollout.over]:
        asking = [(rollout, prefix) for rollout in running if (prefix := rollout.asks()) is not None]
        asked = [
            (one.simulation, one.prompt, first_seed % 2**20 + 1000 * one.step + number, prefix)
            for number, (one, prefix) in enumerate(asking)
        ]
        for (rollout, _), chunk in zip(asking, policy.chunks(asked), strict=True):
            rollout.take(chunk)
        for rollout in running:
            rollout.tick()
    return rollouts


def _outcome(trial: Trial, recipe: Recipe, rollouts: Sequence[Rollout]) -> Outcome:
    jumps = [jump for rollout in rollouts for jump in rollout.jumps] or [0.0]
    return Outcome(
        trial.name,
        trial.handover,
        trial.delay,
        tasks={
            task: (sum(one.succeeded for one in rollouts if one.task == task), sum(one.task == task for one in rollouts))
            for task in recipe.tasks
        },
        steps=[one.step for one in rollouts if one.succeeded],
        stalled=sum(one.stalled for one in rollouts) / max(1, sum(one.step for one in rollouts)),
        jump_median=float(np.median(jumps)),
        jump_p95=float(np.quantile(jumps, 0.95)),
    )


def _close(worlds: dict[str, list[Simulation]]) -> None:
    while worlds:
        for simulation in worlds.popitem()[1]:
            simulation.close()
