"""The robot session, step by step: what supersedes what, what a fence does, what comes too late."""

from __future__ import annotations

import math
from typing import Any

from antiphon.robot.session import (
    Abort,
    Answer,
    Begun,
    Command,
    Connected,
    Disconnected,
    EpisodeOver,
    Failed,
    Fence,
    Made,
    Observed,
    Over,
    Request,
    ResetAsked,
    RobotSession,
    Start,
    Status,
    Tick,
)
from antiphon.robot.wire import Marks
from antiphon.sessions.inbound import EndSession


def session() -> RobotSession:
    made = RobotSession("arm", chunk_s=0.8, now=0.0)
    made.handle(Connected(), 0.0)
    return made


def request(number: int, deadline: float = math.inf, **marks: Any) -> Request:
    return Request(number=number, marks=Marks(**marks), deadline=deadline)


def statuses(commands: list[Command]) -> list[tuple[int, Status]]:
    return [(command.request.number, command.status) for command in commands if isinstance(command, Answer)]


def test_an_observation_becomes_a_chunk() -> None:
    arm = session()
    assert arm.handle(Observed(request(1)), 0.0) == [Start(request(1), 0)]
    assert arm.busy(0.0)
    (answer,) = arm.handle(Made(1, "chunk"), 0.1)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.chunk, answer.chunk_id) == (Status.CHUNK, "chunk", 1)
    assert arm.release(answer, 0.1) is answer
    assert arm.busy(0.5), "it executes the chunk"
    assert not arm.busy(1.0)


def test_a_newer_observation_takes_the_place_of_one_that_has_not_begun() -> None:
    arm = session()
    arm.handle(Observed(request(1, sequence=1)), 0.0)
    done = arm.handle(Observed(request(2, sequence=2)), 0.0)
    assert done[0] == Abort(1)
    assert statuses(done) == [(1, Status.SUPERSEDED)]
    assert done[-1] == Start(request(2, sequence=2), 0)


def test_a_chunk_that_has_begun_is_finished_and_only_the_newest_observation_waits() -> None:
    arm = session()
    arm.handle(Observed(request(1)), 0.0)
    arm.handle(Begun(1), 0.0)
    assert arm.handle(Observed(request(2)), 0.0) == []
    assert statuses(arm.handle(Observed(request(3)), 0.0)) == [(2, Status.SUPERSEDED)]
    done = arm.handle(Made(1, "chunk"), 0.1)
    assert statuses(done) == [(1, Status.CHUNK)]
    assert done[-1] == Start(request(3), 0)


def test_an_observation_that_comes_out_of_order_is_superseded() -> None:
    arm = session()
    arm.handle(Observed(request(1, sequence=5)), 0.0)
    assert statuses(arm.handle(Observed(request(2, sequence=5)), 0.0)) == [(2, Status.SUPERSEDED)]
    assert statuses(arm.handle(Observed(request(3, sequence=4)), 0.0)) == [(3, Status.SUPERSEDED)]


def test_a_reset_fences_what_runs_and_what_waits() -> None:
    arm = session()
    arm.handle(Observed(request(1, sequence=7)), 0.0)
    arm.handle(Begun(1), 0.0)
    arm.handle(Observed(request(2, sequence=8)), 0.0)
    done = arm.handle(ResetAsked(request(3)), 0.1)
    assert done[:2] == [Fence(1), Abort(1)]
    assert statuses(done) == [(1, Status.FENCED), (2, Status.FENCED), (3, Status.RESET)]
    assert arm.handle(Made(1, "stale"), 0.2) == []
    assert arm.dropped == 1
    assert arm.handle(Observed(request(4, sequence=1)), 0.3) == [Start(request(4, sequence=1), 1)], "sequence numbers begin anew"


def test_a_chunk_in_the_outbox_does_not_leave_after_a_fence() -> None:
    arm = session()
    arm.handle(Observed(request(1)), 0.0)
    (answer,) = arm.handle(Made(1, "chunk"), 0.1)
    assert isinstance(answer, Answer)
    arm.handle(ResetAsked(request(2)), 0.2)
    released = arm.release(answer, 0.2)
    assert (released.status, released.chunk) == (Status.FENCED, None)


def test_another_episode_is_a_fence_and_an_episode_that_is_over_does_not_come_back() -> None:
    arm = session()
    arm.handle(Observed(request(1, episode="a")), 0.0)
    done = arm.handle(Observed(request(2, episode="b")), 0.0)
    assert statuses(done) == [(1, Status.FENCED)]
    assert done[-1] == Start(request(2, episode="b"), 2)
    (answer,) = arm.handle(Observed(request(3, episode="a")), 0.0)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.code) == (Status.REFUSED, "episode_over")
    assert statuses(arm.handle(Made(2, "chunk"), 0.1)) == [(2, Status.CHUNK)], "the running episode is undisturbed"


