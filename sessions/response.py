"""One response: from `response.created` to its single `response.done`, its audio paced to real time."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import server_events as wire
from .commands import HoldResponse
from .conversation import Conversation
from .emitter import Emitter
from .input_audio import to_ms, to_samples
from .items import Item, SpokenPart, TextPart
from .playback import PlaybackLedger
from .policy import SessionLimits
from .timeline import SAMPLE_RATE, TimedWord, spread
from .usage import TokenCount
from .wire_audio import OutputEncoder


class Status(enum.StrEnum):
    """The states of a response; all but the first are terminal."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSettings:
    """The session's configuration with the overrides of one `response.create`."""

    audio: bool
    format: dict[str, Any]
    voice: str
    speed: float
    instructions: str
    tools: tuple[dict[str, Any], ...]
    tool_choice: str
    parallel_tool_calls: bool
    max_output_tokens: int | str
    metadata: dict[str, str] | None
    out_of_band: bool


@dataclass(slots=True)
class _Speech:
    """Audio that waits to be sent; `position` bytes of it are sent already."""

    pcm: bytes
    transcript: str
    words: tuple[TimedWord, ...]
    position: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """How the pipeline ended: `reason` as in `ResponseEnded`, or a failure's `code` and `message`."""

    reason: str = "stop"
    code: str = ""
    message: str = ""


@dataclass(slots=True)
class _Call:
    item: Item
    index: int
    open: bool = True


