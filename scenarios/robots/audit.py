"""Was anything executed that should not have been? A robot's world kept what was executed, and its control loop kept what it was answered:
the one is held against the other, by rules that are written down here once more and not taken from the control loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Action = npt.NDArray[np.float32]
Executed = Sequence[tuple[int, Action]]
"""An episode, as the world kept it: (step, action)."""
TOLD = 5
"""Faults that are put into words; the others are counted."""
ROUNDING = 1e-5
"""Of a mean of chunks."""


@dataclass(slots=True)
class Audit:
    """What was found: all of it from the records, nothing from the control loop's own statistics."""

    faults: int = 0
    told: list[str] = field(default_factory=list)
    episodes: int = 0
    steps: int = 0
    executed: int = 0
    """Actions of the policy."""
    waited: int = 0
    """Steps that the robot held at the start of an episode, before its first action."""
    stalled: int = 0
    """Steps that it held later."""
    jumps: list[float] = field(default_factory=list)
    """Where a chunk begins to decide by itself, the largest change of an action's number but the last (the gripper's)."""
    round_trips: list[float] = field(default_factory=list)
    """Seconds from an observation to its chunk."""
    delays: list[int] = field(default_factory=list)
    """The same in control steps taken meanwhile."""

    def add(self, other: Audit) -> None:
        """Another robot's as well."""
        for name in ("faults", "episodes", "steps", "executed", "waited", "stalled"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("jumps", "round_trips", "delays"):
            getattr(self, name).extend(getattr(other, name))
        self.told = [*self.told, *other.told][:TOLD]

    def fault(self, sentence: str) -> None:
        """Something that should not have been."""
        self.faults += 1
        if len(self.told) < TOLD:
            self.told.append(sentence)


def audit(records: Iterable[dict[str, Any]], worlds: Sequence[Executed]) -> Audit:
    """Hold a robot's episodes, as its world kept them, against its control loop's log (`clients.robot.read_log`). Each executed action must
    be finite, within the bounds, and either the owner's to hold, or the action that belongs to this count of executed actions, of a chunk
    that was asked for in this episode on this connection, after any fence, not too long ago, and not by an older request than the one
    before."""
    records = iter(records)
    auditor = _Auditor(next(records))
    for record in records:
        auditor.take(record)
    found, said = auditor.found, auditor.episodes
    found.episodes = len(worlds)
    if len(said) != len(worlds):
        found.fault(f"The world saw {len(worlds)} episodes, the control loop {len(said)}.")
    for number, (world, loop) in enumerate(zip(worlds, said, strict=False), 1):
        if [step for step, _ in world] != list(range(len(loop))):
            found.fault(f"Episode {number}: the world took {len(world)} steps, the control loop {len(loop)}.")
        for (step, executed), commanded in zip(world, loop, strict=False):
            if not np.isfinite(executed).all():
                found.fault(f"Episode {number}, step {step}: {executed.tolist()} was executed.")
            elif not np.array_equal(executed, commanded):
                found.fault(f"Episode {number}, step {step}: {executed.tolist()} was executed, {commanded.tolist()} was commanded.")
    return found


@dataclass(frozen=True, slots=True)
class _Asked:
    era: int
    """Counts what makes everything before it stale: the beginning of an episode, a fence, the loss of the connection."""
    base: int
    """Actions executed when it was asked."""
    step: int
    at: float
    prefix: int


@dataclass(frozen=True, slots=True)
class _Chunk:
    asked: _Asked
    actions: npt.NDArray[np.float32]
    first: int
    """Index of the action that was next when it came."""


class _Auditor:
    """Goes through a control loop's records once."""

    def __init__(self, header: dict[str, Any]) -> None:
        settings, policy = header["settings"], header["policy"]
        self._ensemble = settings["handover"] == "ensemble"
        self._keeps_plan = bool(settings["finish_plan"])
        low, high = settings["low"] or policy["low"], settings["high"] or policy["high"]
        self._low = -np.inf if low is None else np.asarray(low, np.float32)
        self._high = np.inf if high is None else np.asarray(high, np.float32)
        self._rate = float(settings["rate"] or policy["rate"])
        self._patience = float(settings["reply_timeout_s"])
        self._era = self._done = self._steps = self._newest = 0
        self._asked: dict[int, _Asked] = {}
        self._chunks: dict[int, _Chunk] = {}
        self._last: Action | None = None
        self._begun = False
        self.found = Audit()
        self.episodes: list[list[Action]] = []
        """What the loop says it commanded."""

    def take(self, record: dict[str, Any]) -> None:
        """The next record."""
        match record["kind"]:
            case "begin":
                self._era += 1
                self._begun, self._last = False, None
                self._chunks.clear()
                self.episodes.append([])
            case "offline" if not self._keeps_plan:
                self._era += 1
            case "fail" if record["reason"] == "fenced" and record["sequence"] in self._asked:
                self._era += 1  # the server has moved on: what it said before counts no more
            case "ask":
                self._asked = {record["sequence"]: _Asked(self._era, self._done, self._steps, record["now"], int(record["prefix"] or 0))}
            case "take" if not record["reason"]:
                self._came(record["sequence"], record["actions"], record["now"])
            case "step":
                self._step(np.asarray(record["action"], np.float32), record["sequence"], record["now"])

    def _came(self, sequence: int, actions: Any, now: float) -> None:
        """A chunk that the loop took."""
        asked = self._asked.get(sequence)
        if asked is None:
            self.found.fault(f"The chunk of request {sequence} was taken, which was not on its way.")
            return
        within = np.clip(np.asarray(actions, np.float32), self._low, self._high).astype(np.float32)
        self._chunks[sequence] = _Chunk(asked, within, self._done - asked.base)
        self.found.round_trips.append(now - asked.at)
        self.found.delays.append(self._steps - asked.step)

    def _step(self, action: Action, sequence: int | None, now: float) -> None:
        found = self.found
        found.steps += 1
        self._steps += 1
        if sequence is not None:
            self._check(action, sequence, now)
            self._done += 1
            self._begun = True
            found.executed += 1
        elif self._begun:
            found.stalled += 1
        else:
            found.waited += 1
        self._last = action
        self.episodes[-1].append(action)

    def _check(self, action: Action, sequence: int, now: float) -> None:
        """An action of the policy."""
        found = self.found
        where = f"Episode {len(self.episodes)}, step {len(self.episodes[-1])}"
        if not np.isfinite(action).all() or (action < self._low).any() or (action > self._high).any():
            found.fault(f"{where}: {action.tolist()} is not finite, or out of bounds.")
        if sequence < self._newest:
            found.fault(f"{where}: an action of request {sequence} after one of request {self._newest}.")
        self._newest = max(self._newest, sequence)
        named = self._chunks.get(sequence)
        spoken = list(self._chunks) if self._ensemble else [sequence]
        said = [told for one in spoken if (told := self._said(one, now)) is not None]
        if named is None or not said:
            found.fault(f"{where}: an action of request {sequence}, which is stale, late, unanswered, or has none for this step.")
            return
        slack = ROUNDING if self._ensemble else 0.0
        if not ((np.min(said, 0) - slack <= action) & (action <= np.max(said, 0) + slack)).all():
            found.fault(f"{where}: {action.tolist()} is not what request {sequence} was answered for this step.")
        if self._begun and self._last is not None and self._done - named.asked.base == max(named.first, named.asked.prefix):
            found.jumps.append(float(np.abs(action - self._last)[:-1].max()))

    def _said(self, sequence: int, now: float) -> Action | None:
        """What the chunk of this request has for the present count of executed actions; None: nothing, or nothing that counts any more."""
        chunk = self._chunks.get(sequence)
        if chunk is None or chunk.asked.era != self._era or now - chunk.asked.at > len(chunk.actions) / self._rate + self._patience:
            return None
        index = self._done - chunk.asked.base
        return chunk.actions[index] if 0 <= index < len(chunk.actions) else None
