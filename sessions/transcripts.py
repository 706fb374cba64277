"""Who is waiting for which transcription: partial and final ones of items, and the words of overlapping speech."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from . import server_events as wire
from .agreement import Agreement
from .commands import CancelRequest, Transcribe
from .emitter import Emitter
from .inbound import Transcribed
from .session_config import SessionConfig
from .timeline import SAMPLE_RATE

OVERLAP = "overlap"
FINAL = "final"
PARTIAL = "partial"


@dataclass(slots=True)
class Request:
    """A transcription that is under way. `position`: where its audio ends in session time; `deadline`: when a committed item's
    counts as failed (the others are cancelled when they are no longer wanted)."""

    id: str
    item_id: str
    purpose: str
    position: int
    deadline: float | None = None


@dataclass(slots=True)
class _Speech:
    """What is known of one item's words."""

    agreement: Agreement = field(default_factory=Agreement)
    partial: str | None = None
    final: str | None = None
    early: str | None = None
    """The text of an early final transcription, if it is in."""
    committed: bool = False
    told: bool = True
    """The client knows this item and hears of its transcription."""
    seconds: float = 0.0


class Transcripts:
    """Asks for transcriptions and tells the client. Items are known by id from the moment their turn begins."""

    def __init__(self, config: Callable[[], SessionConfig], emitter: Emitter, wait_ms: int) -> None:
        self._config = config
        self._emit = emitter
        self._wait = wait_ms / 1000
        self._words_id: str | None = None
        self._requests: dict[str, Request] = {}
        self._items: dict[str, _Speech] = {}

    def ask_words(self, pcm: bytes, position: int) -> None:
        """What is being said over the assistant? One question at a time."""
        self.forget_words()
        self._words_id = self._ask("", OVERLAP, pcm, position)

    def forget_words(self) -> None:
        """The speech over the assistant is judged, or over: its words are worth nothing."""
        self._cancel(self._words_id)
        self._words_id = None

    def ask_partial(self, item_id: str, pcm: bytes, position: int) -> None:
        """Decode a growing utterance, if the client wants deltas and the last decoding is in."""
        speech = self._items.setdefault(item_id, _Speech())
        if self._config().audio.input.transcription is None or speech.partial is not None or speech.committed:
            return
        speech.partial = self._ask(item_id, PARTIAL, pcm, position)

    def ask_final(self, item_id: str, pcm: bytes, position: int) -> None:
        """Transcribe the item for good: early, in a pause, or after its commit."""
        speech = self._items.setdefault(item_id, _Speech())
        self.forget_early(item_id)
        speech.final = self._ask(item_id, FINAL, pcm, position)
        self._cancel(speech.partial)
        speech.partial = None

    def forget_early(self, item_id: str) -> None:
        """The caller speaks on: the early transcription is worth nothing."""
        speech = self._items.get(item_id)
        if speech is not None and not speech.committed:
            self._cancel(speech.final)
            speech.final = None
            speech.early = None

    def committed(self, item_id: str, pcm: bytes, position: int, now: float, *, told: bool = True) -> str | None:
        """The item is committed: returns its transcript if it is known already, else asks for it. `told`: the client hears of it."""
        speech = self._items.setdefault(item_id, _Speech())
        speech.seconds = len(pcm) / 2 / SAMPLE_RATE
        if speech.final is None and speech.early is None:
            self.ask_final(item_id, pcm, position)
        speech.committed = True
        speech.told = told
        if speech.final is not None:
            self._requests[speech.final].deadline = now + self._wait
        return speech.early

    def next_deadline(self) -> float | None:
        """When `overdue` has something to say."""
        return min((request.deadline for request in self._requests.values() if request.deadline is not None), default=None)

    def overdue(self, now: float) -> list[str]:
        """The requests for committed items that took too long; they are cancelled, and the caller says that they `failed`."""
        late = [request.id for request in self._requests.values() if request.deadline is not None and request.deadline <= now]
        for request_id in late:
            self._emit.command(CancelRequest(request_id))
        return late

    def abandon(self, item_id: str) -> None:
        """The turn was thrown away (buffer cleared), or its item deleted."""
        speech = self._items.pop(item_id, None)
        if speech is not None:
            self._cancel(speech.partial)
            self._cancel(speech.final)

    def answered(self, answer: Transcribed) -> tuple[Request, str, bool] | None:
        """Take a result: the request, its text ("" when nobody spoke) and whether it settles a committed item. None: stale."""
        request = self._requests.pop(answer.request_id, None)
        if request is None:
            return None
        text = "" if is_silence(answer) else answer.text.strip()
        speech = self._items.get(request.item_id)
        if request.purpose == OVERLAP or speech is None:
            return request, text, False
        if request.purpose == PARTIAL:
            speech.partial = None
            if not speech.committed and speech.final is None:
                self._delta(request.item_id, speech.agreement.partial(text))
            return request, text, False
        speech.final = None
        if not speech.committed:
            speech.early = text
        return request, text, speech.committed

    def complete(self, item_id: str, text: str) -> None:
        """Tell the client the final transcript."""
        speech = self._items.pop(item_id, None)
        if speech is None or not speech.told or self._config().audio.input.transcription is None:
            return
        self._delta(item_id, speech.agreement.final(text))
        usage = {"type": "duration", "seconds": round(speech.seconds, 3)}
        self._emit.send(wire.InputTranscriptionCompleted, item_id=item_id, content_index=0, transcript=text, usage=usage)

    def failed(self, request_id: str, code: str, message: str) -> tuple[Request, bool] | None:
        """Take a failure: the request and whether it leaves a committed item without its transcript."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return None
        speech = self._items.get(request.item_id)
        if speech is None:
            return request, False
        if request.purpose == PARTIAL:
            speech.partial = None
            return request, False
        speech.final = None
        if not speech.committed:
            return request, False
        del self._items[request.item_id]
        if speech.told and self._config().audio.input.transcription is not None:
            error = {"type": "server_error", "code": code, "message": message}
            self._emit.send(wire.InputTranscriptionFailed, item_id=request.item_id, content_index=0, error=error)
        return request, True

    def cancel_all(self) -> None:
        """The session ends."""
        for request_id in list(self._requests):
            self._cancel(request_id)

    def _delta(self, item_id: str, delta: str) -> None:
        if delta:
            self._emit.send(wire.InputTranscriptionDelta, item_id=item_id, content_index=0, delta=delta)

    def _ask(self, item_id: str, purpose: str, pcm: bytes, position: int) -> str:
        request = Request(self._emit.ids.make("req"), item_id, purpose, position)
        self._requests[request.id] = request
        wanted = self._config().audio.input.transcription
        self._emit.command(
            Transcribe(
                request_id=request.id,
                pcm=pcm,
                purpose=purpose,
                item_id=item_id,
                language=wanted.language if wanted is not None else None,
                prompt=(wanted.prompt or "") if wanted is not None else "",
            )
        )
        return request.id

    def _cancel(self, request_id: str | None) -> None:
        if request_id is not None and self._requests.pop(request_id, None) is not None:
            self._emit.command(CancelRequest(request_id))


def is_silence(answer: Transcribed) -> bool:
    """Whether the model itself doubts that anybody spoke (Whisper's own rule: no-speech above 0.6 and a mean log-probability
    below -1)."""
    return answer.no_speech > 0.6 and answer.logprob < -1.0
