"""What came of a trial, and how it is told."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...clients.robot.settings import Handover
from .audit import Audit
from .driving import Played
from .trials import Trial


@dataclass(slots=True)
class Outcome:
    """`tasks`: (succeeded, episodes) of each. `in_process`: the success of the same policy without a server, where it was measured."""

    trial: Trial
    tasks: dict[str, tuple[int, int]] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    """Of the episodes that succeeded."""
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    audit: Audit = field(default_factory=Audit)
    seconds: float = 0.0
    in_process: float | None = None

    @property
    def succeeded(self) -> int:
        return sum(won for won, _ in self.tasks.values())

    @property
    def episodes(self) -> int:
        return sum(tried for _, tried in self.tasks.values())

    @property
    def rate(self) -> float:
        return self.succeeded / max(1, self.episodes)

    @property
    def stalled(self) -> float:
        """Of all control steps, those without an action of the policy."""
        return (self.audit.stalled + self.audit.waited) / max(1, self.audit.steps)

    @property
    def stalled_later(self) -> float:
        """The same after an episode's first action."""
        return self.audit.stalled / max(1, self.audit.steps)

    @property
    def delay(self) -> int:
        """Control steps that a chunk takes, usually."""
        return int(np.median(self.audit.delays)) if self.audit.delays else 0

    def jump(self, quantile: float) -> float:
        """At the borders of chunks."""
        return float(np.quantile(self.audit.jumps, quantile)) if self.audit.jumps else 0.0

    def round_trip_ms(self, quantile: float) -> float:
        """From an observation to its chunk."""
        return float(np.quantile(self.audit.round_trips, quantile)) * 1000 if self.audit.round_trips else 0.0

    def take(self, played: Sequence[Played]) -> None:
        """A robot's episodes."""
        for one in played:
            won, tried = self.tasks.get(one.episode.task, (0, 0))
            self.tasks[one.episode.task] = (won + one.succeeded, tried + 1)
            if one.succeeded:
                self.steps.append(one.steps)
            for name in ("missed", "requests", "chunks", "clipped", "timeouts"):
                self.counts[name] += getattr(one, name)
            self.refused.update(one.refused)

    def record(self) -> dict[str, Any]:
        """Everything, for machines."""
        trial, audit = self.trial, self.audit
        return {
            "trial": trial.name,
            "handover": trial.handover,
            "delay_ms": trial.delay_ms,
            "delay_steps": self.delay,
            "succeeded": self.succeeded,
            "episodes": self.episodes,
            "in_process": self.in_process,
            "tasks": self.tasks,
            "mean_steps": round(float(np.mean(self.steps)), 1) if self.steps else None,
            "steps": audit.steps,
            "stalled_at_the_start": audit.waited,
            "stalled_later": audit.stalled,
            "jump_median": round(self.jump(0.5), 3),
            "jump_p95": round(self.jump(0.95), 3),
            "round_trip_ms": {"p50": round(self.round_trip_ms(0.5), 1), "p99": round(self.round_trip_ms(0.99), 1)},
            "refused": dict(self.refused),
            "faults": audit.faults,
            "seconds": round(self.seconds, 1),
            **self.counts,
        }


COLUMNS = (
    "trial",
    "success",
    "in process",
    "mean steps",
    "stalled (start + later)",
    "jump at borders, median / p95",
    "round trip ms, p50 / p99",
    "missed",
    "refused",
)


def cells(outcome: Outcome) -> tuple[str, ...]:
    """A row of the table, as `COLUMNS` says."""
    audit = outcome.audit
    of = max(1, audit.steps)
    return (
        outcome.trial.name,
        f"{outcome.succeeded}/{outcome.episodes} = {outcome.rate:.1%}",
        "" if outcome.in_process is None else f"{outcome.in_process:.1%}",
        f"{np.mean(outcome.steps):.0f}" if outcome.steps else "–",
        f"{audit.waited / of:.1%} + {audit.stalled / of:.1%}",
        f"{outcome.jump(0.5):.2f} / {outcome.jump(0.95):.2f}",
        f"{outcome.round_trip_ms(0.5):.0f} / {outcome.round_trip_ms(0.99):.0f}",
        f"{outcome.counts['missed'] / max(1, audit.steps + outcome.counts['missed']):.1%}",
        ", ".join(f"{why} {count}" for why, count in sorted(outcome.refused.items())) or "0",
    )


def markdown(policy: str, outcomes: Sequence[Outcome], about: str) -> str:
    """A policy's table, and its tasks one by one."""
    lines = [f"# {policy}: closed loop through the server", "", about, "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    lines += [f"| {' | '.join(cells(outcome))} |" for outcome in outcomes]
    words = [outcome for outcome in outcomes if outcome.trial.group != "delays"]
    if words:
        lines += ["", f"| task | {' | '.join(outcome.trial.name for outcome in words)} |", "|---" * (len(words) + 1) + "|"]
        for task in words[0].tasks:
            lines.append(f"| {task} | {' | '.join('{}/{}'.format(*outcome.tasks[task]) for outcome in words)} |")
    return "\n".join(lines) + "\n"


def upper_bound(won: int, tried: int) -> float:
    """The success that a policy may have that won so often, at most: Wilson's score, 95 %."""
    if not tried:
        return 1.0
    z, share = 1.96, won / tried
    middle = share + z * z / (2 * tried)
    half = z * math.sqrt(share * (1 - share) / tried + z * z / (4 * tried * tried))
    return min(1.0, (middle + half) / (1 + z * z / tried))


def line_of(outcomes: Sequence[Outcome], how: Handover) -> list[Outcome]:
    """A hand-over's outcomes over the delay, that without delay included."""
    mine = [one for one in outcomes if one.trial.words == "plain" and one.trial.handover == how]
    return sorted(mine, key=lambda one: one.trial.delay_ms)
