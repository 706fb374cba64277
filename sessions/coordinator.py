"""Who may answer, and when an answer dies: the response coordinator and its fence.

At most one response writes to the conversation at a time; out-of-band ones run beside it. `epoch` is the fence number: it is
raised whenever the conversation's answer is stopped, and whatever was made for an older epoch is dropped on arrival.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .client_events import ResponseParams
from .commands import Fence, StartResponse, StopResponse, TurnMark
from .conversation import Conversation, messages, untranscribed
from .emitter import Emitter
from .errors import ClientEventError
from .inbound import ResponseAudio, ResponseEnded, ResponseFailed, ResponseText, ResponseToolCall
from .items import Item
from .output_buffer import OutputBuffer
from .policy import SessionLimits
from .rates import TokenBucket
from .response import Ending, Response, ResponseSettings
from .schema import tool_choice_text, voice_name
from .server_events import RateLimitsUpdated
from .session_config import SessionConfig
from .timeline import SAMPLE_RATE

Chunk = ResponseText | ResponseAudio | ResponseToolCall | ResponseEnded | ResponseFailed


@dataclass(slots=True)
class _Waiting:
    """A response whose context is not written down yet."""

    response: Response
    context: list[Item] | None


@dataclass(frozen=True, slots=True)
class _Queued:
    """A response that came while an answer was still being spoken."""

    params: ResponseParams | None
    context: list[Item] | None
    event_id: str | None
    turn_item_id: str | None
    automatic: bool


class ResponseCoordinator:
    """Starts, feeds, stops and ends responses. All times are seconds on the session's clock."""

    def __init__(
        self,
        *,
        epoch: int,
        config: Callable[[], SessionConfig],
        conversation: Conversation,
        emitter: Emitter,
        limits: SessionLimits,
        owns_playback: bool = False,
    ) -> None:
        self.epoch = epoch
        self.current: Response | None = None
        """The response that writes to the conversation, until its terminal."""
        self.last: Response | None = None
        """The one whose audio the listener heard last, or still hears."""
        self.spoke = False
        """Whether any audio was ever sent (the voice is locked then)."""
        self._config = config
        self._conversation = conversation
        self._emit = emitter
        self._limits = limits
        self.buffer = OutputBuffer(emitter, owns_playback)
        self._live: dict[str, Response] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._earlier: list[Response] = []
        """Those before `last` whose audio was still being heard when `last` began to speak."""
        self._queued: deque[_Queued] = deque()
        """At most two: turn detection's (the newest replaces the one before) and the client's (a second is refused)."""
        self._rate = TokenBucket(limits.responses_per_minute, 60.0)
        self._unheard = False

    # ---- what the session asks ----

    @property
    def responses(self) -> Iterable[Response]:
        """All responses in progress."""
        return tuple(self._live.values())

    def responding(self) -> bool:
        """Whether an answer is being made or sent."""
        return self.current is not None

    def audible(self, now: float) -> bool:
        """Whether the listener hears the assistant, or is about to hear audio that was sent."""
        if self.current is not None and self.current.ledger.released > 0:
            return True
        return any(self._playing(now))

    def sounding(self, item: Item, now: float) -> bool:
        """Whether this assistant item is being made or heard."""
        return any(response.message is item for response in (self.current, *self._playing(now)) if response is not None)

    def _playing(self, now: float) -> list[Response]:
        return [response for response in (*self._earlier, self.last) if response is not None and response.ledger.playing(now)]

    def _undelivered(self) -> int:
        """Samples of all responses that wait for the transport."""
        ledgers = {id(r): r.ledger for r in (*self._earlier, self.last, *self._live.values()) if r is not None}
        return sum(ledger.waiting for ledger in ledgers.values())

    def unanswered(self) -> bool:
        """Whether the last turn got no audible answer."""
        return self._unheard

    # ---- starting ----

    def create(
        self,
        params: ResponseParams | None,
        now: float,
        *,
        context: list[Item] | None = None,
        event_id: str | None = None,
        turn_item_id: str | None = None,
        automatic: bool = False,
    ) -> Response | None:
        """Begin a response. `context` replaces the conversation (out of band or `input`). Returns None when it is queued behind the
        last words of an answer that is made already; an `automatic` one (turn detection's) is queued behind any answer.

        Raises ClientEventError: conversation_already_has_active_response, rate_limit_exceeded.
        """
        settings = self._settings(params)
        if not settings.out_of_band and self.current is not None:
            if automatic:
                self._queued = deque(queued for queued in self._queued if not queued.automatic)
            if automatic or (self.current.generated and all(queued.automatic for queued in self._queued)):
                self._queued.append(_Queued(params, context, event_id, turn_item_id, automatic))
                return None
            message = (
                f"Conversation already has an active response in progress: {self.current.id}. "
                "Wait until the response is finished before creating a new one."
            )
            raise ClientEventError("conversation_already_has_active_response", message, None, event_id)
        if len(self._live) >= self._limits.max_responses:
            message = f"At most {self._limits.max_responses} responses may be in progress at once."
            raise ClientEventError("rate_limit_exceeded", message, None, event_id)
        if not self._rate.take(now):
            message = f"At most {self._limits.responses_per_minute} responses may be started in a minute."
            raise ClientEventError("rate_limit_exceeded", message, None, event_id)
        response = Response(
            response_id=self._emit.ids.make("resp"),
            epoch=self.epoch,
            settings=settings,
            conversation=self._conversation,
            emitter=self._emit,
            limits=self._limits,
            waiting=self._undelivered,
        )
        response.turn_item_id = turn_item_id
        self._live[response.id] = response
        if not settings.out_of_band:
            self.current = response
            self._unheard = True
        response.begin()
        self._rate_limits(now)
        if turn_item_id is not None:
            self._emit.command(TurnMark(turn_item_id, "response_started", now, response.id))
        self._waiting[response.id] = _Waiting(response, context)
        self.transcripts_changed()
        return response

    def transcripts_changed(self) -> None:
        """Start the responses whose context is written down by now."""
        for response_id, waiting in list(self._waiting.items()):
            context = list(self._conversation) if waiting.context is None else waiting.context
            if not untranscribed(context):
                del self._waiting[response_id]
                self._start(waiting.response, context)

    def _start(self, response: Response, context: list[Item]) -> None:
        settings = response.settings
        limit = settings.max_output_tokens
        response.started = True
        self._emit.command(
            StartResponse(
                response_id=response.id,
                epoch=response.epoch,
                messages=messages(context, settings.instructions),
                audio=settings.audio,
                tools=settings.tools,
                tool_choice=settings.tool_choice,
                parallel_tool_calls=settings.parallel_tool_calls,
                max_output_tokens=limit if isinstance(limit, int) else None,
                voice=settings.voice,
                speed=settings.speed,
                model=self._config().model or "",
                turn_item_id=response.turn_item_id,
            )
        )

    def transcription_failed(self, lost: Item, code: str, message: str, now: float) -> None:
        """An item's speech could not be written down: the responses that wait for it fail."""
        for waiting in list(self._waiting.values()):
            context = list(self._conversation) if waiting.context is None else waiting.context
            if any(item is lost for item in context):
                self._end_now(waiting.response, lambda r: r.fail(code, message), now)

    # ---- what the pipelines give ----

    def chunk(self, chunk: Chunk, now: float) -> None:
        """Take a chunk; what belongs to a fenced or ended response is dropped and counted."""
        response = self._live.get(chunk.response_id)
        if response is None or response.done or chunk.epoch != response.epoch:
            self._emit.measure("dropped_by_epoch", kind=type(chunk).__name__)
            return
        match chunk:
            case ResponseText():
                response.add_text(chunk.text)
            case ResponseAudio():
                response.add_speech(chunk.pcm, chunk.transcript, chunk.words)
            case ResponseToolCall():
                response.add_call(chunk.index, chunk.call_id, chunk.name, chunk.arguments)
            case ResponseEnded():
                tokens = response.tokens
                tokens.input, tokens.output, tokens.cached = chunk.input_tokens, chunk.output_tokens, chunk.cached_tokens
                response.end(Ending(chunk.reason))
            case ResponseFailed():
                response.end(Ending("failed", chunk.code, chunk.message))
        self._pump(response, now)

    def delivered(self, response_id: str, samples: int, now: float) -> None:
        """The transport handed audio to the socket."""
        heard = (r for r in (*self._earlier, self.last) if r is not None and r.id == response_id)
        response = self._live.get(response_id) or next(heard, None)
        if response is None:
            return
        before = response.ledger.underruns
        first = response.ledger.first_delivery is None
        response.ledger.deliver(samples, now)
        self.buffer.delivered(response, now)
        if response.ledger.underruns > before:
            self._emit.measure("player_underruns")
        if first and response.turn_item_id is not None:
            self._emit.command(TurnMark(response.turn_item_id, "first_audio", now, response.id))
        self.tick(now)

    def tick(self, now: float) -> None:
        """Release what is due."""
        for response in self.responses:
            self._pump(response, now)

    def next_deadline(self, now: float) -> float | None:
        """When `tick` is due."""
        times = [response.next_deadline(now) for response in self.responses]
        times.append(self.buffer.next_deadline(now))
        return min((due for due in times if due is not None), default=None)

    def _pump(self, response: Response, now: float) -> None:
        if response.done:
            return
        if response is self.current and response.message is None and self.last is not None:
            response.ledger.follow(self.last.ledger, now)
        response.pump(now)
        if response.message is not None and response is self.current:
            if self.last is not response:
                self._earlier = self._playing(now)
                self.last = response
            self._unheard = False
            self.spoke = self.spoke or response.settings.audio
        if response.done:
            self._ended(response, now)

    def _ended(self, response: Response, now: float) -> None:
        del self._live[response.id]
        self._waiting.pop(response.id, None)
        self._conversation.grown = True
        if response.turn_item_id is not None:
            self._emit.command(TurnMark(response.turn_item_id, "response_done", now, response.id))
        if response is not self.current:
            return
        self.current = None
        while self._queued and self.current is None:
            queued = self._queued.popleft()
            try:
                self.create(queued.params, now, context=queued.context, event_id=queued.event_id, turn_item_id=queued.turn_item_id)
            except ClientEventError as error:
                self._emit.error(error)

    # ---- stopping ----

    def fence(self, reason: str, *, spare_unspoken: bool = False) -> Response | None:
        """Raise the epoch: what was sent of the conversation's answers is withheld from now on. Returns the response to end (see
        `conclude`); with `spare_unspoken` one of which nothing was sent lives on, behind the new epoch.

        Emits the fence before anything else, so that queues are purged first.
        """
        self.epoch += 1
        self._emit.command(Fence(self.epoch, reason))
        response = self.current
        if response is None:
            return None
        if spare_unspoken and response.message is None:
            response.fence = self.epoch
            return None
        self._emit.command(StopResponse(response.id, reason))
        return response

    def interrupt(self) -> Response | None:
        """The caller interrupts: `fence`, and what was queued behind the answer will not be made. The caller's new turn is
        answered instead; a client that had asked for a response is told."""
        response = self.fence("turn_detected")
        queued, self._queued = self._queued, deque()
        for waiting in queued:
            if not waiting.automatic:
                message = "The response was not created: it waited for the end of the one before, and the caller has interrupted that."
                error = ClientEventError("conversation_already_has_active_response", message, None, waiting.event_id)
                self._emit.error(error)
        return response

    def conclude(
        self, response: Response | None, reason: str, now: float, heard_ms: float | None = None, *, truncated: bool = False
    ) -> None:
        """End a fenced response, and cut what is still being heard of those before. `heard_ms` None: what the ledger says;
        `truncated`: the client asked for it and has its answer."""
        for other in self._playing(now):
            if other is not response:
                other.ledger.stop(now)
                other.cut(other.ledger.heard_ms(now))
                self.buffer.cleared(other, other.ledger.heard_ms(now), truncated=truncated)
        if response is not None:
            heard = response.ledger.heard_ms(now) if heard_ms is None else heard_ms
            self.buffer.cleared(response, heard, truncated=truncated)
            self._unheard = response.message is None or (response.settings.audio and heard <= 0)
            self._end_now(response, lambda r: r.cancel(reason, heard, now), now)

    def leave_unanswered(self) -> None:
        """The caller spoke on before the turn was answered: what follows must be answered even if it is nothing."""
        self._unheard = True

    def cancel(self, response: Response, now: float) -> None:
        """The client cancels: everything delivered counts as heard, since it was not told to stop playing. What was queued behind
        the response goes on."""
        heard_ms = response.ledger.delivered * 1000 / SAMPLE_RATE
        if response is self.current:
            self._unheard = False
        if response is self.current and response.message is not None:
            self.fence("client_cancelled")
            for other in self._playing(now):
                if other is not response:
                    other.withhold()
        else:
            # Nothing was sent that a fence could withhold; what is being heard of the answer before goes on.
            self._emit.command(StopResponse(response.id, "client_cancelled"))
        self._end_now(response, lambda r: r.cancel("client_cancelled", heard_ms, now, played_out=True), now)

    def cancel_all(self, now: float) -> None:
        """The session ends: every response gets its terminal."""
        self._queued.clear()
        for response in self.responses:
            if not response.done:
                self.cancel(response, now)

    def find(self, response_id: str | None) -> Response | None:
        """A response in progress by id; None: the conversation's."""
        return self.current if response_id is None else self._live.get(response_id)

    def _end_now(self, response: Response, end: Callable[[Response], None], now: float) -> None:
        end(response)
        self._ended(response, now)

    # ---- settings ----

    def _settings(self, params: ResponseParams | None) -> ResponseSettings:
        config = self._config()
        chosen = params or ResponseParams()
        output = chosen.audio.output if chosen.audio is not None else None
        modalities = chosen.output_modalities or config.output_modalities
        format_ = (output.format if output is not None else None) or config.audio.output.format
        voice = (output.voice if output is not None else None) or config.audio.output.voice
        tools = config.tools if chosen.tools is None else chosen.tools
        choice = config.tool_choice if chosen.tool_choice is None else chosen.tool_choice
        return ResponseSettings(
            audio=list(modalities) == ["audio"],
            format=format_.wire(),
            voice=voice_name(voice),
            speed=config.audio.output.speed,
            instructions=config.instructions if chosen.instructions is None else chosen.instructions,
            tools=tuple(tool.wire() for tool in tools),
            tool_choice=tool_choice_text(choice),
            parallel_tool_calls=config.parallel_tool_calls if chosen.parallel_tool_calls is None else chosen.parallel_tool_calls,
            max_output_tokens=config.max_output_tokens if chosen.max_output_tokens is None else chosen.max_output_tokens,
            metadata=chosen.metadata,
            out_of_band=chosen.out_of_band,
        )

    def _rate_limits(self, now: float) -> None:
        limit = {
            "name": "requests",
            "limit": self._limits.responses_per_minute,
            "remaining": self._rate.remaining(now),
            "reset_seconds": self._rate.refill_s(now),
        }
        self._emit.send(RateLimitsUpdated, rate_limits=[limit])
