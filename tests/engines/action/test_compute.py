"""The compute thread: shared steps, joining and leaving between two of them, deadlines, and faults that stay with their row."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from antiphon.engines.action.compute import Compute, Work
from antiphon.engines.action.step_policy import Actions
from antiphon.engines.errors import EngineBusyError, EngineError, EngineUnavailableError, InvalidRequestError
from antiphon.engines.messages import ActBody

PATIENCE = 10.0


@dataclass(eq=False)
class Row:
    name: str
    seed: int
    steps: int = 4
    step: int = 0
    prefix_length: int = 0


class Steps:
    """A policy that counts. Each step waits for leave, so that a test decides what happens between two."""

    def __init__(self) -> None:
        self.taken: list[list[str]] = []
        self.leave = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)

    def prepare(self, body: ActBody, seed: int) -> Row:
        if body.prompt == "malformed":
            raise InvalidRequestError("it is malformed")
        return Row(body.prompt, seed)

    def begin(self, rows: Sequence[Row]) -> None:
        pass

    def advance(self, rows: Sequence[Row]) -> None:
        self.entered.release()
        assert self.leave.acquire(timeout=PATIENCE)
        if any(row.name == "poison" for row in rows):
            raise RuntimeError("matrix on fire")
        self.taken.append([row.name for row in rows])
        for row in rows:
            row.step += 1

    def finish(self, row: Row) -> Actions:
        return np.full((2, 1), np.nan if row.name == "not finite" else row.seed, np.float32)


class Ended:
    """What a work's callbacks were told."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.done = threading.Event()
        self.outcome: Actions | EngineError | None = None

    def end(self, outcome: Actions | EngineError) -> None:
        assert not self.done.is_set(), "told twice"
        self.outcome = outcome
        self.done.set()

    def wait(self) -> Actions | EngineError | None:
        assert self.done.wait(PATIENCE)
        return self.outcome


@contextmanager
def computing(steps: Steps, seats: int = 8, max_works: int = 8) -> Iterator[Compute[Row]]:
    compute: Compute[Row] = Compute("test", lambda: steps, seats=seats, max_works=max_works)
    compute.open()
    yield compute
    steps.leave.release(1000)
    assert compute.close(PATIENCE)


def put(compute: Compute[Row], name: str, seed: int = 1, deadline: float = float("inf")) -> tuple[Work[Row], Ended]:
    ended = Ended()
    work: Work[Row] = Work(
        body=ActBody(observation={}, prompt=name), seed=seed, on_begun=ended.begun.set, on_ended=ended.end, deadline=deadline
    )
    compute.put(work)
    return work, ended


def test_late_comers_join_at_the_next_step() -> None:
    steps = Steps()
    with computing(steps) as compute:
        _, first = put(compute, "a", seed=5)
        assert steps.entered.acquire(timeout=PATIENCE)
        second = put(compute, "b")[1]
        steps.leave.release(20)
        outcome = first.wait()
        assert isinstance(outcome, np.ndarray)
        assert outcome[0, 0] == 5
        second.wait()
    assert steps.taken == [["a"], ["a", "b"], ["a", "b"], ["a", "b"], ["b"]]


def test_aborted_work_leaves_at_the_next_step_and_is_not_told() -> None:
    steps = Steps()
    with computing(steps) as compute:
        work, first = put(compute, "a")
        second = put(compute, "b")[1]
        assert steps.entered.acquire(timeout=PATIENCE)
        compute.abort(work)
        steps.leave.release(20)
        second.wait()
        assert not first.done.is_set()
    assert sum("a" in names for names in steps.taken) <= 1


def test_the_earlier_deadline_takes_the_seat_between_two_steps() -> None:
    steps = Steps()
    now = time.monotonic()
    with computing(steps, seats=1) as compute:
        slow = put(compute, "later", deadline=now + 60)[1]
        assert steps.entered.acquire(timeout=PATIENCE)
        urgent = put(compute, "urgent", deadline=now + 30)[1]
        steps.leave.release(20)
        slow.wait()
        urgent.wait()
    assert [names[0] for names in steps.taken] == ["later", *["urgent"] * 4, *["later"] * 3]


def test_what_cannot_be_done_in_time_is_refused() -> None:
    steps = Steps()
    steps.leave.release(100)
    with computing(steps) as compute:
        outcome = put(compute, "a", deadline=time.monotonic() - 0.01)[1].wait()
        assert isinstance(outcome, EngineBusyError)
        assert outcome.code == "deadline_missed"
    assert steps.taken == []


def test_a_row_that_breaks_a_step_fails_alone() -> None:
    steps = Steps()
    with computing(steps) as compute:
        good = put(compute, "a", seed=3)[1]
        assert steps.entered.acquire(timeout=PATIENCE)
        bad, malformed, infinite = (put(compute, name)[1] for name in ("poison", "malformed", "not finite"))
        steps.leave.release(100)
        assert isinstance(good.wait(), np.ndarray)
        poisoned = bad.wait()
        assert isinstance(poisoned, EngineError)
        assert "matrix on fire" in str(poisoned)
        assert isinstance(malformed.wait(), InvalidRequestError)
        outcome = infinite.wait()
        assert isinstance(outcome, EngineError)
        assert outcome.code == "not_finite"


def test_bounds_and_the_end() -> None:
    steps = Steps()
    with computing(steps, max_works=2) as compute:
        one = put(compute, "a")[1]
        put(compute, "b")
        with pytest.raises(EngineBusyError):
            put(compute, "c")
    assert one.done.is_set()
    with pytest.raises(EngineUnavailableError):
        put(compute, "d")


def test_closing_fails_what_runs() -> None:
    steps = Steps()
    with computing(steps) as compute:
        running = put(compute, "a")[1]
        assert steps.entered.acquire(timeout=PATIENCE)
        closing = threading.Thread(target=compute.close, args=(PATIENCE,))
        closing.start()
        while compute.alive:
            time.sleep(0.001)
        steps.leave.release(1)
        closing.join(PATIENCE)
        assert isinstance(running.wait(), EngineUnavailableError)


def test_an_error_while_loading_is_raised() -> None:
    def load() -> Steps:
        raise EngineError("no weights")

    with pytest.raises(EngineError, match="no weights"):
        Compute("test", load, seats=1, max_works=1).open()
