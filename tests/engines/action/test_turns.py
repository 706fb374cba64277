"""Earliest deadline first: who takes part in the next integration step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from antiphon.engines.action.turns import GATHER_S, GATHERING, PATIENT, choose, hopeless, may_begin
from hypothesis import given
from hypothesis import strategies as st


@dataclass
class Work:
    deadline: float
    arrived: float
    steps_left: int = 1


WORKS = st.builds(Work, st.floats(0, 10) | st.just(math.inf), st.floats(0, 10), st.integers(1, 8))


@given(st.lists(WORKS, max_size=20), st.integers(1, 8))
def test_nobody_who_waits_is_more_urgent_than_one_who_runs(works: list[Work], seats: int) -> None:
    def due(work: Work) -> float:
        return min(work.deadline, work.arrived + PATIENT) if work.deadline == math.inf else work.deadline

    chosen = choose(works, seats)
    assert len(chosen) == min(seats, len(works))
    ids = {id(work) for work in chosen}
    waiting = [work for work in works if id(work) not in ids]
    assert all(due(running) <= due(other) for running in chosen for other in waiting)


def test_work_without_a_deadline_does_not_wait_for_ever() -> None:
    patient = Work(math.inf, arrived=0.0)
    urgent = [Work(deadline=now / 10 + 0.2, arrived=now / 10) for now in range(40)]
    assert choose([*urgent[:3], patient], 1) == urgent[:1]
    assert choose([*urgent[20:], patient], 1) == [patient]


def test_work_that_cannot_be_done_in_time_is_known_early() -> None:
    work = Work(deadline=1.0, arrived=0.0, steps_left=6)
    assert not hopeless(work, 0.9, 0.01)
    assert hopeless(work, 0.95, 0.01)
    assert not hopeless(Work(math.inf, 0.0), 100.0, 1.0)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8), st.integers(0, 64), st.floats(0, 11))
def test_new_work_waits_for_company_only_in_a_crowd_and_for_a_moment(arrivals: list[float], running: int, now: float) -> None:
    fresh = [Work(math.inf, arrived) for arrived in arrivals]
    begins = may_begin(fresh, running, now)
    if running < GATHERING or len(fresh) >= running or now - min(arrivals) >= GATHER_S:
        assert begins
    elif len(fresh) < running / 2:
        assert not begins
