"""From one chunk to the next. Pure functions of the plans and the count of executed actions.

wait        ask when nothing is left, hold meanwhile: safe and slow
switch      ask so early that the chunk comes in time, and go on in it where the robot is by then
rtc         the same, but the request tells which actions will be executed meanwhile, and the chunk continues them (real-time chunking)
ensemble    ask all the time, and execute the weighted mean of what the overlapping chunks say. For absolute actions: with
            delays, the mean of displacements loses its way
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .plan import Action, Chunk, Plan
from .settings import Handover


def delay_steps(delays: Sequence[int]) -> int:
    """Control steps that pass until a chunk is there: of the latest ones the longest but one, so that one outlier does not count. At
    least 1: a chunk is never there in the step that asks for it.

    In steps and not in seconds, because what counts is how many actions are executed meanwhile: a loop that is late, or that leaves
    steps out, executes fewer of them in the same time. Too long a prefix costs little (the robot goes on unseeing for so much longer), too
    short a one a jump.
    """
    return max(1, sorted(delays)[-2:][0]) if delays else 1


def is_due(handover: Handover, plan: Plan | None, executed: int, execute: int, delay: int) -> bool:
    """Is a chunk to be asked for at this step?"""
    if plan is None or handover == "ensemble":
        return True
    played = executed - plan.ticket.base - plan.first
    if handover == "wait":
        return action_of(handover, [plan], executed, execute, 0.0) is None
    return played >= execute - delay or plan.action(executed + delay) is None


def action_of(handover: Handover, plans: Sequence[Plan], executed: int, execute: int, decay: float) -> Action | None:
    """The action for this step, from the plans (oldest first); None: there is none."""
    if not plans:
        return None
    if handover == "ensemble":
        said = [action for plan in plans if (action := plan.action(executed)) is not None]
        return _mean(said, decay) if said else None
    newest = plans[-1]
    if handover == "wait" and executed - newest.ticket.base >= newest.first + execute:
        return None
    return newest.action(executed)


def prefix_of(plan: Plan | None, executed: int, delay: int, max_prefix: int) -> Chunk | None:
    """The next `delay` actions of the plan, as far as it and `max_prefix` go; None: there are none."""
    if plan is None or max_prefix < 1:
        return None
    start = max(0, executed - plan.ticket.base)
    found = plan.actions[start : start + min(delay, max_prefix)]
    return found if len(found) else None


def _mean(said: Sequence[Action], decay: float) -> Action:
    weights = np.exp(-decay * np.arange(len(said)))
    mean: Action = (weights @ np.stack(said).astype(np.float64) / weights.sum()).astype(np.float32)
    return mean
