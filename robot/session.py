"""The robot session: which observation is worked on, and which chunk may still be executed. Without I/O; the clock comes in.

Invariants (tests/robot/test_session_machine.py):
1. Each request gets exactly one answer.
2. An answer that leaves as a chunk (`release`) was made for the present epoch, before its deadline, from an observation that no newer
   one had superseded.
3. A fence aborts the work, answers everything that waited, and makes whatever comes of it later harmless.
4. At most one request is worked on and one waits.
5. An episode is counted at most once, at its end: by the outcome that the robot tells, or as unknown if anything was asked in it.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..sessions.inbound import EndSession, Warn
from .wire import Marks

UNKNOWN = "unknown"
"""How an episode went of which the robot said nothing."""
MAX_OVER = 64
"""Ended episodes that are remembered; policy: the oldest is forgotten."""


class Status(enum.StrEnum):
    """How a request was answered. Only a `chunk` may be executed."""

    CHUNK = "chunk"
    SUPERSEDED = "superseded"
    LATE = "late"
    FENCED = "fenced"
    REFUSED = "refused"
    FAILED = "failed"
    RESET = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of the robot. `number` counts the session's requests; `deadline` is on the session's clock; `body` is for the engine."""

    number: int
    arrived: float = 0.0
    marks: Marks = field(default_factory=Marks)
    deadline: float = math.inf
    body: Any = None


# ---- what happens ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection was attached."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is gone; whatever was in flight is fenced."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A good observation."""

    request: Request


@dataclass(frozen=True, slots=True)
class Rejected:
    """A bad request: it must be answered, and changes nothing else."""

    request: Request
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ResetAsked:
    """The robot begins anew."""

    request: Request


@dataclass(frozen=True, slots=True)
class Begun:
    """The engine has begun to work on a request."""

    number: int


@dataclass(frozen=True, slots=True)
class Made:
    """The engine has made the chunk of a request."""

    number: int
    chunk: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine could not; `code` "deadline_missed": not in time."""

    number: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Over:
    """The session is taken out of the books; nobody will ask in it any more."""


Event: TypeAlias = Connected | Disconnected | Observed | Rejected | ResetAsked | Begun | Made | Failed | Tick | Over | EndSession | Warn

# ---- what is to be done ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Have the engine work on a request."""

    request: Request
    epoch: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Stop the engine's work on a request."""

    number: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Everything made for an epoch before this one is stale."""

    epoch: int


@dataclass(frozen=True, slots=True)
class EpisodeOver:
    """Count an episode. `outcome`: one of `wire.OUTCOMES`, or `UNKNOWN`."""

    episode: str | int | None
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer a request; `RobotSession.release` must be asked at the last moment before it leaves."""

    request: Request
    status: Status
    epoch: int
    code: str = ""
    message: str = ""
    chunk: Any = None
    chunk_id: int | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """Tell the robot, after what was answered, and close its connection."""

    close_code: int
    code: str
    message: str


Command: TypeAlias = Start | Abort | Fence | EpisodeOver | Answer | Close


