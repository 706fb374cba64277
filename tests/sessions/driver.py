"""Drives a session core in tests: a fake clock, a simulated transport, simulated engines, and a listener with a loudspeaker.

Nothing here knows the core's insides: it feeds inbound events, carries commands out as `commands.py` documents them, and keeps
a log of what left. Every event that leaves is checked against the protocol's grammar (`grammar.Grammar`).
"""

from __future__ import annotations

import base64
import heapq
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from antiphon.sessions import commands as c
from antiphon.sessions import inbound as i
from antiphon.sessions.ids import Ids
from antiphon.sessions.policy import SessionLimits, TurnTakingPolicy
from antiphon.sessions.server_events import encode_event
from antiphon.sessions.session import Session
from antiphon.sessions.session_config import default_config
from antiphon.tests.sessions.grammar import Grammar

RATE = 24_000
FRAME = 768
"""Samples of a VAD frame: 32 ms."""

HELLO = "Hello there my friend, how are you today?"


def silence(ms: float) -> bytes:
    """That much PCM."""
    return bytes(2 * int(ms * RATE / 1000))


def sound(ms: float, value: int = 7) -> bytes:
    """PCM that is not silent."""
    return value.to_bytes(2, "little", signed=True) * int(ms * RATE / 1000)


@dataclass(frozen=True)
class Say:
    """An engine speaks: `ms` of audio that says `text`, ready `after` seconds after the step before."""

    ms: float
    text: str = ""
    after: float = 0.0


@dataclass(frozen=True)
class Write:
    """An engine writes."""

    text: str
    after: float = 0.0


@dataclass(frozen=True)
class Call:
    """An engine calls a function."""

    name: str
    arguments: str
    call_id: str = "call_1"
    index: int = 0
    after: float = 0.0


@dataclass(frozen=True)
class End:
    """An engine has finished (or failed, with a `code`)."""

    reason: str = "stop"
    code: str = ""
    after: float = 0.0
    tokens: tuple[int, int] = (0, 0)


Step = Say | Write | Call | End


@dataclass
class Engines:
    """How the simulated engines behave. A delay of None: they never answer."""

    words: str | Callable[[c.Transcribe], str] = "what is the time"
    asr_delay: float | None = 0.0
    asr_failure: str = ""
    turn_over: float | None = 0.9
    judge_delay: float | None = 0.0
    answer: list[Step] | Callable[[c.StartResponse], list[Step]] = field(default_factory=lambda: [Say(3000, HELLO), End()])


@dataclass(frozen=True)
class Left:
    """An event that left the process."""

    at: float
    event: dict[str, Any]
    send: c.Send

    @property
    def type(self) -> str:
        return str(self.event["type"])


class Loudspeaker:
    """The client's player, kept apart from the core's own ledger: it plays what left, one answer after the other."""

    def __init__(self) -> None:
        self._queue: deque[tuple[str, float]] = deque()
        self._at = 0.0
        self.heard: dict[str, float] = {}
        """Samples played, by response."""
        self.most_ahead = 0.0

    def push(self, response_id: str, samples: int, now: float) -> None:
        self.play(now)
        self._queue.append((response_id, float(samples)))
        self.most_ahead = max(self.most_ahead, sum(left for _, left in self._queue))

    def play(self, now: float) -> None:
        budget = (now - self._at) * RATE
        self._at = now
        while self._queue and budget > 0:
            response_id, left = self._queue.popleft()
            played = min(left, budget)
            budget -= played
            self.heard[response_id] = self.heard.get(response_id, 0.0) + played
            if left > played:
                self._queue.appendleft((response_id, left - played))

    def flush(self, now: float) -> None:
        """Stop at once, as clients do when they are told that the user speaks."""
        self.play(now)
        self._queue.clear()

    def heard_ms(self, response_id: str, now: float) -> float:
        self.play(now)
        return self.heard.get(response_id, 0.0) * 1000 / RATE