class Response:
    """The wire life of one response.

    Chunks of the pipeline are queued and released by `pump`: text at once, audio at most `lead_ms` ahead of the listener and
    at most `undelivered_ms` ahead of the socket, all responses of the session together (`waiting` counts their samples).
    Invariant: nothing is sent before `begin` or
    after the terminal, and the terminal is sent once.
    """

    def __init__(
        self,
        *,
        response_id: str,
        epoch: int,
        settings: ResponseSettings,
        conversation: Conversation,
        emitter: Emitter,
        limits: SessionLimits,
        waiting: Callable[[], int],
    ) -> None:
        self.id = response_id
        self.epoch = epoch
        self.fence = epoch
        """The epoch whose end withholds what is sent from now on; later than `epoch` when a fence spared this response."""
        self.settings = settings
        self.status = Status.IN_PROGRESS
        self.ledger = PlaybackLedger()
        self.tokens = TokenCount()
        self.turn_item_id: str | None = None
        self.started = False
        self.generated = False
        """The pipeline has made everything that it will make."""
        self.message: Item | None = None
        self._conversation = conversation
        self._emit = emitter
        self._limits = limits
        self._waiting = waiting
        self._queue: deque[_Speech | str | Ending] = deque()
        self._queued_bytes = 0
        self._held = False
        self._output: list[Item] = []
        self._message_index = 0
        self._calls: dict[int, _Call] = {}
        self._encoder = OutputEncoder(settings.format["type"])

    # ---- what the pipeline gives ----

    def add_text(self, text: str) -> None:
        """Text of a written answer. In an audio response it is dropped: there the transcript comes with the audio."""
        if text and not self.settings.audio and not self.generated:
            self._queue.append(text)

    def add_speech(self, pcm: bytes, transcript: str, words: tuple[TimedWord, ...]) -> None:
        """Speech of a spoken answer. In a text response it is dropped."""
        pcm = pcm[: len(pcm) & ~1]
        if self.generated or not self.settings.audio or not (pcm or transcript):
            return
        if transcript and (not words or "".join(word.text for word in words) != transcript):
            words = spread(transcript, len(pcm) // 2 * 1000 / SAMPLE_RATE)
        self._queue.append(_Speech(pcm, transcript, words))
        self._queued_bytes += len(pcm)
        if not self._held and to_ms(self._queued_bytes // 2) > self._limits.hold_above_ms:
            self._held = True
            self._emit.command(HoldResponse(self.id, True))

    def add_call(self, index: int, call_id: str, name: str, arguments: str) -> None:
        """A piece of a function call: goes out at once, past audio that waits."""
        if self.generated:
            return
        call = self._calls.get(index)
        if call is None:
            item = Item(self._emit.ids.make("item"), "function_call", status="in_progress", call_id=call_id, name=name)
            call = self._calls[index] = _Call(item, len(self._output))
            self._output.append(item)
            self._announce(item, call.index)
        call.item.arguments += arguments
        if arguments:
            self._emit.send(
                wire.FunctionCallArgumentsDelta,
                response_id=self.id,
                item_id=call.item.id,
                output_index=call.index,
                call_id=call.item.call_id,
                delta=arguments,
            )

    def end(self, ending: Ending) -> None:
        """The pipeline is done; the terminal follows once everything queued is sent."""
        if self.generated:
            return
        self.generated = True
        self._queue.append(ending)
        if not ending.code:
            self._close_calls(complete=True)

    # ---- what goes out ----

    def begin(self) -> None:
        """Send `response.created`."""
        self._emit.send(wire.ResponseCreated, response=self.wire())

    @property
    def done(self) -> bool:
        return self.status is not Status.IN_PROGRESS

    @property
    def queued_ms(self) -> int:
        """Audio made but not released."""
        return to_ms(self._queued_bytes // 2)

    def pump(self, now: float) -> None:
        """Release what may be released now."""
        while self._queue and not self.done:
            head = self._queue[0]
            if isinstance(head, Ending):
                self._queue.popleft()
                self._conclude(head)
            elif isinstance(head, str):
                self._queue.popleft()
                self._write(head)
            elif not self._speak(head, now):
                break
        if self._held and to_ms(self._queued_bytes // 2) < self._limits.hold_below_ms and not self.done:
            self._held = False
            self._emit.command(HoldResponse(self.id, False))

    def next_deadline(self, now: float) -> float | None:
        """When `pump` can release more; None: only an event can tell."""
        if self.done or not self._queue or not isinstance(self._queue[0], _Speech):
            return None
        samples = self._slice_samples(self._queue[0])
        if self._blocked_by_reader(samples):
            return None
        return self.ledger.falls_to(max(0, to_samples(self._limits.lead_ms) - samples), now)

    def cancel(self, reason: str, heard_ms: float, now: float, *, played_out: bool = False) -> None:
        """End early: `reason` is turn_detected or client_cancelled; the item keeps what was heard. `played_out`: the listener
        still hears what was delivered."""
        self._drop_queue()
        if played_out:
            self.ledger.withhold()
        else:
            self.ledger.stop(now)
        self.cut(heard_ms)
        self._finish(Status.CANCELLED, {"type": "cancelled", "reason": reason})

    def withhold(self) -> None:
        """What the transport had not delivered yet was purged: the listener hears the rest."""
        if self.ledger.released > self.ledger.delivered:
            self.ledger.withhold()
            self.cut(self.ledger.delivered * 1000 / SAMPLE_RATE)

    def fail(self, code: str, message: str) -> None:
        """End with an engine's failure."""
        self._drop_queue()
        self.ledger.complete()
        error = {"type": "server_error", "code": code, "message": message}
        self._finish(Status.FAILED, {"type": "failed", "error": error})

    def cut(self, heard_ms: float) -> None:
        """The listener heard only this much of the audio (clamped to what was released)."""
        part = self.message.spoken if self.message is not None else None
        if part is not None:
            part.cut_ms = min(max(0.0, heard_ms), part.timeline.duration_ms)

    # ---- inside ----

    def _drop_queue(self) -> None:
        if self._queued_bytes:
            self._emit.measure("purged_audio_ms", to_ms(self._queued_bytes // 2), where="session")
        self._queue.clear()
        self._queued_bytes = 0

    def _slice_samples(self, speech: _Speech) -> int:
        longest = self._limits.first_slice_ms if self.ledger.released == 0 else self._limits.slice_ms
        return min(to_samples(longest), (len(speech.pcm) - speech.position) // 2)

    def _blocked_by_reader(self, samples: int) -> bool:
        waiting = self._waiting()
        return waiting > 0 and waiting + samples > to_samples(self._limits.undelivered_ms)

    def _speak(self, speech: _Speech, now: float) -> bool:
        """Release the next slice; False: not yet."""
        samples = self._slice_samples(speech)
        if self._blocked_by_reader(samples):
            return False
        ahead = self.ledger.ahead(now)
        # A sample of tolerance, or a deadline computed from the same figures would come due a rounding error too early.
        if ahead >= 1 and ahead + samples > to_samples(self._limits.lead_ms) + 1:
            return False
        part = self._open_message(SpokenPart())
        assert self.message is not None
        assert isinstance(part, SpokenPart)
        first = speech.position == 0
        pcm = speech.pcm[speech.position : speech.position + samples * 2]
        speech.position += len(pcm)
        self._queued_bytes -= len(pcm)
        place: dict[str, Any] = {
            "response_id": self.id,
            "item_id": self.message.id,
            "output_index": self._message_index,
            "content_index": 0,
        }
        fence = None if self.settings.out_of_band else self.fence
        if first and speech.transcript:
            self.tokens.words += len(speech.transcript.split())
            self._emit.send(wire.OutputAudioTranscriptDelta, fence=fence, owner=self.id, delta=speech.transcript, **place)
        part.timeline.extend(samples, speech.transcript if first else "", speech.words if first else ())
        if pcm:
            part.audio += pcm
            self.ledger.release(samples)
            self._emit.send(wire.OutputAudioDelta, fence=fence, owner=self.id, samples=samples, pcm=self._encoder.encode(pcm), **place)
        if speech.position >= len(speech.pcm):
            self._queue.popleft()
        return True

    def _write(self, text: str) -> None:
        part = self._open_message(TextPart("", "output_text"))
        assert self.message is not None
        assert isinstance(part, TextPart)
        part.text += text
        self.tokens.words += len(text.split())
        self._emit.send(
            wire.OutputTextDelta,
            fence=None if self.settings.out_of_band else self.fence,
            owner=self.id,
            response_id=self.id,
            item_id=self.message.id,
            output_index=self._message_index,
            content_index=0,
            delta=text,
        )

    def _open_message(self, part: SpokenPart | TextPart) -> SpokenPart | TextPart:
        if self.message is not None:
            current = self.message.content[0]
            assert isinstance(current, SpokenPart | TextPart)
            return current
        self.message = Item(self._emit.ids.make("item"), role="assistant", status="in_progress", content=[part])
        self._message_index = len(self._output)
        self._output.append(self.message)
        self._announce(self.message, self._message_index)
        self._emit.send(
            wire.ContentPartAdded,
            response_id=self.id,
            item_id=self.message.id,
            output_index=self._message_index,
            content_index=0,
            part=_part_wire(part),
        )
        return part

    def _announce(self, item: Item, index: int) -> None:
        shape = item.wire(empty=True)
        self._emit.send(wire.OutputItemAdded, response_id=self.id, output_index=index, item=shape)
        if not self.settings.out_of_band:
            before = self._conversation.insert(item)
            self._emit.send(wire.ConversationItemAdded, item=shape, previous_item_id=before)

    def _conclude(self, ending: Ending) -> None:
        self.ledger.complete()
        self._flush()
        if ending.code:
            self.fail(ending.code, ending.message)
        elif ending.reason == "length":
            self._finish(Status.INCOMPLETE, {"type": "incomplete", "reason": "max_output_tokens"})
        elif ending.reason == "content_filter":
            self._finish(Status.INCOMPLETE, {"type": "incomplete", "reason": "content_filter"})
        else:
            self._finish(Status.COMPLETED, {"type": "completed"})

    def _flush(self) -> None:
        """The last 2 ms of G.711, which the resampler held back; they count as sent with the audio before."""
        tail = self._encoder.flush()
        if tail and self.message is not None:
            self._emit.send(
                wire.OutputAudioDelta,
                fence=None if self.settings.out_of_band else self.fence,
                owner=self.id,
                response_id=self.id,
                item_id=self.message.id,
                output_index=self._message_index,
                content_index=0,
                pcm=tail,
            )

    def _finish(self, status: Status, details: dict[str, Any]) -> None:
        assert not self.done, "a response has one terminal"
        self.generated = True
        self.status = status
        self._close_message("completed" if status is Status.COMPLETED else "incomplete")
        self._close_calls(complete=False)
        self._emit.send(wire.ResponseDone, response=self.wire(details))

    def _close_message(self, status: str) -> None:
        item = self.message
        if item is None:
            return
        item.status = status
        part = item.content[0]
        place: dict[str, Any] = {"response_id": self.id, "item_id": item.id, "output_index": self._message_index, "content_index": 0}
        if isinstance(part, SpokenPart):
            self._emit.send(wire.OutputAudioDone, **place)
            self._emit.send(wire.OutputAudioTranscriptDone, transcript=part.transcript, **place)
        elif isinstance(part, TextPart):
            self._emit.send(wire.OutputTextDone, text=part.text, **place)
        self._emit.send(wire.ContentPartDone, part=_part_wire(part), **place)
        self._close_item(item, self._message_index)

    def _close_calls(self, *, complete: bool) -> None:
        for call in self._calls.values():
            if not call.open:
                continue
            call.open = False
            call.item.status = "completed" if complete else "incomplete"
            self._emit.send(
                wire.FunctionCallArgumentsDone,
                response_id=self.id,
                item_id=call.item.id,
                output_index=call.index,
                call_id=call.item.call_id,
                name=call.item.name,
                arguments=call.item.arguments,
            )
            self._close_item(call.item, call.index)

    def _close_item(self, item: Item, index: int) -> None:
        shape = item.wire()
        if not self.settings.out_of_band and self._conversation.get(item.id) is not None:
            self._emit.send(wire.ConversationItemDone, item=shape, previous_item_id=self._conversation.before(item.id))
        self._emit.send(wire.OutputItemDone, response_id=self.id, output_index=index, item=shape)

    def wire(self, details: dict[str, Any] | None = None) -> dict[str, Any]:
        """The response object; `details` (status_details) goes with the terminal, and so does the usage."""
        settings = self.settings
        shape: dict[str, Any] = {
            "id": self.id,
            "object": "realtime.response",
            "status": str(self.status),
            "status_details": details,
            "output": [item.wire() for item in self._output] if self.done else [],
            "conversation_id": None if settings.out_of_band else self._conversation.id,
            "output_modalities": ["audio"] if settings.audio else ["text"],
            "max_output_tokens": settings.max_output_tokens,
            "audio": {"output": {"format": settings.format, "voice": settings.voice}},
            "metadata": settings.metadata,
            "usage": self.tokens.wire(to_ms(self.ledger.released)) if self.done else None,
        }
        return shape


def _part_wire(part: Any) -> dict[str, Any]:
    """A content part in response events, where the types are `text` and `audio`."""
    if isinstance(part, SpokenPart):
        return {"type": "audio", "transcript": part.transcript}
    return {"type": "text", "text": part.text}