class RobotSession:
    """See the module's docstring. `chunk_s`: how long a robot executes a chunk; so long after one the session is busy."""

    def __init__(self, session_id: str, *, chunk_s: float, now: float) -> None:
        self.id = session_id
        self.epoch = 0
        self.episode: str | int | None = None
        self.attached = False
        self.ended: EndSession | None = None
        self.last_activity = now
        self.warning = ""
        """A sentence that the next reply should carry."""
        self.dropped = 0
        """Results of the engine that came after a fence."""
        self._chunk_s = chunk_s
        self._working: Request | None = None
        self._begun = False
        self._waiting: Request | None = None
        self._last_sequence: int | None = None
        self._over: deque[str | int] = deque(maxlen=MAX_OVER)
        self._asked = False
        """Something was asked in the present episode."""
        self._counted = False
        """An episode was counted, and nothing was asked since."""
        self._chunks = 0
        self._executing_until = -math.inf

    # ---- asked by others --------------------------------------------------------------------------------------------

    def busy(self, now: float) -> bool:
        """Is it working, or executing a chunk?"""
        return self.ended is None and (self._working is not None or now < self._executing_until)

    def state(self, now: float) -> str:
        """A word for the operator."""
        if self.ended is not None:
            return "ended"
        if self._working is not None:
            return "inferring"
        if now < self._executing_until:
            return "executing"
        return "idle" if self.attached else "leased"

    def next_deadline(self) -> float | None:
        """When a `Tick` is due; None: not by itself."""
        soonest = min((request.deadline for request in (self._working, self._waiting) if request is not None), default=math.inf)
        return None if soonest == math.inf else soonest

    def release(self, answer: Answer, now: float) -> Answer:
        """The answer as it may leave now: a chunk that a fence or its deadline has overtaken becomes a refusal."""
        if answer.status is not Status.CHUNK:
            return answer
        if answer.epoch != self.epoch or self.ended is not None:
            return _without_chunk(answer, Status.FENCED, self.epoch, "fenced", "The session moved on before this chunk could be sent.")
        if now > answer.request.deadline:
            return _without_chunk(answer, Status.LATE, self.epoch, "late", _late(now, answer.request))
        self._executing_until = now + self._chunk_s
        return answer

    # ---- what happens -----------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Command]:
        """What is to be done about it, in order."""
        match event:
            case Observed(request=request):
                return self._observed(request, now)
            case Rejected(request=request, code=code, message=message):
                self.last_activity = now
                return [self._answer(request, Status.REFUSED, code, message)]
            case ResetAsked(request=request):
                return self._reset(request, now)
            case Begun(number=number):
                if self._working is not None and self._working.number == number:
                    self._begun = True
                return []
            case Made(number=number, chunk=chunk):
                return self._made(number, chunk, now)
            case Failed(number=number, code=code, message=message):
                return self._failed(number, code, message, now)
            case Tick():
                return self._expire(now)
            case Over():
                return [] if self.ended is not None else self._episode_over(None)
            case Connected():
                self.attached, self.last_activity = True, now
                return []
            case Disconnected():
                self.attached, self.last_activity = False, now
                return self._fence("fenced", "The connection was lost.")
            case Warn(message=message):
                self.warning = message
                return []
            case EndSession():
                return self._end(event)

    def _observed(self, request: Request, now: float) -> list[Command]:
        self.last_activity = now
        if self.ended is not None:
            return [self._answer(request, Status.FENCED, self.ended.code, self.ended.message)]
        done: list[Command] = []
        marks = request.marks
        begins = marks.episode is not None and marks.episode != self.episode
        if marks.outcome is not None and not begins:
            message = (
                "outcome says how an episode went that ends: send it with a reset, or with the first observation of another 'episode'."
            )
            return [self._answer(request, Status.REFUSED, "invalid_outcome", message)]
        if begins:
            if marks.episode in self._over:
                message = f"Episode {marks.episode!r} is over: give each rollout a name or number of its own."
                return [self._answer(request, Status.REFUSED, "episode_over", message)]
            done += self._fence("fenced", f"Episode {marks.episode!r} began.")
            done += self._episode_over(marks.outcome)
            if self.episode is not None:
                self._over.append(self.episode)
            self.episode = marks.episode
        self._asked, self._counted = True, False
        if marks.sequence is not None:
            if self._last_sequence is not None and marks.sequence <= self._last_sequence:
                message = f"A newer observation (sequence {self._last_sequence}) has come already."
                return [*done, self._answer(request, Status.SUPERSEDED, "superseded", message)]
            self._last_sequence = marks.sequence
        return done + self._take(request, now)

    def _take(self, request: Request, now: float) -> list[Command]:
        """The newest observation: it goes to the engine, or waits for the chunk that is being made. The older ones give way."""
        if request.deadline <= now:
            return [self._answer(request, Status.LATE, "late", _late(now, request))]
        if self._working is None:
            return [self._start(request)]
        if not self._begun:
            older = self._working
            return [Abort(older.number), self._superseded(older, request), self._start(request)]
        done: list[Command] = [] if self._waiting is None else [self._superseded(self._waiting, request)]
        self._waiting = request
        return done

    def _reset(self, request: Request, now: float) -> list[Command]:
        self.last_activity = now
        if self.ended is not None:
            return [self._answer(request, Status.FENCED, self.ended.code, self.ended.message)]
        done = self._fence("fenced", "The robot was reset.")
        done += self._episode_over(request.marks.outcome)
        if self.episode is not None:
            self._over.append(self.episode)
            self.episode = None
        return [*done, self._answer(request, Status.RESET)]

    def _made(self, number: int, chunk: Any, now: float) -> list[Command]:
        request = self._done_with(number)
        if request is None:
            return []
        if now > request.deadline:
            answer = self._answer(request, Status.LATE, "late", _late(now, request))
        else:
            self._chunks += 1
            answer = replace(self._answer(request, Status.CHUNK), chunk=chunk, chunk_id=self._chunks)
        return [answer, *self._next(now)]

    def _failed(self, number: int, code: str, message: str, now: float) -> list[Command]:
        request = self._done_with(number)
        if request is None:
            return []
        status = Status.LATE if code == "deadline_missed" else Status.FAILED
        return [self._answer(request, status, "late" if status is Status.LATE else code, message), *self._next(now)]

    def _expire(self, now: float) -> list[Command]:
        done: list[Command] = []
        if self._waiting is not None and self._waiting.deadline <= now:
            done.append(self._answer(self._waiting, Status.LATE, "late", _late(now, self._waiting)))
            self._waiting = None
        if self._working is not None and self._working.deadline <= now:
            request, self._working = self._working, None
            done += [Abort(request.number), self._answer(request, Status.LATE, "late", _late(now, request)), *self._next(now)]
        return done

    def _end(self, event: EndSession) -> list[Command]:
        if self.ended is not None:
            return []
        done = self._fence(event.code, event.message)
        done += self._episode_over(None)
        self.ended = event
        return [*done, Close(event.close_code, event.code, event.message)]

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _fence(self, code: str, message: str) -> list[Command]:
        """Raise the epoch: nothing older counts any more."""
        self.epoch += 1
        self._last_sequence = None
        self._executing_until = -math.inf
        done: list[Command] = [Fence(self.epoch)]
        working, self._working = self._working, None
        waiting, self._waiting = self._waiting, None
        if working is not None:
            done += [Abort(working.number), self._answer(working, Status.FENCED, code, message)]
        if waiting is not None:
            done.append(self._answer(waiting, Status.FENCED, code, message))
        return done

    def _episode_over(self, outcome: str | None) -> list[Command]:
        """Count the episode that ends, unless it has been: what is told twice, by a repeated reset, counts once."""
        if not self._asked and (outcome is None or self._counted):
            return []
        self._asked, self._counted = False, True
        return [EpisodeOver(self.episode, outcome or UNKNOWN)]

    def _start(self, request: Request) -> Start:
        self._working, self._begun = request, False
        return Start(request, self.epoch)

    def _next(self, now: float) -> list[Command]:
        """The engine is free: on with who waits."""
        request, self._waiting = self._waiting, None
        return [] if request is None else self._take(request, now)

    def _done_with(self, number: int) -> Request | None:
        """The request that was worked on; None: what came is stale."""
        if self._working is None or self._working.number != number:
            self.dropped += 1
            return None
        request, self._working = self._working, None
        return request

    def _superseded(self, older: Request, newer: Request) -> Answer:
        by = f" (sequence {newer.marks.sequence})" if newer.marks.sequence is not None else ""
        return self._answer(older, Status.SUPERSEDED, "superseded", f"A newer observation came{by} before this one was worked on.")

    def _answer(self, request: Request, status: Status, code: str = "", message: str = "") -> Answer:
        return Answer(request=request, status=status, epoch=self.epoch, code=code, message=message)


def _without_chunk(answer: Answer, status: Status, epoch: int, code: str, message: str) -> Answer:
    return replace(answer, status=status, epoch=epoch, code=code, message=message, chunk=None, chunk_id=None)


def _late(now: float, request: Request) -> str:
    if request.marks.deadline_ms is None:
        return "The chunk could not be made in time."
    passed = (now - request.arrived) * 1000
    return f"The chunk could not be made within the {request.marks.deadline_ms:g} ms that were given ({passed:.0f} ms have passed)."
