"""The proof, from a simulator's own journal, that nothing stale, late or non-finite was executed; and how its robot fared meanwhile.

`check` takes no word of the client's: each action that was executed must be the owner's hold, or stand in a chunk that came over the
present connection, for a request made in the present episode, of the newest epoch, at the place that the count of executed actions gives
it, in time.
"""

from __future__ import annotations

import bisect
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from antiphon.tests.gateway.robots.journal import Acted, Asked, Began, Ended, Lost, Observed, Opened, Record, Replied

ROUNDING = 1e-6
SCHEDULING = 0.3
"""Seconds that the robots' process may need to notice something, on a busy machine."""


@dataclass(slots=True)
class Proof:
    """What a journal shows: how many actions were executed from how many chunks, how many were held; and every one that may not be
    (`wrong`, as sentences)."""

    executed: int = 0
    held: int = 0
    chunks: int = 0
    episodes: int = 0
    ended: int = 0
    """Of the episodes: done, or out of time; others were broken off."""
    succeeded: int = 0
    wrong: list[str] = field(default_factory=list)

    def __add__(self, other: Proof) -> Proof:
        return Proof(
            *(getattr(self, name) + getattr(other, name) for name in ("executed", "held", "chunks", "episodes", "ended", "succeeded")),
            self.wrong + other.wrong,
        )


@dataclass(slots=True)
class _Chunk:
    asked: Asked
    came_at: float
    epoch: int
    base: int
    actions: Any


@dataclass(slots=True)
class _Check:
    """Walks through a journal with books of its own."""

    horizon_s: float
    proof: Proof = field(default_factory=Proof)
    count: int = 0
    """Actions of the policy that were executed."""
    epoch: int = -1
    names: list[str] = field(default_factory=list)
    """Of the episodes, as the requests give them. A name may not come back."""
    name: str = ""
    lost_at: float | None = None
    observed: deque[tuple[Any, int]] = field(default_factory=lambda: deque(maxlen=64))
    """States of the present episode, and the count at each."""
    before: deque[tuple[Any, int]] = field(default_factory=lambda: deque(maxlen=64))
    """Those of the one before."""
    asked: dict[int, tuple[Asked, int]] = field(default_factory=dict)
    chunks: list[_Chunk] = field(default_factory=list)
    """Of the present connection and episode, oldest first."""
    newest: int = -1
    """Sequence of the chunk that was executed from last."""

    def take(self, record: Record) -> None:
        match record:
            case Began():
                self.proof.episodes += 1
                self.name, self.newest = "", -1
                self.chunks.clear()
                self.before, self.observed = self.observed, self.before
                self.observed.clear()
            case Ended(succeeded=succeeded):
                self.proof.ended += 1
                self.proof.succeeded += succeeded
            case Opened():
                self.epoch, self.lost_at, self.newest = -1, None, -1
                self.chunks.clear()
                self.asked.clear()
            case Lost(at=at):
                self.lost_at = at
            case Observed(state=state):
                self.observed.append((state, self.count))
            case Asked():
                self._asked(record)
            case Replied():
                self._replied(record)
            case Acted():
                self._acted(record)

    def _asked(self, asked: Asked) -> None:
        base = next((count for state, count in reversed(self.observed) if np.array_equal(state, asked.state)), None)
        if base is None:
            # It was under way when the episode ended. That is no fault, but nothing that comes of it may be executed: it has no place.
            if not any(np.array_equal(asked.state, state) for state, _ in self.before):
                self._wrong(asked.at, f"request {asked.sequence} holds an observation that was never made")
            return
        if not self.name:
            if asked.episode in self.names:
                self._wrong(asked.at, f"episode {asked.episode!r} has been before")
            self.names.append(asked.episode)
            self.name = asked.episode
        if asked.episode != self.name:
            self._wrong(asked.at, f"request {asked.sequence} names episode {asked.episode!r}, which is not the present {self.name!r}")
        self.asked[asked.sequence] = (asked, base)

    def _replied(self, reply: Replied) -> None:
        epoch = reply.echo["epoch"]
        older = epoch < self.epoch
        self.epoch = max(self.epoch, epoch)
        if reply.actions is None:
            return
        sequence = reply.echo.get("sequence")
        asked, base = self.asked.pop(sequence, (None, 0))
        if asked is None:
            self._wrong(reply.at, f"a chunk answers request {sequence}, which was not made on this connection, or was answered already")
        elif reply.echo.get("episode") != asked.episode:
            self._wrong(reply.at, f"the chunk of request {sequence} echoes episode {reply.echo.get('episode')!r}, not {asked.episode!r}")
        elif older:
            self._wrong(reply.at, f"the chunk of request {sequence} came with epoch {epoch} after {self.epoch} had been seen")
        elif reply.at > asked.at + asked.deadline_s + SCHEDULING:
            self._wrong(reply.at, f"the chunk of request {sequence} came {reply.at - asked.at:.3f} s after it was asked for: too late")
        elif not np.isfinite(reply.actions).all():
            self._wrong(reply.at, f"the chunk of request {sequence} is not finite")
        elif asked.episode == self.name:
            self.chunks.append(_Chunk(asked, reply.at, epoch, base, np.clip(reply.actions, -1, 1)))

    def _acted(self, acted: Acted) -> None:
        action = acted.action
        if action.shape != (4,) or not np.isfinite(action).all() or np.abs(action).max() > 1:
            self._wrong(acted.at, f"{action} was executed: not four finite numbers within the bounds")
        elif acted.held:
            self.proof.held += 1
        else:
            self._executed(acted)
            self.count += 1
            self.proof.executed += 1

    def _executed(self, acted: Acted) -> None:
        """One of the policy: some chunk of now must say so, at this place."""
        if self.lost_at is not None and acted.at > self.lost_at + SCHEDULING:
            self._wrong(acted.at, "the policy's action was executed without a connection")
        chunk = next((chunk for chunk in reversed(self.chunks) if self._says(chunk, acted.action)), None)
        if chunk is None:
            elsewhere = any(np.abs(chunk.actions - acted.action).max(axis=1).min() < ROUNDING for chunk in self.chunks)
            why = "only at another place" if elsewhere else "not at all"
            self._wrong(acted.at, f"{acted.action} was executed, which the chunks of this episode and connection say {why}")
            return
        sequence = chunk.asked.sequence
        if chunk.epoch != self.epoch:
            self._wrong(acted.at, f"an action of epoch {chunk.epoch} was executed in epoch {self.epoch}")
        if sequence < self.newest:
            self._wrong(acted.at, f"an action of request {sequence} was executed after one of {self.newest}")
        if acted.at > chunk.asked.at + chunk.asked.deadline_s + self.horizon_s + SCHEDULING:
            self._wrong(acted.at, f"an action was executed {acted.at - chunk.asked.at:.3f} s after its observation")
        self.proof.chunks += sequence > self.newest
        self.newest = max(self.newest, sequence)

    def _says(self, chunk: _Chunk, action: Any) -> bool:
        place = self.count - chunk.base
        return 0 <= place < len(chunk.actions) and np.abs(chunk.actions[place] - action).max() < ROUNDING

    def _wrong(self, at: float, sentence: str) -> None:
        self.proof.wrong.append(f"at {at:.3f}: {sentence}")


