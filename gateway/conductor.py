"""Binds one session to the engines and to a connection: what the session decides takes effect here, in order and at once.

Events go in one at a time (`feed`), the session's outbound events are applied in the same turn of the event loop: between a
fence and the purge of what it makes stale stands no await. The conductor owns every task of the session and its one timer.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable

from ..engines.orchestrator import Orchestrator
from ..sessions.commands import (
    CancelRequest,
    CloseConnection,
    Fence,
    HearAudio,
    HoldResponse,
    JudgeTurnEnd,
    Measure,
    Outbound,
    Send,
    StartResponse,
    StopResponse,
    Transcribe,
    TurnMark,
)
from ..sessions.inbound import ClientMessage, Disconnected, Inbound, SpeechScored, Tick
from ..sessions.server_events import ErrorEvent, ServerEvent, encode_event
from ..sessions.session import Session
from ..sessions.session_config import SessionConfig
from .figures import Figures
from .listening import Listener, Questions
from .logs import logger
from .rates import WindowCounter
from .recordings import Recording
from .responding import Responder
from .tasks import TaskOwner
from .transports.connection import Connection
from .workbench import Workbench

log = logger("gateway.conductor")

MAX_EVENT_BYTES = 1024 * 1024 - 1
"""Stock clients refuse larger frames."""
CLOSE_TIMEOUT = 5.0
"""Seconds that a session's tasks have to end."""
TIMER_STEP = 0.001
"""Seconds; the event loop's timers count in ms."""
STREAMS = (ClientMessage, SpeechScored)
"""Events that come fifty times a second and mostly change nothing but a buffer..."""
LOOK_EVERY = 0.1
"""...after which the session's deadline is looked at again only after so many seconds: the ones they move are longer."""