def test_what_is_late_is_said_to_be_late() -> None:
    arm = session()
    assert statuses(arm.handle(Observed(request(1, deadline=1.0, deadline_ms=0.0)), 1.0)) == [(1, Status.LATE)]
    arm.handle(Observed(request(2, deadline=1.1)), 1.0)
    assert arm.next_deadline() == 1.1
    done = arm.handle(Tick(), 1.1)
    assert done[0] == Abort(2)
    assert statuses(done) == [(2, Status.LATE)]
    arm.handle(Observed(request(3, deadline=1.3)), 1.2)
    assert statuses(arm.handle(Failed(3, "deadline_missed", "No."), 1.25)) == [(3, Status.LATE)]
    arm.handle(Observed(request(4, deadline=1.5)), 1.4)
    (answer,) = arm.handle(Made(4, "chunk"), 1.45)
    assert isinstance(answer, Answer)
    assert arm.release(answer, 1.51).status is Status.LATE


def test_a_waiting_observation_is_worked_on_when_the_running_one_fails() -> None:
    arm = session()
    arm.handle(Observed(request(1)), 0.0)
    arm.handle(Begun(1), 0.0)
    arm.handle(Observed(request(2)), 0.0)
    done = arm.handle(Failed(1, "engine_error", "It broke."), 0.1)
    assert statuses(done) == [(1, Status.FAILED)]
    assert done[-1] == Start(request(2), 0)


def test_a_lost_connection_is_a_fence_and_the_session_goes_on() -> None:
    arm = session()
    arm.handle(Observed(request(1)), 0.0)
    done = arm.handle(Disconnected(), 0.1)
    assert Abort(1) in done
    assert arm.state(0.2) == "leased"
    arm.handle(Connected(), 0.3)
    assert arm.handle(Observed(request(2)), 0.4) == [Start(request(2), 1)]


def test_an_ended_session_answers_everything_with_its_end() -> None:
    arm = session()
    arm.handle(Observed(request(1)), 0.0)
    done = arm.handle(EndSession("session_evicted", "Gone.", 4000), 0.1)
    assert statuses(done) == [(1, Status.FENCED)]
    (answer,) = arm.handle(Observed(request(2)), 0.2)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.code) == (Status.FENCED, "session_evicted")
    assert arm.handle(EndSession("server_draining", "Stop.", 1012), 0.3) == []


def counted(commands: list[Command]) -> list[tuple[str | int | None, str]]:
    return [(command.episode, command.outcome) for command in commands if isinstance(command, EpisodeOver)]


def test_an_outcome_is_of_the_episode_that_ends() -> None:
    arm = session()
    assert counted(arm.handle(Observed(request(1, episode="a")), 0.0)) == []
    assert counted(arm.handle(Observed(request(2, episode="b", outcome="success")), 0.1)) == [("a", "success")]
    assert counted(arm.handle(ResetAsked(request(3, outcome="failure")), 0.2)) == [("b", "failure")]
    assert counted(arm.handle(ResetAsked(request(4, outcome="failure")), 0.3)) == [], "a reset that is sent again"
    assert counted(arm.handle(Observed(request(5, episode="c")), 0.4)) == []
    assert counted(arm.handle(Disconnected(), 0.5)) == [], "a robot that comes back goes on with its episode"
    assert counted(arm.handle(EndSession("session_evicted", "Gone.", 4000), 0.6)) == [("c", "unknown")]
    assert counted(arm.handle(Over(), 0.7)) == []


def test_an_outcome_of_what_goes_on_is_refused() -> None:
    arm = session()
    for marks in ({"outcome": "success"}, {"outcome": "success", "episode": "a"}):
        arm.handle(Observed(request(1, episode="a")), 0.0)
        (answer,) = arm.handle(Observed(request(2, **marks)), 0.1)
        assert isinstance(answer, Answer)
        assert (answer.status, answer.code) == (Status.REFUSED, "invalid_outcome")
        assert "reset" in answer.message
    assert counted(arm.handle(Over(), 0.2)) == [("a", "unknown")]


def test_an_episode_in_which_nothing_was_asked_counts_if_the_robot_says_so() -> None:
    arm = session()
    assert counted(arm.handle(ResetAsked(request(1)), 0.0)) == []
    assert counted(arm.handle(ResetAsked(request(2, outcome="success")), 0.1)) == [(None, "success")]
