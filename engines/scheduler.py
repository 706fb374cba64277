"""Who gets which slot next: the pool's decisions, without I/O, so that they can be tested by the million.

A `Board` knows the replicas of one engine name and the tickets that hold or wait for their slots. The rules:

- A replica never runs more tickets than it has slots.
- Work of other classes than realtime never takes the `reserved` slots of a replica.
- The more urgent class is served first; within ACTION the earliest deadline first, within the others first come, first served.
- A ticket goes to the replica it was last on (`affinity`) when that has a slot, else to the less loaded of two drawn at random.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from .interface import WorkClass

MAX_AFFINITIES = 16_384
"""Bound of the affinity map; policy: the least recently used entry is forgotten, which costs a warm prefix cache, no more."""


@dataclass(eq=False, slots=True, kw_only=True)
class Seat:
    """A replica as the board sees it. `limit` is how many tickets it may run now: `slots` when well, 1 on probation, 0 when down."""

    replica_id: str
    slots: int
    reserved: int = 0
    limit: int = -1
    running: Counter[WorkClass] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"replica {self.replica_id} needs at least one slot, not {self.slots}")
        if not 0 <= self.reserved < self.slots:
            raise ValueError(
                f"replica {self.replica_id}: reserved must lie between 0 and slots - 1 = {self.slots - 1}, not {self.reserved}"
            )
        if self.limit < 0:
            self.limit = self.slots

    @property
    def busy(self) -> int:
        return self.running.total()

    def admits(self, work_class: WorkClass) -> bool:
        """Has it a free slot for this class of work?"""
        if self.busy >= self.limit:
            return False
        if work_class is WorkClass.REALTIME:
            return True
        others = self.busy - self.running[WorkClass.REALTIME]
        return others < self.slots - self.reserved


@dataclass(eq=False, slots=True, kw_only=True)
class Ticket:
    """A wish for a slot. `seat` is set while it holds one."""

    work_class: WorkClass
    deadline: float
    affinity: str | None = None
    seat: Seat | None = None


class Board:
    """The seats and the waiting tickets of one engine name.

    Bound of the waiting line: `max_waiting` per class of work; policy: `submit` returns False beyond it (the caller is told
    that the engine is busy).
    """

    def __init__(self, *, max_waiting: int, generator: random.Random) -> None:
        self.seats: list[Seat] = []
        self._max_waiting = max_waiting
        self._random = generator
        self._waiting: dict[WorkClass, list[tuple[float, int, Ticket]]] = {work_class: [] for work_class in WorkClass}
        self._last_seat: OrderedDict[str, str] = OrderedDict()
        self._order = 0

    def waiting(self, work_class: WorkClass) -> int:
        return len(self._waiting[work_class])

    def submit(self, ticket: Ticket) -> bool:
        """Put a ticket in the line. False: the line of its class is full."""
        if self.waiting(ticket.work_class) >= self._max_waiting:
            return False
        self._order += 1
        key = ticket.deadline if ticket.work_class is WorkClass.ACTION else 0.0
        heapq.heappush(self._waiting[ticket.work_class], (key, self._order, ticket))
        return True

    def withdraw(self, ticket: Ticket) -> None:
        """A waiting ticket is no longer wanted. Harmless when it does not wait."""
        line = self._waiting[ticket.work_class]
        for index, (_, _, waiting) in enumerate(line):
            if waiting is ticket:
                del line[index]
                heapq.heapify(line)
                return

    def release(self, ticket: Ticket) -> None:
        """A ticket gives its slot back. Harmless when it holds none."""
        if ticket.seat is not None:
            ticket.seat.running[ticket.work_class] -= 1
            ticket.seat = None

    def grant(self) -> list[Ticket]:
        """Seat as many waiting tickets as the slots allow, the most urgent first, and return them."""
        seated: list[Ticket] = []
        for work_class in WorkClass:
            line = self._waiting[work_class]
            while line:
                ticket = line[0][2]
                seat = self._choose(ticket)
                if seat is None:
                    return seated  # what a more urgent class cannot have, a less urgent one cannot have either
                heapq.heappop(line)
                self._seat(ticket, seat)
                seated.append(ticket)
        return seated

    def drain(self) -> list[Ticket]:
        """Take every waiting ticket out of the line."""
        tickets = [entry[2] for line in self._waiting.values() for entry in line]
        for line in self._waiting.values():
            line.clear()
        return tickets

    def _choose(self, ticket: Ticket) -> Seat | None:
        free = [seat for seat in self.seats if seat.admits(ticket.work_class)]
        if not free:
            return None
        if ticket.affinity is not None:
            wanted = self._last_seat.get(ticket.affinity)
            for seat in free:
                if seat.replica_id == wanted:
                    return seat
        pair = free if len(free) <= 2 else self._random.sample(free, 2)
        return min(pair, key=lambda seat: seat.busy / seat.slots)

    def _seat(self, ticket: Ticket, seat: Seat) -> None:
        seat.running[ticket.work_class] += 1
        ticket.seat = seat
        if ticket.affinity is not None:
            self._last_seat[ticket.affinity] = seat.replica_id
            self._last_seat.move_to_end(ticket.affinity)
            if len(self._last_seat) > MAX_AFFINITIES:
                self._last_seat.popitem(last=False)