def check(journal: Iterable[Record], horizon_s: float = 16 / 20.8) -> Proof:
    """Go through a journal: see the module's docstring. `horizon_s`: how long a chunk lasts."""
    walk = _Check(horizon_s)
    for record in journal:
        walk.take(record)
    return walk.proof


def prove(journals: Iterable[Iterable[Record]]) -> Proof:
    """`check` each, and fail unless every executed action may be."""
    proof = sum((check(journal) for journal in journals), Proof())
    assert proof.executed > 0
    assert not proof.wrong, f"{len(proof.wrong)} wrong: " + "; ".join(proof.wrong[:5])
    return proof


# ---- were they disturbed? -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """How a robot fared in a spell of time. `round_trips` in seconds; `answers` by status; `stalls`: steps held between two of the policy
    in one episode; `lost`: connections that broke."""

    seconds: float
    steps: int
    executed: int
    stalls: int
    lost: tuple[str, ...]
    answers: dict[str, int]
    round_trips: tuple[float, ...]

    @property
    def slowest(self) -> float:
        return max(self.round_trips, default=0.0)

    @property
    def median(self) -> float:
        return sorted(self.round_trips)[len(self.round_trips) // 2] if self.round_trips else 0.0


def spell(journal: Sequence[Record], begins: float, ends: float) -> Spell:
    """A robot between two moments."""
    times = [record.at for record in journal]
    part = journal[bisect.bisect_left(times, begins) : bisect.bisect_right(times, ends)]
    asked: dict[int, float] = {}
    trips, stalls, waiting, running = [], 0, 0, False
    for record in part:
        match record:
            case Asked(sequence=sequence, at=at):
                asked[sequence] = at
            case Replied(echo=echo, at=at) if echo.get("sequence") in asked:
                trips.append(at - asked.pop(echo["sequence"]))
            case Began():
                running, waiting = False, 0
            case Acted(held=True):
                waiting += running
            case Acted():
                stalls, waiting, running = stalls + waiting, 0, True
    acted = [record for record in part if isinstance(record, Acted)]
    return Spell(
        seconds=ends - begins,
        steps=len(acted),
        executed=sum(not record.held for record in acted),
        stalls=stalls,
        lost=tuple(record.why for record in part if isinstance(record, Lost)),
        answers=dict(Counter(record.status for record in part if isinstance(record, Replied))),
        round_trips=tuple(trips),
    )


def executed_chunks(journal: Sequence[Record], since: float) -> int:
    """From how many chunks, asked for since then, did the robot execute something?"""
    times = [record.at for record in journal]
    proof = check(journal)
    return proof.chunks - check(journal[: bisect.bisect_left(times, since)]).chunks


def told(spells: Sequence[Spell]) -> str:
    """For the log of a test: how the others fared."""
    trips = sorted(trip for seen in spells for trip in seen.round_trips)
    if not trips:
        return "no round trips"
    return (
        f"{len(trips)} round trips, p50 {trips[len(trips) // 2] * 1000:.0f} ms, most {trips[-1] * 1000:.0f} ms, "
        f"{sum(seen.stalls for seen in spells)} of {sum(seen.steps for seen in spells)} steps stalled"
    )
