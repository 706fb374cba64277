"""Who takes part in the next integration step. Pure, so that it can be tested by the million."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar


class Waiting(Protocol):
    """A chunk in the making, as far as its turn is concerned."""

    @property
    def deadline(self) -> float:
        """On some clock, in seconds; infinity: none."""

    @property
    def arrived(self) -> float: ...

    @property
    def steps_left(self) -> int: ...


PATIENT = 1.0
"""Seconds after its arrival at which work without a deadline counts as due: it gives way to the urgent, but not for ever."""

GATHERING = 4
"""Chunks in the making from which on new ones wait for company."""
GATHER_S = 0.004
"""For so long at most: where a step takes longer there is nothing to wait for."""

W = TypeVar("W", bound=Waiting)


def choose(works: Iterable[W], seats: int) -> list[W]:
    """Those with the earliest deadlines, at most `seats`; among equals who came first. A late-comer with an earlier deadline takes the
    place of one that has begun, which goes on when it is its turn again."""
    return sorted(works, key=lambda work: (_due(work), work.arrived))[:seats]


def _due(work: Waiting) -> float:
    return work.deadline if work.deadline < math.inf else work.arrived + PATIENT


def hopeless(work: Waiting, now: float, fastest_step: float) -> bool:
    """Will it be late even if every step left takes only as long as the fastest one lately?"""
    return now + work.steps_left * fastest_step > work.deadline


def may_begin(fresh: Sequence[Waiting], running: int, now: float) -> bool:
    """Shall new work begin at this step, or wait for more to come? To begin costs as much for one as for several, and whoever begins
    together ends together; so while many are under way a few wait, for a moment."""
    if running < GATHERING or 2 * len(fresh) >= running:
        return True
    return any(now - work.arrived >= GATHER_S for work in fresh)
