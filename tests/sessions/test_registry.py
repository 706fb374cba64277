"""Who may stay: examples of each rule, then DESIGN's invariant 5 over random histories."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import pytest
from antiphon.sessions.errors import DuplicateSession
from antiphon.sessions.registry import (
    Admitted,
    AdmittedEvicting,
    Decision,
    Expired,
    Queued,
    Refused,
    Registry,
    WaitExpired,
    Warning,
)
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule


def registry(**changes: Any) -> Registry:
    settings = {"capacity": 2, "waiting": 1, "wait_timeout": 5.0, "evict_after": 30.0}
    return Registry(**{**settings, **changes})


def test_admits_up_to_capacity_then_queues_then_refuses() -> None:
    r = registry()
    assert [r.admit(name, 0.0) for name in "abc"] == [Admitted("a"), Admitted("b"), Queued("c", 1)]
    refused = r.admit("d", 0.0)
    assert isinstance(refused, Refused)
    assert refused.retry_after_s == 30
    assert (r.counts().active, r.counts().waiting, r.counts().refused_total) == (2, 1, 1)


def test_a_leaving_session_lets_the_first_waiting_in() -> None:
    r = registry(waiting=2)
    for name in "abcd":
        r.admit(name, 0.0)
    assert r.remove("b", 1.0) == [Admitted("c")]
    assert r.remove("b", 1.0) == []
    assert r.remove("a", 2.0) == [Admitted("d")]


def test_who_gives_up_waiting_makes_room() -> None:
    r = registry(waiting=2)
    for name in "abcd":
        r.admit(name, 0.0)
    assert r.remove("c", 1.0) == []
    assert r.remove("a", 1.0) == [Admitted("d")]


def test_a_full_registry_evicts_the_least_recently_active() -> None:
    r = registry()
    r.admit("a", 0.0)
    r.admit("b", 1.0)
    r.touch("a", 2.0)
    assert r.admit("c", 40.0) == AdmittedEvicting("c", "b")


def test_a_busy_session_is_never_evicted_and_never_idle() -> None:
    r = registry(idle_timeout=60.0)
    r.admit("a", 0.0)
    r.admit("b", 1.0)
    r.set_busy("a", True, 1.0)
    assert r.due(50.0) == []
    assert r.admit("c", 50.0) == AdmittedEvicting("c", "b")
    r.set_busy("c", True, 50.0)
    assert r.due(500.0) == []
    assert r.admit("d", 500.0) == Queued("d", 1)
    r.set_busy("a", False, 501.0)
    assert r.due(502.0) == []


def test_recent_activity_protects_for_the_grace_period() -> None:
    r = registry()
    r.admit("a", 0.0)
    r.admit("b", 0.0)
    assert r.admit("c", 29.0) == Queued("c", 1)
    assert r.next_deadline() == 30.0
    assert r.due(30.0) == [AdmittedEvicting("c", "a")]


def test_nobody_jumps_the_queue() -> None:
    r = registry(waiting=2)
    r.admit("a", 0.0)
    r.admit("b", 0.0)
    r.admit("c", 29.0)
    assert r.admit("d", 31.0) == Queued("d", 2)
    assert r.due(31.0) == [AdmittedEvicting("c", "a"), AdmittedEvicting("d", "b")]


def test_waiting_ends() -> None:
    r = registry()
    for name in "abc":
        r.admit(name, 0.0)
    assert r.next_deadline() == 5.0
    assert r.due(4.9) == []
    assert r.due(5.0) == [WaitExpired("c", 25)]
    assert r.due(6.0) == []


def test_idle_sessions_are_warned_once_and_expire() -> None:
    r = registry(idle_timeout=100.0, warn_before=20.0)
    r.admit("a", 0.0)
    assert r.next_deadline() == 80.0
    assert r.due(80.0) == [Warning("a", "idle", 20.0)]
    assert r.due(81.0) == []
    r.touch("a", 82.0)
    assert r.due(162.0) == [Warning("a", "idle", 20.0)]
    assert r.due(182.0) == [Expired("a", "idle")]
    assert r.counts().active == 0


def test_lifetime_ends_even_a_busy_session_and_admits_who_waits() -> None:
    r = registry(capacity=1, wait_timeout=1e9, max_lifetime=3600.0, warn_before=60.0)
    r.admit("a", 0.0)
    r.set_busy("a", True, 0.0)
    r.admit("b", 10.0)
    assert r.due(3540.0) == [Warning("a", "lifetime", 60.0)]
    assert r.due(3600.0) == [Expired("a", "lifetime"), Admitted("b")]


def test_a_warning_longer_than_the_limit_is_not_given() -> None:
    r = registry(idle_timeout=10.0, warn_before=20.0)
    r.admit("a", 0.0)
    assert r.due(9.0) == []


def test_without_limits_nothing_is_due() -> None:
    r = registry()
    r.admit("a", 0.0)
    assert r.next_deadline() is None
    assert r.due(1e9) == []


def test_an_id_is_registered_once() -> None:
    r = registry(capacity=1)
    r.admit("a", 0.0)
    r.admit("b", 0.0)
    for name in "ab":
        with pytest.raises(DuplicateSession):
            r.admit(name, 1.0)


def test_unknown_ids_are_ignored() -> None:
    r = registry()
    r.touch("x", 0.0)
    r.set_busy("x", True, 0.0)
    assert r.remove("x", 0.0) == []


@pytest.mark.parametrize(("capacity", "waiting"), [(0, 0), (1, -1)])
def test_senseless_sizes_are_refused(capacity: int, waiting: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        Registry(capacity, waiting, 1.0)


EIGHTHS = st.integers(0, 240).map(lambda eighths: eighths / 8)  # up to 30 s, exact in binary


class RegistryHistories(RuleBasedStateMachine):
    """Random histories against a simple model: who is in, who waits, who is busy, who was active when."""

    sessions = Bundle("sessions")

    @initialize(
        capacity=st.integers(1, 4),
        waiting=st.integers(0, 3),
        wait_timeout=st.sampled_from([0.0, 3.0, 20.0]),
        idle=st.sampled_from([15.0, 60.0, math.inf]),
        life=st.sampled_from([40.0, 200.0, math.inf]),
        warn=st.sampled_from([0.0, 5.0, 20.0]),
        grace=st.sampled_from([0.0, 2.0, 10.0]),
    )
    def start(self, capacity: int, waiting: int, wait_timeout: float, idle: float, life: float, warn: float, grace: float) -> None:
        self.r = Registry(capacity, waiting, wait_timeout, idle, life, warn, grace)
        self.now = 0.0
        self.made = 0
        self.active: dict[str, float] = {}
        self.born: dict[str, float] = {}
        self.busy: set[str] = set()
        self.queue: list[tuple[str, float]] = []
        self.told: dict[str, list[Decision]] = {}

    def tell(self, name: str, decision: Decision) -> None:
        self.told.setdefault(name, []).append(decision)

    def enter(self, name: str) -> None:
        assert len(self.active) < self.r.capacity
        self.active[name] = self.born[name] = self.now

    def leave(self, name: str) -> None:
        del self.active[name]
        self.busy.discard(name)

    def evict(self, victim: str) -> None:
        assert len(self.active) == self.r.capacity
        assert victim not in self.busy
        assert self.now - self.active[victim] >= self.r.evict_after
        assert self.active[victim] == min(when for name, when in self.active.items() if name not in self.busy)
        self.leave(victim)

    def follow(self, decisions: list[Decision]) -> None:
        """Carry decisions out on the model, checking each."""
        for decision in decisions:
            self.tell(decision.session_id, decision)
            match decision:
                case Admitted(name) | AdmittedEvicting(name):
                    if isinstance(decision, AdmittedEvicting):
                        self.tell(decision.victim_id, decision)
                        self.evict(decision.victim_id)
                    first, deadline = self.queue.pop(0)
                    assert (first, deadline > self.now) == (name, True)
                    self.enter(name)
                case WaitExpired(name, retry):
                    first, deadline = self.queue.pop(0)
                    assert (first, deadline <= self.now) == (name, True)
                    assert retry >= 1
                case Expired(name, reason):
                    if reason == "lifetime":
                        assert self.now - self.born[name] >= self.r.max_lifetime
                    else:
                        assert name not in self.busy
                        assert self.now - self.active[name] >= self.r.idle_timeout
                    self.leave(name)
                case Warning(name, _, left):
                    assert name in self.active
                    assert 0 < left <= self.r.warn_before
                case _:
                    pytest.fail(f"{decision} is no answer to time or to a departure")

    @rule(target=sessions)
    def admit(self) -> str:
        self.made += 1
        name = f"s{self.made}"
        decision = self.r.admit(name, self.now)
        self.tell(name, decision)
        match decision:
            case Admitted():
                assert not self.queue
                self.enter(name)
            case AdmittedEvicting(_, victim):
                assert not self.queue
                self.tell(victim, decision)
                self.evict(victim)
                self.enter(name)
            case Queued(_, position):
                self.queue.append((name, self.now + self.r.wait_timeout))
                assert position == len(self.queue)
            case Refused(_, retry):
                assert len(self.queue) == self.r.waiting
                assert len(self.active) == self.r.capacity or self.queue
                assert 1 <= retry <= 60
        return name

    @rule(name=sessions)
    def touch(self, name: str) -> None:
        self.r.touch(name, self.now)
        if name in self.active:
            self.active[name] = self.now

    @rule(name=sessions, busy=st.booleans())
    def set_busy(self, name: str, busy: bool) -> None:
        self.r.set_busy(name, busy, self.now)
        if name in self.active and busy != (name in self.busy):
            self.active[name] = self.now
            (self.busy.add if busy else self.busy.discard)(name)

    @rule(name=consumes(sessions))
    def remove(self, name: str) -> None:
        decisions = self.r.remove(name, self.now)
        if name in self.active:
            self.leave(name)
        self.queue = [entry for entry in self.queue if entry[0] != name]
        self.follow(decisions)

    @rule(seconds=EIGHTHS)
    def wait(self, seconds: float) -> None:
        """Time passes and nobody asks: what is overdue must not break anything."""
        self.now += seconds

    @rule(seconds=EIGHTHS)
    def wait_and_ask(self, seconds: float) -> None:
        self.now += seconds
        self.follow(self.r.due(self.now))
        assert self.r.due(self.now) == []
        deadline = self.r.next_deadline()
        assert deadline is None or deadline > self.now

    @rule()
    def jump_to_deadline(self) -> None:
        deadline = self.r.next_deadline()
        if deadline is None:
            return
        self.now = max(self.now, deadline)
        decisions = self.r.due(self.now)
        assert decisions
        self.follow(decisions)

    @invariant()
    def counts_agree(self) -> None:
        counts = self.r.counts()
        assert (counts.active, counts.busy, counts.waiting) == (len(self.active), len(self.busy), len(self.queue))
        assert counts.active <= self.r.capacity
        assert counts.waiting <= self.r.waiting
        for name, when in self.active.items():
            entry = self.r.entry(name)
            assert entry is not None
            assert entry.last_activity == when

    @invariant()
    def everybody_is_told_once(self) -> None:
        for name, decisions in self.told.items():
            answers = [d for d in decisions if isinstance(d, Queued | Refused | Admitted | AdmittedEvicting) and d.session_id == name]
            assert isinstance(answers[0], Queued) or len(answers) == 1
            assert len(answers) <= 2
            ends = [d for d in decisions if isinstance(d, Refused | Expired | WaitExpired) or getattr(d, "victim_id", None) == name]
            assert len(ends) <= 1
            if ends:
                assert name not in self.active
                assert decisions[-1] == ends[0]


RegistryHistories.TestCase.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)
TestRegistryHistories = RegistryHistories.TestCase
