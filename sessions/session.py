"""A session: events and a clock in, wire events and commands out. No I/O.

`handle` is the only way in. What it returns must take effect in order; nothing in here waits.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from . import client_events as client
from . import inbound as events
from . import server_events as wire
from .client_events import ClientEvent, decode_audio, parse_client_event
from .commands import CloseConnection, Outbound, Send
from .conversation import Conversation
from .coordinator import ResponseCoordinator
from .emitter import Emitter
from .errors import ClientEventError
from .ids import Ids
from .inbound import Inbound
from .item_building import ItemBuilder
from .items import Item
from .listener import Listener
from .policy import SessionLimits, TurnTakingPolicy
from .session_config import ServerVad, SessionConfig
from .timeline import SAMPLE_RATE
from .wire_audio import InputDecoder


class Session:
    """One caller, one conversation. `now` and all deadlines are seconds on one monotonic clock; `expires_at` is Unix time."""

    def __init__(
        self,
        *,
        session_id: str,
        config: SessionConfig,
        policy: TurnTakingPolicy,
        limits: SessionLimits,
        ids: Ids,
        expires_at: int,
        input_is_track: bool = False,
        epoch: int = 0,
    ) -> None:
        self.id = session_id
        self.config = config
        self.closed = False
        self.last_activity = 0.0
        self._expires_at = expires_at
        self._limits = limits
        self._policy = policy
        self._emit = Emitter(ids)
        max_audio = limits.item_audio_ms * SAMPLE_RATE // 1000 * 2
        self._conversation = Conversation(ids.make("conv"), limits.max_items, max_audio, limits.max_text)
        self._coordinator = ResponseCoordinator(
            epoch=epoch,
            config=lambda: self.config,
            conversation=self._conversation,
            emitter=self._emit,
            limits=limits,
            owns_playback=input_is_track,
        )
        self._listener = Listener(
            config=lambda: self.config,
            conversation=self._conversation,
            coordinator=self._coordinator,
            emitter=self._emit,
            policy=policy,
            limits=limits,
        )
        self._items = ItemBuilder(self._emit, self._decode_item_audio)
        self._idle_at: float | None = None
        self._idle_prompts = 0

    # ---- what others may look at ----

    @property
    def epoch(self) -> int:
        """The fence number: output made for an older one is dead."""
        return self._coordinator.epoch

    def state(self, now: float) -> str:
        """closed, listening (the caller speaks), speaking (the assistant is heard), thinking (an answer is being made) or idle."""
        if self.closed:
            return "closed"
        if self._listener.speaking:
            return "listening"
        if self._coordinator.audible(now):
            return "speaking"
        if self._listener.busy(now) or any(self._coordinator.responses):
            return "thinking"
        return "idle"

    def busy(self, now: float) -> bool:
        """Speaking, being spoken to or answering: such a session is never evicted. (A turn that stands open while no audio comes
        any more does not count.)"""
        if self.closed:
            return False
        return self._listener.busy(now) or self._coordinator.audible(now) or any(self._coordinator.responses)

    @property
    def conversation(self) -> Conversation:
        """The items, for whoever looks (never to change)."""
        return self._conversation

    def next_deadline(self, now: float) -> float | None:
        """When a `Tick` is due."""
        if self.closed:
            return None
        times = (self._coordinator.next_deadline(now), self._listener.next_deadline(), self._idle_at)
        return min((due for due in times if due is not None), default=None)

    # ---- the way in ----

    def open(self, now: float) -> list[Outbound]:
        """The first words: `session.created` and `conversation.created`."""
        self.last_activity = now
        self._emit.send(wire.SessionCreated, session=self.config.wire(self.id, self._expires_at))
        if self.config.type == "realtime":
            self._emit.send(wire.ConversationCreated, conversation={"id": self._conversation.id, "object": "realtime.conversation"})
        return self._emit.drain()

    def handle(self, event: Inbound, now: float) -> list[Outbound]:
        """Take one event; returns what to send and do, in order. After `closed` nothing is returned."""
        if self.closed:
            return []
        match event:
            case events.ClientMessage():
                self._client_message(event.raw, now)
            case events.TrackAudio():
                self._hear(event.pcm, now)
            case events.SpeechScored():
                self._listener.scored(event, now)
            case (
                events.ResponseAudio()
                | events.ResponseText()
                | events.ResponseToolCall()
                | events.ResponseEnded()
                | events.ResponseFailed()
            ):
                self._coordinator.chunk(event, now)
            case events.AudioDelivered():
                self._coordinator.delivered(event.response_id, event.samples, now)
            case events.Tick():
                self._listener.tick(now)
                self._coordinator.tick(now)
            case events.TurnEndJudged():
                self._listener.judged(event.request_id, event.probability, now)
            case events.Transcribed():
                self._listener.transcribed(event, now)
            case events.TranscriptionFailed():
                self._listener.transcription_failed(event.request_id, event.code, event.message, now)
            case events.BadFrame():
                self._emit.fault(event.code, event.message, client_event=event.event_id, kind="invalid_request_error")
            case events.VadLost():
                if self._listener.vad_lost():
                    self._emit.fault(event.code, event.message)
            case events.VadReady():
                self._listener.vad_ready()
            case events.Warn():
                notice = wire.SessionDraining if event.code == "draining" else wire.SessionExpiring
                self._emit.send(notice, message=event.message, seconds=event.seconds)
            case events.EndSession():
                self._end(event, now)
            case events.Disconnected():
                self._listener.cancel_all()
                self._coordinator.cancel_all(now)
                self.closed = True
                return [out for out in self._emit.drain() if not isinstance(out, Send)]
            case _:
                assert_never(event)
        if not self.closed:
            self._tidy()
            self._coordinator.buffer.settle(now)
            self._idle(now)
        return self._emit.drain()

    # ---- client events ----

    def _client_message(self, raw: bytes, now: float) -> None:
        event_id: str | None = None
        try:
            event = parse_client_event(raw)
            event_id = event.event_id
            if not isinstance(event, client.InputAudioBufferAppend):
                self.last_activity = now
            self._client_event(event, now)
        except ClientEventError as error:
            if error.event_id is None:
                error.event_id = event_id
            self._emit.error(error)

    def _client_event(self, event: ClientEvent, now: float) -> None:
        match event:
            case client.InputAudioBufferAppend():
                self._listener.append(decode_audio(event.audio, event.event_id), event.event_id, now)
                if self._listener.heard_anything() or self.config.audio.input.turn_detection is None:
                    self.last_activity = now
            case client.SessionUpdate():
                self._update(event)
            case client.InputAudioBufferCommit():
                self._listener.commit(event.event_id, now)
            case client.InputAudioBufferClear():
                self._listener.clear()
            case client.ConversationItemCreate():
                self._create_item(event, now)
            case client.ConversationItemRetrieve():
                self._retrieve(event)
            case client.ConversationItemDelete():
                self._delete(event, now)
            case client.ConversationItemTruncate():
                self._truncate(event, now)
            case client.ResponseCreate():
                self._create_response(event, now)
            case client.ResponseCancel():
                self._cancel_response(event, now)
            case client.OutputAudioBufferClear():
                self._clear_output(now)
            case _:
                assert_never(event)

    def _update(self, event: client.SessionUpdate) -> None:
        before = self.config
        config = before.merge(event.session, voice_locked=self._coordinator.spoke)
        self._check_size(config.wire(self.id, self._expires_at), "session", event.event_id)
        self.config = config
        if self.config.audio.input.format != before.audio.input.format:
            self._listener.format_changed(self.config.audio.input.format)
        if self.config.audio.input.turn_detection != before.audio.input.turn_detection:
            self._listener.detection_changed()
        self._emit.send(wire.SessionUpdated, session=self.config.wire(self.id, self._expires_at))

    def _check_size(self, shape: dict[str, Any], param: str, event_id: str | None) -> None:
        """Refuse what could not be echoed in one event."""
        size, limit = len(msgspec.json.encode(shape)), self._limits.event_bytes
        if size > limit:
            message = f"Invalid '{param}': it is too large. It would take {size} bytes to send back; the limit is {limit} bytes."
            raise ClientEventError("invalid_value", message, param, event_id)

    def _create_item(self, event: client.ConversationItemCreate, now: float) -> None:
        item = self._items.build(event.item, event.event_id)
        self._check_size(item.wire(), "item", event.event_id)
        if item.id == self._listener.open_item_id:
            message = f"Error adding item: an item with id '{item.id}' is being spoken by the user."
            raise ClientEventError("item_create_duplicate_item_id", message, "item.id", event.event_id)
        self._idle_prompts = 0
        before = self._conversation.insert(item, event.previous_item_id, event.event_id)
        self._emit.send(wire.ConversationItemAdded, item=item.wire(), previous_item_id=before)
        self._emit.send(wire.ConversationItemDone, item=item.wire(), previous_item_id=before)
        if item.heard is not None and item.heard.transcript is None:
            self._listener.transcribe_item(item, now)

    def _retrieve(self, event: client.ConversationItemRetrieve) -> None:
        item = self._find_item(event.item_id, "item_retrieve_invalid_item_id", event.event_id)
        audio = item.wire_audio_bytes <= self._limits.retrieve_audio_bytes
        self._emit.send(wire.ConversationItemRetrieved, item=item.wire(include_audio=audio))

    def _delete(self, event: client.ConversationItemDelete, now: float) -> None:
        item = self._find_item(event.item_id, "item_delete_invalid_item_id", event.event_id)
        current = self._coordinator.current
        if current is not None and current.message is item:
            self._coordinator.cancel(current, now)
        self._conversation.remove(item.id)
        self._removed(item)
        self._coordinator.transcripts_changed()

    def _removed(self, item: Item) -> None:
        self._listener.forget(item)
        self._emit.send(wire.ConversationItemDeleted, item_id=item.id)

    def _truncate(self, event: client.ConversationItemTruncate, now: float) -> None:
        item = self._find_item(event.item_id, "item_truncate_invalid_item_id", event.event_id)
        part = item.spoken
        if part is None or part.given:
            message = "Only model output audio messages can be truncated."
            raise ClientEventError("invalid_value", message, "item_id", event.event_id)
        if event.content_index != 0:
            message = f"Invalid value: {event.content_index}. The item has one content part, at index 0."
            raise ClientEventError("invalid_value", message, "content_index", event.event_id)
        heard_ms = min(float(event.audio_end_ms), part.timeline.duration_ms)
        coordinator = self._coordinator
        sounding = coordinator.sounding(item, now)
        stopped = coordinator.fence("client_truncated", spare_unspoken=True) if sounding else None
        self._emit.send(wire.ConversationItemTruncated, item_id=item.id, content_index=0, audio_end_ms=int(heard_ms))
        if sounding:
            coordinator.conclude(
                stopped, "client_cancelled", now, heard_ms if stopped is not None and stopped.message is item else None, truncated=True
            )
        part.cut_ms = heard_ms

    def _find_item(self, item_id: str, code: str, event_id: str | None) -> Item:
        item = self._conversation.get(item_id)
        if item is None:
            message = f"The item with id '{item_id}' does not exist in the conversation."
            raise ClientEventError(code, message, "item_id", event_id)
        return item

    def _create_response(self, event: client.ResponseCreate, now: float) -> None:
        if self.config.type == "transcription":
            message = "A transcription session makes no responses."
            raise ClientEventError("invalid_value", message, "type", event.event_id)
        context = None if event.response is None or event.response.input is None else self._context(event)
        self._coordinator.create(event.response, now, context=context, event_id=event.event_id)
        if context is None and not (event.response is not None and event.response.out_of_band):
            self._listener.answered_by_client()
        for item in context or ():
            if item.heard is not None and item.heard.transcript is None and self._conversation.get(item.id) is not item:
                self._listener.transcribe_item(item, now)
        self._idle_prompts = 0

    def _context(self, event: client.ResponseCreate) -> list[Item]:
        """The items of `response.input`: new ones, or references into the conversation."""
        assert event.response is not None
        context: list[Item] = []
        for index, param in enumerate(event.response.input or ()):
            if param.type != "item_reference":
                context.append(self._items.build(param, event.event_id, f"response.input[{index}]"))
                continue
            item = self._conversation.get(param.id)
            if item is None:
                message = f"The item with id '{param.id}' does not exist in the conversation."
                raise ClientEventError("invalid_value", message, f"response.input[{index}].id", event.event_id)
            context.append(item)
        return context

    def _cancel_response(self, event: client.ResponseCancel, now: float) -> None:
        response = self._coordinator.find(event.response_id)
        if response is None:
            message = "Cancellation failed: no active response found."
            raise ClientEventError("response_cancel_not_active", message, "response_id" if event.response_id else None, event.event_id)
        self._coordinator.cancel(response, now)

    def _clear_output(self, now: float) -> None:
        last = self._coordinator.last
        if last is None or not self._coordinator.audible(now):
            return
        stopped = self._coordinator.fence("client_cleared", spare_unspoken=True)
        if not self._coordinator.buffer.owned:
            self._emit.send(wire.OutputAudioBufferCleared, response_id=last.id)
        self._coordinator.conclude(stopped, "client_cancelled", now)

    # ---- audio ----

    def _hear(self, pcm: bytes, now: float) -> None:
        try:
            self._listener.hear(pcm, None, now)
        except ClientEventError as error:
            self._emit.error(error)
        if self._listener.heard_anything():
            self.last_activity = now

    def _decode_item_audio(self, audio: str, event_id: str | None) -> bytes:
        return InputDecoder(self.config.audio.input.format.type).decode(decode_audio(audio, event_id))

    # ---- ends, idleness, bounds ----

    def _end(self, event: events.EndSession, now: float) -> None:
        self._listener.cancel_all()
        self._coordinator.cancel_all(now)
        self._emit.fault(event.code, event.message, kind="invalid_request_error" if event.code == "session_expired" else "server_error")
        self._emit.command(CloseConnection(event.close_code, event.message))
        self.closed = True

    def _idle(self, now: float) -> None:
        """The idle timeout of server_vad: it counts from the end of the last answer's playback, while nobody says anything."""
        detection = self.config.audio.input.turn_detection
        timeout = detection.idle_timeout_ms if isinstance(detection, ServerVad) else None
        last = self._coordinator.last
        quiet = not self.closed and timeout is not None and last is not None and self.state(now) == "idle"
        if self._listener.heard_anything():
            self._idle_prompts = 0
        if not quiet or timeout is None or last is None:
            self._idle_at = None
            return
        if self._idle_at is None:
            if self._idle_prompts < self._policy.idle_prompts:
                self._idle_at = now + timeout / 1000
        elif now >= self._idle_at:
            self._idle_at = None
            self._idle_prompts += 1
            self._listener.prompt(now, answer=detection is not None and detection.create_response)

    def _tidy(self) -> None:
        """Keep the conversation within its bounds."""
        if not self._conversation.grown:
            return
        current = self._coordinator.current
        keep = [current.message.id] if current is not None and current.message is not None else []
        removed = self._conversation.overflow(keep)
        for item in removed:
            self._removed(item)
        if removed:
            self._coordinator.transcripts_changed()
