"""What became of a robot's last requests, and when: kept for whoever looks, written on every request, so it costs next to nothing."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

from ...robot.session import Answer, Request, Status
from ...robot.wire import Marks
from .replies import Finished

KEPT = 64
"""Requests that are kept; policy: the oldest is overwritten."""
FENCES = 16
"""Fences that are kept; policy: the oldest is dropped."""
ROUNDS = 256
"""Round trips that the quantiles are taken from; policy: the oldest is dropped."""
WAITING, WORKING = "waiting", "working"


@dataclass(slots=True, eq=False)
class Entry:
    """A request without its observation. Times on the server's clock, in seconds; None: not yet, or never. `epoch`: it was asked in."""

    number: int
    marks: Marks
    arrived: float
    deadline: float
    epoch: int
    heard: float
    """When something was last heard of it."""
    status: str = WAITING
    begun: float | None = None
    made: float | None = None
    left: float | None = None
    chunk_id: int | None = None
    prefix: int = 0
    batch: float | None = None

    def report(self, now: float) -> dict[str, Any]:
        """For the operator's route; times in seconds from `now`, negative: past."""
        marks = self.marks
        return {
            "number": self.number,
            "sequence": marks.sequence,
            "episode": marks.episode,
            "epoch": self.epoch,
            "chunk_id": self.chunk_id,
            "status": self.status,
            "arrived": _since(self.arrived, now),
            "begun": _since(self.begun, now),
            "made": _since(self.made, now),
            "left": _since(self.left, now),
            "deadline": None if self.deadline == math.inf else _since(self.deadline, now),
            "prefix": self.prefix,
            "batch": self.batch,
        }


class Timeline:
    """See the module's docstring. The numbers of a session's requests count up, so a ring of slots finds each without looking."""

    def __init__(self) -> None:
        self._ring: list[Entry | None] = [None] * KEPT
        self._rounds: deque[float] = deque(maxlen=ROUNDS)
        self._fences: deque[tuple[int, float]] = deque(maxlen=FENCES)

    # ---- written on every request -----------------------------------------------------------------------------------

    def arrived(self, request: Request, epoch: int) -> None:
        """A request came in this epoch."""
        self._ring[request.number % KEPT] = Entry(request.number, request.marks, request.arrived, request.deadline, epoch, request.arrived)

    def started(self, number: int, epoch: int) -> None:
        """The engine is asked; a new epoch may have begun with the request."""
        entry = self._find(number)
        if entry is not None:
            entry.epoch = epoch

    def begun(self, number: int, now: float) -> None:
        """The engine has begun to work on it."""
        entry = self._find(number)
        if entry is not None and entry.status == WAITING:
            entry.begun = entry.heard = now
            entry.status = WORKING

    def decided(self, answer: Answer, now: float) -> None:
        """The session has decided on its answer, which has not left yet."""
        entry = self._find(answer.request.number)
        if entry is None:
            return
        entry.heard = now
        if answer.status is not Status.CHUNK:
            entry.status = answer.status.value
            return
        entry.made = now
        if isinstance(answer.chunk, Finished):
            entry.prefix, entry.batch = answer.chunk.made.prefix, answer.chunk.made.batch

    def left(self, answer: Answer, now: float) -> None:
        """Its answer leaves as this."""
        if answer.status is Status.CHUNK:
            self._rounds.append(now - answer.request.arrived)
        entry = self._find(answer.request.number)
        if entry is not None:
            entry.left = entry.heard = now
            entry.status, entry.chunk_id = answer.status.value, answer.chunk_id

    # ---- written now and then ---------------------------------------------------------------------------------------

    def fenced(self, epoch: int, now: float) -> None:
        """A fence was raised; this epoch begins."""
        self._fences.append((epoch, now))

    def lost(self, now: float) -> None:
        """The connection is gone, and with it the answers that had not left."""
        for entry in self._ring:
            if entry is not None and entry.status in (WAITING, WORKING):
                entry.status, entry.heard = Status.FENCED.value, now

    # ---- read by operators ------------------------------------------------------------------------------------------

    def chunks(self, now: float, since: float = -math.inf) -> list[dict[str, Any]]:
        """The kept requests of which something was heard after `since`, the oldest first. Resets are none: they are fences."""
        kept = [entry for entry in self._ring if entry is not None and entry.status != Status.RESET.value and entry.heard > since]
        return [entry.report(now) for entry in sorted(kept, key=_number)]

    def fences(self, now: float) -> list[dict[str, Any]]:
        """The last fences: which epoch began, and when, in seconds from `now`."""
        return [{"epoch": epoch, "at": _since(at, now)} for epoch, at in self._fences]

    def round_ms(self) -> dict[str, Any]:
        """Arrival of an observation to its chunk at the socket, over the last `ROUNDS` chunks."""
        rounds = sorted(self._rounds)
        return {"p50": _quantile(rounds, 0.5), "p99": _quantile(rounds, 0.99), "count": len(rounds)}

    def _find(self, number: int) -> Entry | None:
        entry = self._ring[number % KEPT]
        return entry if entry is not None and entry.number == number else None


def _number(entry: Entry) -> int:
    return entry.number


def _since(time: float | None, now: float) -> float | None:
    return None if time is None else round(time - now, 4)


def _quantile(rounds: list[float], share: float) -> float | None:
    """In milliseconds; the nearest rank, so that it is one that happened. None without any."""
    return round(rounds[max(0, math.ceil(share * len(rounds)) - 1)] * 1000, 3) if rounds else None
