"""What a policy should do in closed loop, and whether it did."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..report import Figure, none_of, plain
from .loop_outcome import Outcome, line_of, upper_bound

ENOUGH = 50
"""Episodes a task from which a figure is judged as it stands; with fewer, chance is allowed for."""
OWN_AIM = {"tabletop": 0.97, "metaworld": 0.97, "tabletop-eyes": 0.80}
PARAPHRASE_AIM = {"tabletop": 0.90}
WRONG_AIM = {"tabletop": 0.02}
LATE_AIM = {100: 0.03, 200: 0.10}
"""Points that continuing late chunks may cost, by the delay in ms."""
LATE_POLICIES = ("tabletop", "metaworld")
"""Those that are judged by it; for the others it is told."""
STALL_AIM = 0.01
"""Of all steps, after an episode's first action."""


def figures(policy: str, outcomes: Sequence[Outcome]) -> list[Figure]:
    """The rows of the report."""
    rows: list[Figure] = []
    for outcome in outcomes:
        match outcome.trial.group:
            case "own":
                rows += [_at_least(policy, outcome, OWN_AIM.get(policy)), *_like_in_process(policy, outcome)]
            case "paraphrase":
                rows.append(_at_least(policy, outcome, PARAPHRASE_AIM.get(policy)))
            case "wrong":
                rows.append(_at_most(policy, outcome, WRONG_AIM.get(policy)))
            case "delays":
                rows.append(_at_least(policy, outcome, None))
    rows += _late(policy, outcomes)
    faults = sum(outcome.audit.faults for outcome in outcomes)
    executed = sum(outcome.audit.executed for outcome in outcomes)
    rows.append(none_of(f"{policy}: stale, late or non-finite actions executed", faults, executed, "the worlds' logs against the robots'"))
    return rows


def required(rows: Sequence[Figure]) -> list[str]:
    """The rows that must meet their aims: all that have one, but for what only some policies are judged by."""
    late = tuple(f"{policy}: " for policy in LATE_POLICIES)
    return [row.name for row in rows if _LATE_MARK not in row.name or row.name.startswith(late)]


_LATE_MARK = "points lost with chunks"


def _name(policy: str, outcome: Outcome) -> str:
    return f"{policy}: {outcome.trial.name}"


def _value(outcome: Outcome) -> str:
    return f"{outcome.rate:.1%}"


def _note(outcome: Outcome) -> str:
    return f"{outcome.succeeded} of {outcome.episodes}"


def _few(outcome: Outcome) -> bool:
    return outcome.trial.episodes < ENOUGH


def _at_least(policy: str, outcome: Outcome, aim: float | None) -> Figure:
    if aim is None:
        return Figure(_name(policy, outcome), _value(outcome), note=_note(outcome))
    could = upper_bound(outcome.succeeded, outcome.episodes) if _few(outcome) else outcome.rate
    return Figure(_name(policy, outcome), _value(outcome), f"≥ {aim:.0%}", could >= aim, _note(outcome))


def _at_most(policy: str, outcome: Outcome, aim: float | None) -> Figure:
    if aim is None:
        return Figure(_name(policy, outcome), _value(outcome), note=_note(outcome))
    failed = outcome.episodes - outcome.succeeded
    could = 1 - upper_bound(failed, outcome.episodes) if _few(outcome) else outcome.rate
    return Figure(_name(policy, outcome), _value(outcome), f"≤ {aim:.0%}", could <= aim, _note(outcome))


def _like_in_process(policy: str, outcome: Outcome) -> list[Figure]:
    if outcome.in_process is None:
        return []
    apart = outcome.rate - outcome.in_process
    chance = _chance(outcome.rate, outcome.in_process, outcome.episodes, outcome.episodes)
    return [
        Figure(
            f"{policy}: points above the same policy in process",
            f"{apart * 100:+.1f}",
            f"≥ -{chance * 100:.1f} (chance)",
            apart >= -chance,
            f"in process {outcome.in_process:.1%}",
        )
    ]


def _late(policy: str, outcomes: Sequence[Outcome]) -> list[Figure]:
    """What continuing late chunks costs against the shortest delay."""
    line = line_of(outcomes, "rtc")
    rows: list[Figure] = []
    if not line or line[0].trial.delay_ms:
        return rows
    still = line[0]
    for outcome in line[1:]:
        aim = LATE_AIM.get(outcome.trial.delay_ms)
        lost = still.rate - outcome.rate
        slack = _chance(still.rate, outcome.rate, still.episodes, outcome.episodes) if _few(still) or _few(outcome) else 0.0
        name = f"{policy}: {_LATE_MARK} {outcome.trial.delay_ms} ms late, continued"
        met = None if aim is None else lost <= aim + slack + 1e-9
        rows.append(Figure(name, f"{lost * 100:.1f}", "" if aim is None else f"≤ {aim * 100:g}", met, f"{outcome.delay} steps late"))
        stalled = outcome.stalled_later
        name = f"{policy}: {outcome.trial.delay_ms} ms, continued: steps stalled after the first chunk"
        rows.append(Figure(name, f"{stalled:.1%}", f"≤ {STALL_AIM:.0%}", stalled <= STALL_AIM))
    return rows


def _chance(one: float, other: float, tried: int, other_tried: int) -> float:
    """How far apart two shares may be by chance, 95 %; at least that of one episode."""
    spread = 1.96 * math.sqrt(one * (1 - one) / max(1, tried) + other * (1 - other) / max(1, other_tried))
    return max(spread, 1 / max(1, min(tried, other_tried)))


def time_taken(seconds: float) -> Figure:
    """How long it all took."""
    return plain("minutes", seconds / 60, digits=1)
