"""What is tried with a policy in closed loop: its own words, others, and chunks that come late under each hand-over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...clients.robot.settings import Handover
from ...robot.sim.worlds import World
from .driving import Episode
from .worlds import Words, said

FIRST_SEED = 7_000_000_000
"""Beyond all of training's; the scenes are those of `antiphon train policy --evaluate`."""
Group = Literal["own", "paraphrase", "wrong", "delays"]
GROUPS: tuple[Group, ...] = ("own", "paraphrase", "wrong", "delays")
OWN = "its own instruction"
_WORDS: dict[Group, tuple[str, Words]] = {
    "own": (OWN, "plain"),
    "paraphrase": ("a paraphrase kept out of training", "kept_out"),
    "wrong": ("another task's instruction", "wrong"),
}
USUAL_STEPS = {"tabletop": 38, "tabletop-eyes": 33, "metaworld": 80}
"""Of an episode that succeeds, for estimates."""
START_S, TAIL = 2.0, 1.2
"""What a trial takes before its first step; the last robots' share more, while others are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Some episodes of each task, under one hand-over, with `delay_ms` more for each round trip."""

    group: Group
    name: str
    words: Words = "plain"
    handover: Handover = "rtc"
    delay_ms: int = 0
    episodes: int

    def wanted(self, world: World) -> list[Episode]:
        """Its episodes, task by task."""
        return [
            Episode(task=task, prompt=said(world, task, index, self.words), seed=FIRST_SEED + index + 1000 * number)
            for number, task in enumerate(world.tasks)
            for index in range(self.episodes)
        ]

    def seconds(self, world: World, rate: float, robots: int) -> float:
        """How long it is likely to take so many robots."""
        steps: float = USUAL_STEPS.get(world.name, world.limit / 2)
        late = 1 + self.delay_ms / 1000 * rate
        if self.words == "wrong":
            steps = world.limit if world.shared_world else 1.6 * steps
        elif self.handover == "wait":
            steps *= 1 + late / 8
        elif self.handover == "rtc":
            steps += late
        elif world.shared_world:
            steps += (0.15 + 0.05 * late) * (world.limit - steps)  # of those that fail
        return START_S + TAIL * self.episodes * len(world.tasks) * steps / rate / robots


def trials(
    groups: Iterable[Group], handovers: Sequence[Handover], delays_ms: Sequence[int], *, episodes: int, late_episodes: int
) -> list[Trial]:
    """`late_episodes`: of each task in each cell of delay and hand-over."""
    wanted = set(groups)
    found = [Trial(group=group, name=name, words=words, episodes=episodes) for group, (name, words) in _WORDS.items() if group in wanted]
    if "delays" in wanted:
        found += [
            Trial(group="delays", name=f"{delay} ms more: {how}", handover=how, delay_ms=delay, episodes=late_episodes)
            for delay in delays_ms
            for how in handovers
            if "own" not in wanted or delay or how != "rtc"  # that one is "own"
        ]
    return found


def shared_out(episodes: Sequence[Episode], robots: int) -> list[list[Episode]]:
    """A robot's episodes each: all have as many of each task, or nearly so, as tasks take differently long."""
    return [mine for number in range(robots) if (mine := list(episodes[number::robots]))]