class Conductor:
    """See the module's docstring. `open`, `feed`, `close`; all on the event loop."""

    def __init__(
        self,
        *,
        session: Session,
        connection: Connection,
        orchestrator: Orchestrator,
        pipeline: str,
        figures: Figures,
        voices: tuple[str, ...] = (),
        encode: Callable[[ServerEvent], bytes | None] = encode_event,
        recording: Recording | None = None,
        errors_per_minute: int = 600,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.session = session
        self.figures = figures
        self._connection = connection
        self._encode = encode
        self._recording = recording
        self._clock = clock
        self._errors = WindowCounter(limit=errors_per_minute)
        self._pending: deque[Inbound] = deque()
        self._handling = False
        self._closed = False
        self._config: SessionConfig | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._look_at = -math.inf
        self._tasks = TaskOwner()
        bench = Workbench(orchestrator=orchestrator, pipeline=pipeline, session_id=session.id, tasks=self._tasks, feed=self.feed)
        self._responder = Responder(bench, on_stage=figures.stage, voices=voices)
        self._listener = Listener(bench, on_dropped=figures.vad_dropped)
        self._questions = Questions(bench)

    @property
    def backlog(self) -> int:
        """Samples of the caller's audio that wait for the VAD engine."""
        return self._listener.backlog

    def open(self) -> None:
        """Say hello."""
        self._guarded(self._hello)

    def _hello(self) -> None:
        now = self._clock()
        outbound = self.session.open(now)
        if self._recording is not None:
            self._recording.recorder.opened(now, outbound)
        self._apply_all(outbound, now)
        self._work()

    def feed(self, event: Inbound) -> None:
        """Something happened to the session. What follows from it has taken effect when this returns, unless this was called
        from within an effect: then it waits its turn."""
        if self._closed:
            return
        self._pending.append(event)
        if not self._handling:
            self._guarded(self._work)

    def _work(self) -> None:
        """Handle what is pending, one event after the other, and set the timer for what comes next."""
        while self._pending:
            event = self._pending.popleft()
            now = self._clock()
            outbound = self.session.handle(event, now)
            if self._recording is not None:
                self._recording.recorder.handled(now, event, outbound)
            self._apply_all(outbound, now)
            if now >= self._look_at or not (type(event) in STREAMS and all(type(out) is HearAudio for out in outbound)):
                self._look_at = -math.inf
        if self._look_at == -math.inf:
            self._note_format()
            self._arm()

    def _guarded(self, work: Callable[[], None]) -> None:
        """A fault in the house must not leave a session that neither speaks nor ends: it is logged, counted, and closes it."""
        self._handling = True
        try:
            work()
        except Exception:
            log.exception("session crashed", session=self.session.id)
            self.figures.crashed("session")
            self._closed = True
            self._connection.finish(1011, "The server failed.")
        finally:
            self._handling = False

    async def close(self) -> None:
        """The connection is gone: end every task. Nothing is sent after this."""
        if not self._closed:
            self.feed(Disconnected())
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._listener.close()
        stuck = await self._tasks.close(CLOSE_TIMEOUT)
        if stuck:
            log.error("tasks would not end", session=self.session.id, tasks=stuck)
            self.figures.crashed("tasks")
        if self._recording is not None:
            self._recording.close()
            await self._recording.written()

    def _note_format(self) -> None:
        """Tell the connection in what format audio comes, when that has changed."""
        if self.session.config is not self._config:
            self._config = self.session.config
            format_ = self._config.audio.input.format
            self._connection.expect_audio(format_.sample_rate * (2 if format_.type == "audio/pcm" else 1))

    # ---- effects ----------------------------------------------------------------------------------------------------

    def _apply_all(self, outbound: list[Outbound], now: float) -> None:
        for out in outbound:
            self._apply(out, now)

    def _apply(self, out: Outbound, now: float) -> None:
        match out:
            case Send():
                self._send(out, now)
            case HearAudio(pcm=pcm):
                self.figures.heard(len(pcm) // 2)
                self._listener.hear(pcm)
            case Fence(epoch=epoch):
                self.figures.fenced(self._connection.purge(epoch))
            case StopResponse(response_id=response_id):
                self._responder.stop(response_id)
            case StartResponse():
                self.figures.response_started(out)
                self._responder.start(out)
            case HoldResponse(response_id=response_id, hold=hold):
                self._responder.hold(response_id, hold)
            case JudgeTurnEnd():
                self._questions.judge(out)
            case Transcribe():
                self._questions.transcribe(out)
            case CancelRequest(request_id=request_id):
                self._questions.cancel(request_id)
            case TurnMark():
                self.figures.mark(out)
            case Measure():
                self.figures.measure(out, now)
            case CloseConnection(code=code, reason=reason):
                self._connection.finish(code, reason)

    def _send(self, send: Send, now: float) -> None:
        data = self._encode(send.event)
        if data is None:
            return
        if len(data) > MAX_EVENT_BYTES:
            # The session keeps its events small; this is the wall behind it.
            log.error("event too large", session=self.session.id, type=type(send.event).__name__, bytes=len(data))
            self.figures.crashed("event_size")
            return
        self._connection.send(data, epoch=send.epoch, samples=send.samples, response_id=send.response_id)
        self.figures.sent(send, now)
        if isinstance(send.event, ErrorEvent) and self._errors.exceeded(now):
            self._connection.finish(1008, "Too many errors.")

    # ---- the timer --------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Keep one timer at or before the session's next deadline. A timer that is too early just looks again."""
        now = self._clock()
        self._look_at = now + LOOK_EVERY
        deadline = None if self._closed else self.session.next_deadline(now)
        if deadline is None or deadline >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        steps = max(1, math.ceil((deadline - now) / TIMER_STEP))
        self._timer = asyncio.get_running_loop().call_later(steps * TIMER_STEP, self._due)

    def _due(self) -> None:
        self._timer, self._timer_at = None, math.inf
        self._guarded(self._look)

    def _look(self) -> None:
        """The timer rang: is anything due?"""
        now = self._clock()
        deadline = None if self._closed else self.session.next_deadline(now)
        if deadline is not None and deadline <= now:
            self._pending.append(Tick())
        self._look_at = -math.inf
        self._work()