class Driver:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        engines: Engines | None = None,
        policy: TurnTakingPolicy | None = None,
        limits: SessionLimits | None = None,
        session: dict[str, Any] | None = None,
        kind: Any = "realtime",
        auto: bool = True,
        speed: float | None = None,
        late_chunks: bool = False,
        seed: int = 1,
        track: bool = False,
    ) -> None:
        config = default_config("antiphon-voice", kind)
        self.limits = limits or SessionLimits()
        self.session = Session(
            session_id="sess_1",
            config=config.merge(session) if session else config,
            policy=policy or TurnTakingPolicy(),
            limits=self.limits,
            ids=Ids(seed),
            expires_at=2_000_000_000,
            input_is_track=track,
        )
        self.engines = engines or Engines()
        self.auto = auto
        """Engines answer by themselves as `engines` says; else the test does."""
        self.speed = speed
        """How much faster than real time the transport delivers; None: at once; 0: never."""
        self.late_chunks = late_chunks
        """A stopped response's chunks arrive all the same."""
        self.now = 0.0
        self.epoch = 0
        self.closed: int | None = None
        self.gone = False
        self.recorded: list[tuple[float, i.Inbound]] = []
        self.outbound: list[tuple[float, c.Outbound]] = []
        self.left: list[Left] = []
        self.grammar = Grammar()
        self.speaker = Loudspeaker()
        self.at_fence: list[tuple[str, dict[str, float]]] = []
        """For each fence its reason, and what the listener had heard of each answer at that moment, in ms."""
        self._ticks = (0.0, 0)
        self.starts: dict[str, c.StartResponse] = {}
        self.stopped: set[str] = set()
        self.held: set[str] = set()
        self.questions: dict[str, c.Transcribe | c.JudgeTurnEnd] = {}
        self.cancelled: set[str] = set()
        self.fed = 0
        """Samples that the VAD engine has had."""
        self.scored = 0
        self.outbox: deque[tuple[c.Send, bytes]] = deque()
        self.most_queued = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._free_at: float | None = None
        self._waiting: dict[str, deque[Step]] = {}
        self._apply(self.session.open(0.0))

    # ---- time -------------------------------------------------------------------------------------------------------

    def feed(self, event: i.Inbound) -> list[c.Outbound]:
        """Something happens now; everything that follows from it at this moment has happened when this returns."""
        self.recorded.append((self.now, event))
        out = self.session.handle(event, self.now)
        self._apply(out)
        return out

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while (at := self._next()) is not None and at <= end + 1e-9:
            self.now = max(self.now, at)
            self._turn()
        self.now = max(self.now, end)

    def settle(self, limit: float = 600.0) -> None:
        """Let time pass until nothing more happens by itself (at most `limit` seconds)."""
        end = self.now + limit
        while (at := self._next()) is not None and at <= end:
            self.now = max(self.now, at)
            self._turn()

    def _next(self) -> float | None:
        times = [self._due[0][0] if self._due else None, None if self.gone else self.session.next_deadline(self.now)]
        if self.outbox and self._free_at is not None:
            times.append(self._free_at)
        return min((at for at in times if at is not None), default=None)

    def _turn(self) -> None:
        if self._due and self._due[0][0] <= self.now:
            heapq.heappop(self._due)[2]()
        elif self.outbox and self._free_at is not None and self._free_at <= self.now:
            self._deliver()
        else:
            at, count = self._ticks
            self._ticks = (self.now, count + 1) if at == self.now else (self.now, 1)
            assert self._ticks[1] < 20, "deadlines without progress"
            self.feed(i.Tick())

    def set_speed(self, speed: float | None) -> None:
        """The transport changes its speed; see `speed`."""
        self.speed = speed
        self._free_at = self.now if self.outbox and speed else None
        self._apply([])

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._order), what))

    # ---- what the core says -----------------------------------------------------------------------------------------

    def _apply(self, out: list[c.Outbound]) -> None:
        for command in out:
            self.outbound.append((self.now, command))
            self._carry_out(command)
        if self.speed is None:
            while self.outbox:
                self._deliver()
        elif self._free_at is None and self.outbox and self.speed > 0:
            self._free_at = self.now

    def _carry_out(self, command: c.Outbound) -> None:
        match command:
            case c.Send():
                assert self.closed is None, "nothing is sent after the connection was closed"
                if command.epoch is not None:
                    assert command.epoch >= self.epoch, "sent behind its own fence"
                self.outbox.append((command, encode_event(command.event)))
                self.most_queued = max(self.most_queued, sum(send.samples for send, _ in self.outbox))
            case c.Fence(epoch=epoch, reason=reason):
                assert epoch > self.epoch, "a fence raises the epoch"
                self.epoch = epoch
                self.outbox = deque(kept for kept in self.outbox if kept[0].epoch is None or kept[0].epoch >= epoch)
                self.speaker.play(self.now)
                self.at_fence.append((reason, {name: heard * 1000 / RATE for name, heard in self.speaker.heard.items()}))
                if reason != "client_cancelled":
                    self.speaker.flush(self.now)
            case c.StartResponse():
                assert command.response_id not in self.starts, "started twice"
                self.starts[command.response_id] = command
                if self.auto:
                    plan = self.engines.answer
                    self._waiting[command.response_id] = deque(plan(command) if callable(plan) else plan)
                    self._plan(command.response_id)
            case c.StopResponse(response_id=response_id):
                self.stopped.add(response_id)
            case c.HoldResponse(response_id=response_id, hold=hold):
                (self.held.add if hold else self.held.discard)(response_id)
                if not hold and self.auto:
                    self._plan(response_id)
            case c.HearAudio(pcm=pcm):
                self.fed += len(pcm) // 2
            case c.Transcribe() | c.JudgeTurnEnd():
                self.questions[command.request_id] = command
                if self.auto:
                    self._answer_question(command)
            case c.CancelRequest(request_id=request_id):
                assert request_id in self.questions, "cancelled something that was never asked"
                self.cancelled.add(request_id)
            case c.CloseConnection(code=code):
                self.closed = code

    def _deliver(self) -> None:
        """The transport hands one event to the socket."""
        send, data = self.outbox.popleft()
        assert send.epoch is None or send.epoch >= self.session.epoch, "a delta of an older epoch left"
        event = json.loads(data)
        self.left.append(Left(self.now, event, send))
        self.grammar.take(event)
        if self.speed:
            self._free_at = self.now + send.samples / RATE / self.speed if self.outbox or send.samples else None
        if send.samples:
            assert send.response_id is not None
            if send.epoch is not None:
                self.speaker.push(send.response_id, send.samples, self.now)
            if not self.gone:
                self.feed(i.AudioDelivered(send.response_id, send.samples))

    # ---- the engines ------------------------------------------------------------------------------------------------

    def _answer_question(self, command: c.Transcribe | c.JudgeTurnEnd) -> None:
        engines = self.engines
        request_id = command.request_id
        if isinstance(command, c.JudgeTurnEnd):
            if engines.judge_delay is not None:
                self.later(engines.judge_delay, lambda: self._reply(i.TurnEndJudged(request_id, engines.turn_over)))
            return
        if engines.asr_delay is None:
            return
        if engines.asr_failure:
            failure = i.TranscriptionFailed(request_id, engines.asr_failure, "The ASR engine failed.")
            self.later(engines.asr_delay, lambda: self._reply(failure))
            return
        text = engines.words(command) if callable(engines.words) else engines.words
        self.later(engines.asr_delay, lambda: self._reply(i.Transcribed(request_id=request_id, text=text)))

    def _reply(self, event: i.TurnEndJudged | i.Transcribed | i.TranscriptionFailed) -> None:
        if event.request_id not in self.cancelled:
            self.feed(event)

    def _plan(self, response_id: str) -> None:
        steps = self._waiting.get(response_id)
        if steps:
            self.later(steps[0].after, lambda: self._step(response_id))

    def _step(self, response_id: str) -> None:
        steps = self._waiting[response_id]
        if not steps or response_id in self.held or (response_id in self.stopped and not self.late_chunks):
            return
        self.chunk(response_id, steps.popleft())
        if response_id not in self.held:
            self._plan(response_id)

    def chunk(self, response_id: str, step: Step) -> None:
        """The pipeline of a response gives something."""
        epoch = self.starts[response_id].epoch
        match step:
            case Say(ms=ms, text=text):
                self.feed(i.ResponseAudio(response_id=response_id, epoch=epoch, pcm=sound(ms), transcript=text))
            case Write(text=text):
                self.feed(i.ResponseText(response_id, epoch, text))
            case Call():
                self.feed(
                    i.ResponseToolCall(
                        response_id=response_id,
                        epoch=epoch,
                        index=step.index,
                        call_id=step.call_id,
                        name=step.name,
                        arguments=step.arguments,
                    )
                )
            case End(code=code) if code:
                self.feed(i.ResponseFailed(response_id, epoch, code, "The engine failed."))
            case End():
                made, written = step.tokens
                self.feed(
                    i.ResponseEnded(response_id=response_id, epoch=epoch, reason=step.reason, input_tokens=made, output_tokens=written)
                )

    # ---- the client -------------------------------------------------------------------------------------------------

    def client(self, type_: str, **fields: Any) -> list[dict[str, Any]]:
        """The client sends an event; returns the events that left by it."""
        before = len(self.left)
        self.feed(i.ClientMessage(json.dumps({"type": type_, **fields}).encode()))
        return [left.event for left in self.left[before:]]

    def refused(self, type_: str, **fields: Any) -> dict[str, Any]:
        """The client sends an event that must be refused and change nothing else; returns the error."""
        events = self.client(type_, event_id="evt_client", **fields)
        assert [event["type"] for event in events] == ["error"], events
        error: dict[str, Any] = events[0]["error"]
        assert error["event_id"] == "evt_client"
        assert error["type"] == "invalid_request_error"
        return error

    def append(self, pcm: bytes) -> None:
        self.client("input_audio_buffer.append", audio=base64.b64encode(pcm).decode())

    def hear(self, ms: float, probability: float = 0.01) -> None:
        """Audio in real time, frame by frame, each scored by the VAD engine as soon as it is in."""
        for _ in range(max(1, round(ms / 32))):
            self.run(FRAME / RATE)
            self.append(silence(32))
            self.score(probability)

    def score(self, probability: float) -> None:
        """The VAD engine scores what it has."""
        while self.scored + FRAME <= self.fed:
            start, self.scored = self.scored, self.scored + FRAME
            self.feed(i.SpeechScored(start, (probability,)))

    def say(self, ms: float, words: str = "what is the time") -> None:
        """The caller speaks."""
        self.engines.words = words
        self.hear(ms, 0.9)

    def turn(self, words: str = "what is the time", ms: float = 640, pause: float = 640) -> None:
        """The caller says something and waits."""
        self.say(ms, words)
        self.hear(pause)

    # ---- what was seen ----------------------------------------------------------------------------------------------

    @property
    def types(self) -> list[str]:
        """The types of everything that left."""
        return [left.type for left in self.left]

    def of(self, *types: str) -> list[dict[str, Any]]:
        """The events of these types that left."""
        return [left.event for left in self.left if left.type in types]

    def since(self, mark: int) -> list[str]:
        return self.types[mark:]

    def last(self, type_: str) -> dict[str, Any]:
        return self.of(type_)[-1]

    def commands(self, kind: type[Any]) -> list[Any]:
        return [command for _, command in self.outbound if isinstance(command, kind)]

    def start(self) -> c.StartResponse:
        """The newest StartResponse."""
        found: c.StartResponse = self.commands(c.StartResponse)[-1]
        return found

    def asked(self, purpose: str) -> list[c.Transcribe]:
        return [command for command in self.commands(c.Transcribe) if command.purpose == purpose]

    def done(self) -> dict[str, Any]:
        """The newest response.done's response."""
        response: dict[str, Any] = self.last("response.done")["response"]
        return response

    def measured(self, name: str) -> list[c.Measure]:
        return [command for command in self.commands(c.Measure) if command.name == name]

    def texts(self) -> list[tuple[str | None, str]]:
        """The conversation as (role, text)."""
        return [(item.role, item.text) for item in self.session.conversation]

    def __iter__(self) -> Iterator[Left]:
        return iter(self.left)


def replay(driver: Driver, **settings: Any) -> list[bytes]:
    """Run what a driver recorded through a fresh core; returns every event as bytes and every command as text."""
    fresh = Driver(auto=False, speed=0, **settings)
    fresh.outbound.clear()
    for at, event in driver.recorded:
        fresh.outbound += [(at, command) for command in fresh.session.handle(event, at)]
    return flat(fresh)


def flat(driver: Driver) -> list[bytes]:
    """What a core said, comparable."""
    return [
        repr((at, command.epoch, command.response_id, command.samples)).encode() + encode_event(command.event)
        if isinstance(command, c.Send)
        else repr((at, command)).encode()
        for at, command in driver.outbound
    ]
