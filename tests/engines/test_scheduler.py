"""The board as a state machine: whatever happens in whatever order, slots are never oversold and the urgent go first."""

from __future__ import annotations

import random

import pytest
from antiphon.engines.interface import WorkClass
from antiphon.engines.scheduler import Board, Seat, Ticket
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

MAX_WAITING = 3


class BoardMachine(RuleBasedStateMachine):
    @initialize(seats=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=3), seed=st.integers(0, 1000))
    def build(self, seats: list[tuple[int, int]], seed: int) -> None:
        self.board = Board(max_waiting=MAX_WAITING, generator=random.Random(seed))
        for number, (slots, reserved) in enumerate(seats):
            self.board.seats.append(Seat(replica_id=f"r{number}", slots=slots, reserved=min(reserved, slots - 1)))
        self.waiting: list[Ticket] = []
        self.running: list[Ticket] = []

    def settle(self) -> None:
        """Grant, and check that the order was right."""
        seated = self.board.grant()
        for ticket in seated:
            assert ticket.seat is not None
            # nobody more urgent was passed over who could have had a slot
            passed = [other for other in self.waiting if other not in seated and other.work_class < ticket.work_class]
            assert not passed
            if ticket.work_class is not WorkClass.ACTION:
                same = [other for other in self.waiting if other.work_class is ticket.work_class]
                assert all(other in seated for other in same[: same.index(ticket)])
            else:
                earlier = [o for o in self.waiting if o.work_class is WorkClass.ACTION and o.deadline < ticket.deadline]
                assert all(other in seated for other in earlier)
        self.running += seated
        self.waiting = [ticket for ticket in self.waiting if ticket not in seated]

    @rule(work_class=st.sampled_from(WorkClass), deadline=st.floats(0, 100), affinity=st.sampled_from([None, "a", "b", "c"]))
    def submit(self, work_class: WorkClass, deadline: float, affinity: str | None) -> None:
        ticket = Ticket(work_class=work_class, deadline=deadline, affinity=affinity)
        room = sum(other.work_class is work_class for other in self.waiting) < MAX_WAITING
        assert self.board.submit(ticket) is room
        if room:
            self.waiting.append(ticket)
        self.settle()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        ticket = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.board.release(ticket)
        self.board.release(ticket)  # harmless
        self.settle()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        ticket = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.board.withdraw(ticket)
        self.board.withdraw(ticket)  # harmless
        self.settle()

    @rule(data=st.data(), down=st.booleans())
    def change_limit(self, data: st.DataObject, down: bool) -> None:
        seat = data.draw(st.sampled_from(self.board.seats))
        seat.limit = 0 if down else seat.slots
        self.settle()

    @invariant()
    def slots_are_not_oversold(self) -> None:
        if not hasattr(self, "board"):
            return
        for seat in self.board.seats:
            mine = [ticket for ticket in self.running if ticket.seat is seat]
            assert len(mine) == seat.busy <= seat.slots
            assert all(count >= 0 for count in seat.running.values())
            assert sum(ticket.work_class is not WorkClass.REALTIME for ticket in mine) <= seat.slots - seat.reserved
        for work_class in WorkClass:
            assert self.board.waiting(work_class) == sum(ticket.work_class is work_class for ticket in self.waiting)

    @invariant()
    def nobody_waits_beside_a_free_slot(self) -> None:
        if hasattr(self, "board") and self.waiting:
            first = min(self.waiting, key=lambda ticket: ticket.work_class)
            assert not any(seat.admits(first.work_class) for seat in self.board.seats)


TestBoard = BoardMachine.TestCase
TestBoard.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def board(*slots: int) -> Board:
    made = Board(max_waiting=8, generator=random.Random(1))
    made.seats += [Seat(replica_id=f"r{number}", slots=count) for number, count in enumerate(slots)]
    return made


def seat_of(made: Board, affinity: str | None = None) -> str:
    ticket = Ticket(work_class=WorkClass.REALTIME, deadline=0.0, affinity=affinity)
    assert made.submit(ticket)
    assert made.grant() == [ticket]
    assert ticket.seat is not None
    return ticket.seat.replica_id


def test_affinity_is_kept_while_there_is_a_slot() -> None:
    made = board(3, 3)
    home = seat_of(made, "session")
    assert [seat_of(made, "session"), seat_of(made, "session")] == [home, home]
    assert seat_of(made, "session") != home


def test_load_is_spread() -> None:
    made = board(4, 4)
    assert sorted(seat_of(made) for _ in range(4)) == ["r0", "r0", "r1", "r1"]


def test_reserved_slots_are_for_realtime_work() -> None:
    made = Board(max_waiting=8, generator=random.Random(1))
    made.seats.append(Seat(replica_id="r", slots=2, reserved=1))
    first, second = (Ticket(work_class=WorkClass.BATCH, deadline=0.0) for _ in range(2))
    made.submit(first)
    made.submit(second)
    assert made.grant() == [first]
    assert seat_of(made) == "r"


@pytest.mark.parametrize(("slots", "reserved"), [(0, 0), (2, 2), (1, -1)])
def test_a_seat_that_cannot_be_is_refused(slots: int, reserved: int) -> None:
    with pytest.raises(ValueError, match="replica r"):
        Seat(replica_id="r", slots=slots, reserved=reserved)
