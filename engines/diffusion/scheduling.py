"""Who takes the next denoising step together: the engine's decisions, without I/O, so that they can be tested by the million.

The rules:

- All requests of a step have one shape key, and together at most as many rows as the cap, unless a single request alone has more.
- The more urgent class of work goes first; within a class, who came first. A request rises by one class for each `ageing` seconds
  that it has been there, so the flood of a more urgent class cannot hold it up for ever.
- Shape keys whose first requests are equally urgent take turns by deficit round robin over the seconds that their steps really took.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from ..interface import WorkClass

QUANTUM_S = 0.1
"""Computing time that a shape key gets in its turn."""


@dataclass(eq=False, slots=True, kw_only=True)
class Entry:
    """A request as the schedule sees it. `arrived` in seconds, on the clock of `choose`; `rows` may change from step to step."""

    key: Hashable
    rows: int
    work_class: WorkClass
    arrived: float

    def level(self, now: float, ageing: float) -> int:
        """How urgent it is, 0 the most."""
        return max(0, int(self.work_class) - int(max(0.0, now - self.arrived) / ageing))


@dataclass(slots=True)
class Turns:
    """Deficit round robin: a key is served while it has credit left, and charged afterwards for what its steps cost."""

    quantum: float = QUANTUM_S
    _ring: list[Hashable] = field(default_factory=list)
    _credit: dict[Hashable, float] = field(default_factory=dict)
    _contended: bool = False

    def next(self, candidates: Iterable[Hashable]) -> Hashable:
        """Whose turn it is among `candidates` (at least one, in order of arrival)."""
        wanted = dict.fromkeys(candidates)
        for key in wanted:
            if key not in self._credit:
                self._ring.append(key)
                self._credit[key] = self.quantum
        self._contended = len(wanted) > 1
        if not self._contended:
            (key,) = wanted
            return key
        while True:
            for _ in range(len(self._ring)):
                key = self._ring[0]
                if key in wanted and self._credit[key] > 0:
                    return key
                self._ring.append(self._ring.pop(0))
            # All candidates are in debt: everybody is given as many quanta as the least indebted needs.
            rounds = 1 + int(min(-self._credit[key] for key in wanted) / self.quantum)
            for key in wanted:
                self._credit[key] += rounds * self.quantum

    def charge(self, key: Hashable, seconds: float) -> None:
        """A step of `key` took so long. Free when nobody else wanted the turn."""
        if self._contended and key in self._credit:
            self._credit[key] -= seconds

    def forget(self, present: Iterable[Hashable]) -> None:
        """Only these keys have requests; the others' debts and credits end here."""
        kept = set(present)
        self._ring = [key for key in self._ring if key in kept]
        self._credit = {key: credit for key, credit in self._credit.items() if key in kept}


@dataclass(slots=True, kw_only=True)
class Schedule:
    """The requests that are there. Times come in as arguments, in seconds."""

    ageing: float = 30.0
    turns: Turns = field(default_factory=Turns)
    entries: list[Entry] = field(default_factory=list)
    """In order of arrival."""

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)

    def remove(self, entry: Entry) -> None:
        """Harmless when it is not there."""
        if entry in self.entries:
            self.entries.remove(entry)
            self.turns.forget(other.key for other in self.entries)

    def choose(self, cap: int, now: float) -> list[Entry]:
        """The requests of the next step, the most urgent first; none when there are none."""
        if not self.entries:
            return []
        order = sorted(self.entries, key=lambda entry: (entry.level(now, self.ageing), entry.arrived))
        first = order[0].level(now, self.ageing)
        key = self.turns.next(entry.key for entry in order if entry.level(now, self.ageing) == first)
        chosen: list[Entry] = []
        used = 0
        for entry in order:
            if entry.key != key:
                continue
            if chosen and used + entry.rows > cap:
                # Smaller ones behind it may fill the gap: that delays nobody, since the next step is chosen from the beginning again.
                continue
            chosen.append(entry)
            used += entry.rows
        return chosen

    def charge(self, key: Hashable, seconds: float) -> None:
        """A step of `key` took so long."""
        self.turns.charge(key, seconds)

    def oldest(self, now: float) -> float:
        """How long the oldest request has been here, in seconds."""
        return max((now - entry.arrived for entry in self.entries), default=0.0)
