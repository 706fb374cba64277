"""Episodes of a scripted expert that is disturbed, by chance or by the policy that is being trained.

Disturbances come in short bursts. A burst of chance is a random action, or holding still, for a few steps. A burst of the policy lets it
drive for a while, so that the expert shows how to go on from where the policy really gets to (DAgger, at one label a step: Ross,
Gordon and Bagnell 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..sim.simulation import Action, Simulation
from .dataset import Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """How an expert is disturbed. `bursts` at most, `length` steps each (low, high), starting before step `before`; `hold` of them hold
    still; `drop` of the random ones let go of what is carried. `gripper`: the index of the action's number that grips."""

    bursts: int = 4
    length: tuple[int, int] = (2, 6)
    before: int = 55
    hold: float = 0.3
    drop: float = 0.15
    gripper: int = -1
    tremor: tuple[float, ...] = (0.0,)
    """Deviations of a noise on every action of an episode (but its gripper), one of which is drawn for each episode. Nobody can foresee
    it, so the expert's answers to it make labels noisy; what is learned about springy goals is worth that."""
    drive: tuple[int, int] = (4, 20)
    """Steps that the policy drives at a time (low, high)."""
    rest: tuple[int, int] = (8, 22)
    """Steps of the expert between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collecting:
    """`steps` an episode has at most; `after` it goes on for so long when it has succeeded. Failed episodes are thrown away."""

    steps: int = 170
    after: int = 8
    together: int = 48
    """Simulations side by side, so that a driving policy works in batches."""
    disturbance: Disturbance = Disturbance()
    prelude: float = 0.0
    """How often the expert begins with another task, so that hands are full or in the wrong place (shared worlds only)."""


Look = Callable[[Simulation], npt.NDArray[np.uint8]]
"""What is seen: `[cameras, 3, size, size]`."""

Drivers = Callable[[Sequence["Run"]], list[Action]]
"""The policy: what it would do now in each of these."""


@dataclass(slots=True, eq=False)
class Run:
    """An episode in the making."""

    simulation: Simulation
    task: str
    episode: Episode
    random: np.random.Generator
    bursts: list[tuple[int, int, Action | None]]
    """(first step, length, the action; None: hold)."""
    drives: list[tuple[int, int]]
    tremor: float = 0.0
    prompt: str = ""
    step: int = 0
    succeeded_at: int | None = None
    queue: list[Action] = field(default_factory=list)
    """What the driving policy will do next."""
    delay: int | None = None
    """Steps ahead of the end of its queue that it asks for more; drawn when it first drives."""

    def burst(self) -> tuple[int, int, Action | None] | None:
        return next((burst for burst in self.bursts if burst[0] <= self.step < burst[0] + burst[1]), None)

    def driven(self) -> bool:
        return any(first <= self.step < first + length for first, length in self.drives)

    def last_disturbance(self) -> int:
        ends = [first + length for first, length, _ in self.bursts] + [first + length for first, length in self.drives]
        return max(ends, default=0)


def collect(
    simulations: Sequence[Simulation],
    wanted: Sequence[tuple[str, int]],
    settings: Collecting,
    tasks: Sequence[str],
    *,
    pictures: Look | None = None,
    driver: Drivers | None = None,
    prompts: Callable[[str, np.random.Generator], str] | None = None,
) -> tuple[list[Episode], int]:
    """One episode for each wanted (task, seed), the task numbered as in `tasks`, less those in which the expert failed; also returns how
    many those were."""
    waiting = list(wanted)[::-1]
    done: list[Episode] = []
    failed = 0
    idle = list(simulations)
    runs: list[Run] = []
    while waiting or runs:
        while waiting and idle:
            task, seed = waiting.pop()
            runs.append(_begin(idle.pop(), task, tasks.index(task), seed, settings, driver is not None, prompts))
        _tick(runs, settings, pictures, driver)
        for run in [run for run in runs if _over(run, settings)]:
            runs.remove(run)
            idle.append(run.simulation)
            if run.succeeded_at is None:
                failed += 1
            else:
                done.append(run.episode)
    return done, failed


def _begin(
    simulation: Simulation,
    task: str,
    number: int,
    seed: int,
    settings: Collecting,
    drives: bool,
    prompts: Callable[[str, np.random.Generator], str] | None,
) -> Run:
    random = np.random.default_rng((seed, 1))
    simulation.reset(task, seed)
    run = Run(simulation, task, Episode(number), random, [], [])
    if simulation.shared_world and random.random() < settings.prelude:
        simulation.retask(str(random.choice(simulation.tasks)))
        for _ in range(random.integers(5, 45)):
            simulation.step(simulation.expert())
        simulation.retask(task)
    run.tremor = float(random.choice(settings.disturbance.tremor))
    if drives:
        run.drives = _drives(random, settings)
        run.prompt = prompts(task, random) if prompts else ""
    else:
        run.bursts = _bursts(random, settings.disturbance, simulation.action_dim)
    return run


def _bursts(random: np.random.Generator, how: Disturbance, action_dim: int) -> list[tuple[int, int, Action | None]]:
    bursts: list[tuple[int, int, Action | None]] = []
    for first in random.integers(0, how.before, random.integers(0, how.bursts + 1)):
        length = int(random.integers(how.length[0], how.length[1] + 1))
        action = random.uniform(-1, 1, action_dim).astype(np.float32)
        action[how.gripper] = np.nan if random.random() > how.drop else -1  # NaN: as the expert would have it
        bursts.append((int(first), length, None if random.random() < how.hold else action))
    return bursts


def _drives(random: np.random.Generator, settings: Collecting) -> list[tuple[int, int]]:
    how = settings.disturbance
    drives = []
    at = int(random.integers(0, 2)) * int(random.integers(0, how.rest[1]))
    while at < settings.steps // 2:
        length = int(random.integers(how.drive[0], how.drive[1] + 1))
        drives.append((at, length))
        at += length + int(random.integers(how.rest[0], how.rest[1] + 1))
    return drives


def _tick(runs: list[Run], settings: Collecting, pictures: Look | None, driver: Drivers | None) -> None:
    """One control step of every run."""
    driven = [run for run in runs if run.driven()]
    for run in runs:
        if not run.driven():
            run.queue.clear()
    moves = dict(zip(map(id, driven), driver(driven) if driver and driven else [], strict=True))
    for run in runs:
        simulation, episode = run.simulation, run.episode
        label = simulation.expert()
        episode.states.append(simulation.observe())
        episode.labels.append(label)
        if pictures:
            episode.pictures.append(pictures(simulation))
        burst = run.burst()
        action = moves.get(id(run), label)
        if burst is not None:
            action = simulation.hold() if burst[2] is None else np.where(np.isnan(burst[2]), label, burst[2])
        if run.tremor and id(run) not in moves:
            trembling = run.tremor * run.random.normal(size=len(action))
            trembling[settings.disturbance.gripper] = 0
            action = (action + trembling).astype(np.float32)
        action = np.clip(action, -1, 1).astype(np.float32)
        episode.disturbed.append(burst is not None or id(run) in moves)
        episode.executed.append(action)
        simulation.step(action)
        if run.succeeded_at is None and simulation.succeeded():
            run.succeeded_at = run.step
            if run.drives:
                run.drives = [drive for drive in run.drives if drive[0] <= run.step]
        run.step += 1


def _over(run: Run, settings: Collecting) -> bool:
    if run.step >= settings.steps:
        return True
    return run.succeeded_at is not None and run.step > max(run.succeeded_at + settings.after, run.last_disturbance())
