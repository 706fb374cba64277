"""The caller's side of a session: audio in, turns and user items out."""

from __future__ import annotations

from collections.abc import Callable

from . import server_events as wire
from . import turn_taking as turns
from .commands import CancelRequest, HearAudio, JudgeTurnEnd, TurnMark
from .conversation import Conversation
from .coordinator import ResponseCoordinator
from .emitter import Emitter
from .errors import ClientEventError
from .inbound import SpeechScored, Transcribed
from .input_audio import InputRing, to_ms, to_samples
from .items import HeardPart, Item
from .policy import SessionLimits, TurnTakingPolicy
from .session_config import AudioFormat, SemanticVad, ServerVad, SessionConfig
from .speech_edges import FRAME
from .timeline import SAMPLE_RATE
from .transcripts import FINAL, OVERLAP, Transcripts
from .turn_taking import Caller, TurnTaking
from .wire_audio import InputDecoder

SHORTEST_COMMIT_MS = 100
JUDGED_MS = 8_000
GONE_S = 10.0
"""A caller whose audio stopped for so long in the middle of a turn is not speaking any more."""


class Listener:
    """Owns the input ring, the turn-taking machine and the open turn's item id."""

    def __init__(
        self,
        *,
        config: Callable[[], SessionConfig],
        conversation: Conversation,
        coordinator: ResponseCoordinator,
        emitter: Emitter,
        policy: TurnTakingPolicy,
        limits: SessionLimits,
    ) -> None:
        self._config = config
        self._conversation = conversation
        self._coordinator = coordinator
        self._emit = emitter
        self._policy = policy
        self._limits = limits
        self._ring = InputRing(to_samples(limits.input_buffer_ms))
        self._decoder = InputDecoder(config().audio.input.format.type)
        self._turns = TurnTaking(policy)
        self._transcripts = Transcripts(config, emitter, limits.transcript_wait_ms)
        self._unwritten: dict[str, Item] = {}
        """Committed items whose transcription is under way, by its key: their id, or a made-up one for items that are in no
        conversation. Bound: the conversation's items and those of the responses in progress."""
        self._buffer_start = 0
        self._item_id: str | None = None
        self._judge_id: str | None = None
        self._answer_item: str | None = None
        """The committed item that an automatic response waits to answer."""
        self._vad_lost = False
        self._fed = 0
        self._feed_offset: int | None = None
        self._received_at = 0.0

    # ---- what others ask ----

    @property
    def speaking(self) -> bool:
        """The caller has an open turn."""
        return self._turns.caller is Caller.SPEAKING

    @property
    def open_item_id(self) -> str | None:
        """The id that the client was told for the turn that is not committed yet."""
        return self._item_id

    def busy(self, now: float) -> bool:
        """The caller is speaking, or what was said is still being written down."""
        if self._turns.caller is not Caller.QUIET and now - self._received_at < GONE_S:
            return True
        return bool(self._unwritten) or self._answer_item is not None

    def next_deadline(self) -> float | None:
        """When `tick` is due."""
        return self._transcripts.next_deadline()

    def tick(self, now: float) -> None:
        """Give up transcriptions that took too long."""
        for request_id in self._transcripts.overdue(now):
            message = "The user's speech was not transcribed in time."
            self.transcription_failed(request_id, "transcription_timeout", message, now)

    def heard_anything(self) -> bool:
        """Whether the caller is making (confirmed or tentative) speech."""
        return self._turns.caller is not Caller.QUIET

    # ---- audio ----

    def format_changed(self, format_: AudioFormat) -> None:
        """The client changed the input format."""
        self._decoder = InputDecoder(format_.type)

    def detection_changed(self) -> None:
        """Turn detection was switched on, off, or to another kind: speech before now opens no turn."""
        if self._config().audio.input.turn_detection is None:
            self._feed_offset = None
            self._reset_turns(self._ring.end)

    def append(self, data: bytes, event_id: str | None, now: float) -> None:
        """Audio in the session's input format. Raises ClientEventError when the buffer is full (manual turn detection)."""
        self.hear(self._decoder.decode(data), event_id, now)

    def hear(self, pcm: bytes, event_id: str | None, now: float) -> None:
        """Audio at 24 kHz."""
        if not pcm:
            return
        detection = self._config().audio.input.turn_detection
        if detection is None:
            buffered = to_ms(self._ring.end + len(pcm) // 2 - max(self._buffer_start, self._ring.begin))
            if buffered > self._limits.input_buffer_ms:
                message = f"The input audio buffer is full: it holds at most {self._limits.input_buffer_ms} ms. Commit or clear it."
                raise ClientEventError("input_audio_buffer_full", message, "audio", event_id)
        elif self._feed_offset is None:
            # Scores of audio from before (another feed, or before turn detection was off) fall below the floor.
            self._feed_offset = self._ring.end - self._fed
            self._reset_turns(self._ring.end)
        self._ring.append(pcm)
        self._received_at = now
        if detection is not None and not self._vad_lost:
            self._fed += len(pcm) // 2
            self._emit.command(HearAudio(pcm))
            self._ring.trim(min(self._turns.keep_from, self._ring.end))
        elif detection is not None:
            self._ring.trim(self._ring.end - to_samples(self._limits.input_buffer_ms))

    def clear(self) -> None:
        """`input_audio_buffer.clear`: forget the buffer and the open turn."""
        if self._item_id is not None:
            self._transcripts.abandon(self._item_id)
        self._item_id = None
        self._reset_turns(self._ring.end)
        self._buffer_start = self._ring.end
        self._ring.trim(self._ring.end)
        self._emit.send(wire.InputAudioBufferCleared)

    def commit(self, event_id: str | None, now: float) -> None:
        """`input_audio_buffer.commit`. Raises input_audio_buffer_commit_empty below 100 ms."""
        start = max(self._buffer_start, self._ring.begin)
        buffered = to_ms(self._ring.end - start)
        if buffered < SHORTEST_COMMIT_MS:
            message = (
                f"Error committing input audio buffer: buffer too small. Expected at least {SHORTEST_COMMIT_MS}ms of audio, "
                f"but buffer only has {buffered:.2f}ms of audio."
            )
            raise ClientEventError("input_audio_buffer_commit_empty", message, None, event_id)
        item_id = self._item_id or self._emit.ids.make("item")
        self._transcripts.forget_early(item_id)
        end = self._ring.end
        self._reset_turns(end)
        self._commit(item_id, start, end, now)

    # ---- what the engines say ----

    def scored(self, event: SpeechScored, now: float) -> None:
        """VAD scores, in feed positions."""
        for index, probability in enumerate(event.probabilities):
            detection = self._config().audio.input.turn_detection
            if detection is None or self._feed_offset is None:
                return
            start = event.start_sample + index * FRAME + self._feed_offset
            if start < self._turns.floor:
                continue  # scored late: this audio was committed or cleared meanwhile
            actions = self._turns.frame(
                start,
                probability,
                detection,
                audible=self._coordinator.audible(now),
                responding=self._coordinator.responding(),
            )
            for action in actions:
                self._act(action, detection, now)

    def vad_lost(self) -> bool:
        """The VAD engine failed; returns whether that is news."""
        news = not self._vad_lost
        self._vad_lost = True
        self._reset_turns(self._ring.end)
        self._feed_offset = None
        return news

    def vad_ready(self) -> None:
        """The VAD engine listens again, on a new feed."""
        self._vad_lost = False
        self._fed = 0
        self._feed_offset = None

    def judged(self, request_id: str, probability: float | None, now: float) -> None:
        """The turn-end engine's answer."""
        if request_id == self._judge_id:
            self._judge_id = None
            self._turns.judged(probability)
            self._evaluate(now)

    def transcribed(self, answer: Transcribed, now: float) -> None:
        """The ASR engine's answer."""
        result = self._transcripts.answered(answer)
        if result is None:
            return
        request, text, settles = result
        if request.purpose == OVERLAP:
            self._turns.words(text, answer.logprob, request.position)
            self._evaluate(now)
        elif settles:
            self._settle(request.item_id, text, now)

    def transcription_failed(self, request_id: str, code: str, message: str, now: float) -> None:
        """The ASR engine's failure."""
        result = self._transcripts.failed(request_id, code, message)
        if result is None:
            return
        request, lost = result
        if request.purpose == OVERLAP:
            self._turns.words_failed()
            self._evaluate(now)
        elif request.purpose == FINAL and lost:
            item = self._unwritten.pop(request.item_id)
            if self._answer_item == request.item_id:
                self._answer_item = None
                self._answer(request.item_id, now)
            self._coordinator.transcription_failed(item, code, message, now)
            _write_down(item, "")
            self._coordinator.transcripts_changed()

    def transcribe_item(self, item: Item, now: float) -> None:
        """A client created an item with speech in it, in the conversation or in the input of a response."""
        if item.heard is None or not item.heard.pcm:
            return
        told = self._conversation.get(item.id) is item
        key = item.id if told else self._emit.ids.make("item")
        self._unwritten[key] = item
        self._transcripts.committed(key, item.heard.pcm, 0, now, told=told)

    def forget(self, item: Item) -> None:
        """An item was taken out of the conversation."""
        if self._answer_item == item.id:
            self._answer_item = None
        if self._unwritten.pop(item.id, None) is not None:
            self._transcripts.abandon(item.id)
            _write_down(item, "")

    def cancel_all(self) -> None:
        """The session ends."""
        self._transcripts.cancel_all()
        self._forget_judgement()
        self._unwritten.clear()
        self._answer_item = None

    def answered_by_client(self) -> None:
        """The client asked for a response to the conversation itself: it answers the turn that waits for its transcript, too."""
        self._answer_item = None

    def prompt(self, now: float, *, answer: bool) -> None:
        """The idle timeout: an empty user item that makes the assistant speak up (unless the client creates all responses)."""
        item_id = self._emit.ids.make("item")
        at = to_ms(self._ring.end)
        self._emit.send(wire.InputAudioBufferTimeoutTriggered, item_id=item_id, audio_start_ms=at, audio_end_ms=at)
        item = Item(item_id, role="user", content=[HeardPart("")])
        item.note = "The user has said nothing for a while. In one short sentence, ask whether they are still there."
        self._insert(item)
        if answer:
            self._answer(item_id, now)

    # ---- turns ----

    def _evaluate(self, now: float) -> None:
        detection = self._config().audio.input.turn_detection
        if detection is None:
            return
        audible, responding = self._coordinator.audible(now), self._coordinator.responding()
        for action in self._turns.evaluate(detection, audible=audible, responding=responding):
            self._act(action, detection, now)

    def _act(self, action: turns.TurnAction, detection: ServerVad | SemanticVad, now: float) -> None:
        match action:
            case turns.BeginTurn():
                self._begin(action.onset, action.start, now)
            case turns.BargeIn():
                self._barge_in(action, now)
            case turns.Backchannel():
                self._transcripts.forget_words()
                self._emit.measure("backchannels")
            case turns.AskWords():
                self._transcripts.ask_words(self._ring.slice(action.start, action.end), action.end)
            case turns.AskTurnEnd():
                self._forget_judgement()
                self._judge_id = self._emit.ids.make("req")
                start = max(action.start, action.end - to_samples(JUDGED_MS))
                self._emit.command(JudgeTurnEnd(self._judge_id, self._ring.slice(start, action.end)))
            case turns.TranscribeEarly():
                assert self._item_id is not None
                self._transcripts.ask_final(self._item_id, self._ring.slice(action.start, action.end), action.end)
            case turns.TranscribePartial():
                assert self._item_id is not None
                self._transcripts.ask_partial(self._item_id, self._ring.slice(action.start, action.end), action.end)
            case turns.PauseOver():
                self._forget_judgement()
                if self._item_id is not None:
                    self._transcripts.forget_early(self._item_id)
            case turns.EndTurn():
                self._end(action, now)

    def _reset_turns(self, floor: int) -> None:
        """Forget the speech that is going on, and what was asked about it."""
        self._turns.reset(floor)
        self._transcripts.forget_words()
        self._forget_judgement()

    def _forget_judgement(self) -> None:
        if self._judge_id is not None:
            self._emit.command(CancelRequest(self._judge_id))
            self._judge_id = None

    def _begin(self, onset: int, start: int, now: float) -> None:
        self._transcripts.forget_words()
        if self._item_id is not None:
            self._transcripts.abandon(self._item_id)
        if self._answer_item is not None:
            # The turn before was ended too early: its answer had not even begun. One answer will serve both.
            self._answer_item = None
            self._coordinator.leave_unanswered()
        self._item_id = self._emit.ids.make("item")
        self._emit.send(wire.InputAudioBufferSpeechStarted, item_id=self._item_id, audio_start_ms=to_ms(start))
        self._emit.command(TurnMark(self._item_id, "speech_started", self._wall(onset, now)))

    def _barge_in(self, action: turns.BargeIn, now: float) -> None:
        coordinator = self._coordinator
        current = coordinator.interrupt()
        self._begin(action.onset, action.start, now)
        coordinator.conclude(current, "turn_detected", now)
        assert self._item_id is not None
        self._emit.command(TurnMark(self._item_id, "barge_in", now, current.id if current is not None else None))
        self._emit.measure("barge_ins", kind="resumed" if action.resumed else "interruption")
        self._emit.measure("onset_to_fence_ms", max(0.0, (now - self._wall(action.onset, now)) * 1000))

    def _end(self, action: turns.EndTurn, now: float) -> None:
        assert self._item_id is not None
        item_id = self._item_id
        self._emit.send(wire.InputAudioBufferSpeechStopped, item_id=item_id, audio_end_ms=to_ms(action.end))
        self._emit.command(TurnMark(item_id, "speech_stopped", self._wall(action.last_voiced, now)))
        detection = self._config().audio.input.turn_detection
        self._commit(item_id, action.start, action.end, now, answer=detection is not None and detection.create_response)

    def _commit(self, item_id: str, start: int, end: int, now: float, *, answer: bool = False) -> None:
        pcm = self._ring.slice(start, end)
        self._item_id = None
        self._forget_judgement()
        self._buffer_start = end
        self._ring.trim(end)
        item = Item(item_id, role="user", content=[HeardPart(None, pcm)])
        self._unwritten[item_id] = item
        self._insert(item)
        self._emit.command(TurnMark(item_id, "committed", now))
        if answer and self._config().type == "realtime":
            self._answer_item = item_id
        transcript = self._transcripts.committed(item_id, pcm, end, now)
        if transcript is not None:
            self._settle(item_id, transcript, now)

    def _insert(self, item: Item) -> None:
        before = self._conversation.last_id()
        self._emit.send(wire.InputAudioBufferCommitted, item_id=item.id, previous_item_id=before)
        self._conversation.insert(item)
        self._emit.send(wire.ConversationItemAdded, item=item.wire(), previous_item_id=before)
        self._emit.send(wire.ConversationItemDone, item=item.wire(), previous_item_id=before)

    def _settle(self, item_id: str, text: str, now: float) -> None:
        """An item's transcript is final."""
        _write_down(self._unwritten.pop(item_id), text)
        self._transcripts.complete(item_id, text)
        self._emit.command(TurnMark(item_id, "transcript_ready", now))
        if self._answer_item == item_id:
            self._answer_item = None
            if text or not self._policy.skip_silent_turns or self._coordinator.unanswered():
                self._answer(item_id, now)
        self._coordinator.transcripts_changed()

    def _answer(self, item_id: str, now: float) -> None:
        """Begin the automatic response to a turn; behind a response that still runs it waits."""
        try:
            self._coordinator.create(None, now, turn_item_id=item_id, automatic=True)
        except ClientEventError as error:
            self._emit.error(error)

    def _wall(self, position: int, now: float) -> float:
        """When the sample at `position` arrived, taking the caller's audio to come in real time."""
        return min(now, self._received_at) - (self._ring.end - position) / SAMPLE_RATE


def _write_down(item: Item, text: str) -> None:
    if item.heard is not None:
        item.heard.transcript = text
