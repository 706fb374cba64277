"""The robot session under random interleavings of robots, engines, clocks and endings."""

from __future__ import annotations

import math
from typing import Any

from antiphon.robot.session import (
    Abort,
    Answer,
    Begun,
    Close,
    Connected,
    Disconnected,
    EpisodeOver,
    Failed,
    Fence,
    Made,
    Observed,
    Over,
    Rejected,
    Request,
    ResetAsked,
    RobotSession,
    Start,
    Status,
    Tick,
)
from antiphon.robot.wire import Marks
from antiphon.sessions.inbound import EndSession
from antiphon.tests.sessions.profile import bounded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

CHUNK_S = 0.8


class RobotMachine(RuleBasedStateMachine):
    """Keeps its own books of what was asked when, and holds every command against them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.session = RobotSession("s", chunk_s=CHUNK_S, now=self.now)
        self.requests: dict[int, Request] = {}
        self.epoch_of: dict[int, int] = {}
        self.answers: dict[int, Answer] = {}
        self.outbox: list[Answer] = []
        self.engine: dict[int, int] = {}
        """Works that the engine has: number -> epoch. Aborted ones may still finish: they are in `ghosts`."""
        self.ghosts: set[int] = set()
        self.started: list[int] = []
        self.sequence = 0
        self.episode = 0
        self.executed: list[Answer] = []
        self.ended = False
        self.asked_in_episode = False
        """Something was asked since the last time that an episode was counted."""
        self.counted = 0
        """Episodes that were counted."""

    def feed(self, event: Any) -> None:
        before = self.session.epoch
        counted = 0
        for command in self.session.handle(event, self.now):
            match command:
                case Start(request=request, epoch=epoch):
                    assert epoch == self.session.epoch
                    assert not self.engine, "at most one request is worked on"
                    assert request.deadline > self.now, "work that is late already is not begun"
                    assert request.number not in self.answers
                    assert request.number not in self.started
                    self.started.append(request.number)
                    self.engine[request.number] = epoch
                case Abort(number=number):
                    del self.engine[number]
                    self.ghosts.add(number)
                case Answer(request=request):
                    assert request.number not in self.answers, "one answer a request"
                    self.answers[request.number] = command
                    self.outbox.append(command)
                    if command.status is Status.CHUNK:
                        assert command.epoch == self.session.epoch
                        assert request.deadline >= self.now
                case Fence(epoch=epoch):
                    assert epoch == before + 1
                    assert epoch == self.session.epoch
                case EpisodeOver(outcome=outcome):
                    counted += 1
                    self.count(event, outcome)
                case Close():
                    self.ended = True
        assert counted <= 1, "an event ends one episode at most"
        if self.session.epoch > before:
            assert not self.engine.keys() & {number for number, epoch in self.engine.items() if epoch < self.session.epoch}

    def count(self, event: Any, outcome: str) -> None:
        """An episode is counted: it has ended, and what is said of it is what the robot said with the request that ended it."""
        assert not self.ended, "nothing is counted after the end"
        assert isinstance(event, Observed | ResetAsked | EndSession | Over), "only these end an episode"
        told = event.request.marks.outcome if isinstance(event, Observed | ResetAsked) else None
        assert outcome == (told or "unknown")
        if isinstance(event, Observed):
            assert event.request.marks.episode == self.session.episode, "another one has begun"
        assert self.asked_in_episode or (told is not None and self.counted == 0), "never twice, and an empty one only if the robot says so"
        self.counted += 1
        self.asked_in_episode = False

    def request(self, deadline: float | None, sequenced: bool, stale: bool, episode: int | None, outcome: str | None = None) -> Request:
        number = len(self.requests) + 1
        if sequenced and not stale:
            self.sequence += 1
        marks = Marks(
            sequence=(self.sequence - 1 if stale else self.sequence) if sequenced and self.sequence else None,
            deadline_ms=None if deadline is None else deadline * 1000,
            episode=episode,
            outcome=outcome,
        )
        until = math.inf if deadline is None else self.now + deadline
        request = self.requests[number] = Request(number=number, arrived=self.now, marks=marks, deadline=until)
        return request

    # ---- what happens -----------------------------------------------------------------------------------------------

    @rule(
        deadline=st.sampled_from([None, None, 0.0, 0.05, 0.15, 0.3]),
        sequenced=st.booleans(),
        stale=st.sampled_from([False, False, False, True]),
        episode=st.sampled_from(["none", "none", "none", "same", "new", "old"]),
        outcome=st.sampled_from([None, None, "success", "failure"]),
    )
    def observe(self, deadline: float | None, sequenced: bool, stale: bool, episode: str, outcome: str | None) -> None:
        self.episode += episode == "new"
        named = {"none": None, "same": self.episode, "new": self.episode, "old": max(0, self.episode - 1)}[episode]
        request = self.request(deadline, sequenced, stale, named, outcome)
        before = (self.session.episode, self.session.epoch, self.counted)
        self.feed(Observed(request))
        answer = self.answers.get(request.number)
        if outcome is not None and not self.ended and named in (None, before[0]):
            assert answer is not None
            assert (answer.status, answer.code) == (Status.REFUSED, "invalid_outcome"), "of what goes on nobody knows how it went"
        if answer is not None and answer.status is Status.REFUSED:
            assert (self.session.episode, self.session.epoch, self.counted) == before, "what is refused changes nothing"
        elif not self.ended:
            self.asked_in_episode = True
        self.epoch_of[request.number] = self.session.epoch

    @rule(margin=st.sampled_from([0.05, 0.15, 0.4]))
    def make_just_in_time(self, margin: float) -> None:
        """A chunk that is ready at once, whose deadline comes while it waits for the socket."""
        request = self.request(margin, False, False, None)
        self.feed(Observed(request))
        self.asked_in_episode = self.asked_in_episode or not self.ended
        self.epoch_of[request.number] = self.session.epoch
        if request.number in self.engine:
            del self.engine[request.number]
            self.feed(Made(request.number, f"chunk {request.number}"))

    def reset(self, outcome: str | None) -> None:
        before, counted = self.session.epoch, self.counted
        request = self.request(None, False, False, None, outcome)
        due = not self.ended and (self.asked_in_episode or (outcome is not None and not counted))
        self.feed(ResetAsked(request))
        assert self.counted == counted + due
        assert self.answers[request.number].status is (Status.FENCED if self.ended else Status.RESET)
        assert self.ended or self.session.epoch == before + 1
        assert not self.engine
        self.sequence = 0 if not self.ended else self.sequence

    def reject(self) -> None:
        request = self.request(None, False, False, None)
        self.feed(Rejected(request, "wrong_shape", "No."))
        assert self.answers[request.number].status is Status.REFUSED

    @rule()
    def begin(self) -> None:
        for number in [*self.engine, *self.ghosts][:1]:
            self.feed(Begun(number))

    @rule(ghost=st.booleans())
    def finish(self, ghost: bool) -> None:
        works = sorted(self.ghosts) if ghost else list(self.engine)
        if works:
            number = works[0]
            self.ghosts.discard(number)
            self.engine.pop(number, None)
            before = set(self.answers)
            self.feed(Made(number, f"chunk {number}"))
            if ghost:
                assert not {n for n in set(self.answers) - before if self.answers[n].status is Status.CHUNK}, "nothing stale is answered"

    @rule(
        what=st.sampled_from(["reset", "reject", "disconnect", "end", "fail", "miss"]),
        outcome=st.sampled_from([None, None, "success", "failure"]),
    )
    def disturb(self, what: str, outcome: str | None) -> None:
        match what:
            case "reset":
                self.reset(outcome)
            case "reject":
                self.reject()
            case "disconnect":
                self.disconnect()
            case "end":
                self.end()
            case _:
                self.fail(what == "miss")

    def fail(self, late: bool) -> None:
        for number in list(self.engine):
            self.engine.pop(number)
            self.feed(Failed(number, "deadline_missed" if late else "engine_error", "It failed."))
            assert self.answers[number].status is (Status.LATE if late else Status.FAILED)

    @rule(seconds=st.floats(0, 0.4))
    def wait(self, seconds: float) -> None:
        """Time passes; the timer rings when something is due."""
        end = self.now + seconds
        while (due := self.session.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.feed(Tick())
        self.now = end

    @rule()
    def stall(self) -> None:
        """The event loop is held up: time passes and no timer rings."""
        self.now += 0.2

    def disconnect(self) -> None:
        self.feed(Disconnected())
        assert not self.engine
        self.sequence = 0
        self.feed(Connected())

    @rule()
    def send(self) -> None:
        """The socket takes the next answer."""
        if not self.outbox:
            return
        answer = self.outbox.pop(0)
        released = self.session.release(answer, self.now)
        assert released.request is answer.request
        if released.status is Status.CHUNK:
            number = released.request.number
            assert released.chunk == f"chunk {number}", "each gets its own chunk"
            assert not self.ended
            assert released.epoch == self.session.epoch == self.epoch_of[number]
            assert released.request.deadline >= self.now
            newest = max((old.request.number for old in self.executed), default=0)
            assert number > newest, "never an older observation's chunk after a newer one's"
            self.executed.append(released)
            assert self.session.busy(self.now)
        else:
            assert released.chunk is None
            assert released.chunk_id is None

    def end(self) -> None:
        if len(self.requests) > 12:
            self.feed(EndSession("session_evicted", "Gone.", 4000))
            assert not self.engine

    @invariant()
    def every_request_is_answered_or_in_hand(self) -> None:
        open_ = {number for number in self.requests if number not in self.answers}
        assert len(open_) <= 2, "one is worked on, one waits"
        assert set(self.engine) <= open_

    @invariant()
    def chunk_ids_grow(self) -> None:
        ids = [answer.chunk_id for answer in self.executed if answer.chunk_id is not None]
        assert ids == sorted(set(ids))

    @invariant()
    def states_have_words(self) -> None:
        assert self.session.state(self.now) in ("ended", "inferring", "executing", "idle", "leased")

    def teardown(self) -> None:
        due = self.asked_in_episode and not self.ended
        counted = self.counted
        if self.counted % 2:
            self.feed(Over())
        self.feed(EndSession("server_draining", "The server stops.", 1012))
        self.feed(Over())
        assert self.counted == counted + due, "the last episode is counted, too, and once"
        assert set(self.answers) == set(self.requests), "in the end everybody has been answered"


TestRobotMachine = RobotMachine.TestCase
TestRobotMachine.settings = bounded(200, 3000, stateful_step_count=40)
