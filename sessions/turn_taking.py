"""Whose turn is it? A state machine over VAD scores, the turn-end engine's opinions and what the assistant is doing.

| state       | event                                        | goes to     | action                          |
|-------------|----------------------------------------------|-------------|---------------------------------|
| QUIET       | speech, assistant silent                     | SPEAKING    | BeginTurn                       |
| QUIET       | speech, assistant speaking or thinking       | OVERLAPPING | –                               |
| OVERLAPPING | confirmed (`overlap.decide`), or a resumption | SPEAKING    | BargeIn                         |
| OVERLAPPING | backchannel, cough, noise                    | QUIET       | Backchannel                     |
| OVERLAPPING | the assistant has finished meanwhile         | SPEAKING    | BeginTurn                       |
| SPEAKING    | pause                                        | SPEAKING    | TranscribeEarly, AskTurnEnd     |
| SPEAKING    | speech again                                 | SPEAKING    | PauseOver, TranscribePartial    |
| SPEAKING    | end of turn                                  | QUIET       | EndTurn                         |

It holds no audio and knows no items: the session carries the actions out.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from . import overlap
from .input_audio import to_ms, to_samples
from .overlap import Overlap, Verdict
from .policy import TurnTakingPolicy
from .session_config import SemanticVad, ServerVad
from .speech_edges import SpeechEdges
from .turn_end import has_ended

SEMANTIC_THRESHOLD = 0.5
PREFIX_MS = 300
KEPT_MS = 2_000
"""Audio kept while nobody speaks; at least the prefix padding."""
ASK_AGAIN_MS = 480


class Caller(enum.Enum):
    """What the caller is doing."""

    QUIET = "quiet"
    OVERLAPPING = "overlapping"
    SPEAKING = "speaking"


@dataclass(frozen=True, slots=True)
class BeginTurn:
    """The caller has begun to speak at `onset`; the turn's audio begins at `start` (prefix padding included)."""

    onset: int
    start: int


@dataclass(frozen=True, slots=True)
class BargeIn:
    """The caller interrupts the assistant (or goes on with a turn that was ended too early): stop it, then begin a turn."""

    onset: int
    start: int
    resumed: bool


@dataclass(frozen=True, slots=True)
class Backchannel:
    """The speech over the assistant was no interruption; it had begun at `onset`."""

    onset: int


@dataclass(frozen=True, slots=True)
class EndTurn:
    """The turn is over; `last_voiced` is the end of its last audible sample, `end` that of its audio."""

    start: int
    last_voiced: int
    end: int


@dataclass(frozen=True, slots=True)
class AskWords:
    """Have the overlapping speech recognised: audio from `start` to `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class AskTurnEnd:
    """Ask the turn-end engine about the audio from `start` to `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TranscribeEarly:
    """The turn may be over: begin its final transcription."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TranscribePartial:
    """The turn has grown: decode it again for deltas."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PauseOver:
    """The caller speaks on: forget the early transcription and the turn-end question."""


TurnAction: TypeAlias = (
    BeginTurn | BargeIn | Backchannel | EndTurn | AskWords | AskTurnEnd | TranscribeEarly | TranscribePartial | PauseOver
)


class TurnTaking:
    """See the module's docstring. Positions are samples in session time."""

    def __init__(self, policy: TurnTakingPolicy) -> None:
        self._policy = policy
        self._edges = SpeechEdges(policy.min_speech_ms, policy.hysteresis)
        self.caller = Caller.QUIET
        self.floor = 0
        """No turn begins before this position."""
        self._last_turn_voiced: int | None = None
        self._start = 0
        self._last_partial = 0
        # the pause in the caller's turn
        self._early = False
        self._probability: float | None = None
        self._asking_end = False
        self._asked_at: int | None = None
        # the speech over the assistant
        self._words: str | None = None
        self._logprob = 0.0
        self._words_to = 0
        self._words_lost = False
        self._asking_words = False
        self._confirm_at: int | None = None
        self._kept = to_samples(KEPT_MS)

    def reset(self, floor: int) -> None:
        """Forget the current speech; no turn may begin before the position `floor`."""
        self._edges.reset()
        self.caller = Caller.QUIET
        self.floor = floor
        self._reset_overlap()
        self._reset_pause()

    @property
    def keep_from(self) -> int:
        """The audio from here on may still be needed."""
        if self.caller is Caller.SPEAKING:
            return self._start
        onset = self._edges.onset if self._edges.onset is not None else self._edges.position
        return max(self.floor, onset - self._kept)

    def frame(
        self, start: int, probability: float, detection: ServerVad | SemanticVad, *, audible: bool, responding: bool
    ) -> list[TurnAction]:
        """Take one VAD score. `audible`: the listener hears the assistant; `responding`: an answer is being made."""
        threshold = detection.threshold if isinstance(detection, ServerVad) else SEMANTIC_THRESHOLD
        self._kept = to_samples(max(KEPT_MS, _prefix_ms(detection)))
        self._edges.frame(start, probability, threshold)
        return self.evaluate(detection, audible=audible, responding=responding)

    def words(self, text: str, logprob: float, heard_to: int) -> None:
        """The ASR engine's answer to `AskWords` (up to position `heard_to`), and how sure it is."""
        self._asking_words = False
        self._words = text
        self._logprob = logprob
        self._words_to = heard_to

    def words_failed(self) -> None:
        """The words cannot be had: duration alone decides."""
        self._asking_words = False
        self._words_lost = True

    def judged(self, probability: float | None) -> None:
        """The turn-end engine's answer to `AskTurnEnd`."""
        self._asking_end = False
        if probability is not None:
            self._probability = probability

    def evaluate(self, detection: ServerVad | SemanticVad, *, audible: bool, responding: bool) -> list[TurnAction]:
        """What follows from what is known now."""
        if not self._edges.active:
            return []
        if self.caller is Caller.QUIET:
            if not ((audible or responding) and detection.interrupt_response):
                return [self._begin(detection)]
            self.caller = Caller.OVERLAPPING
            self._reset_overlap()
        if self.caller is Caller.OVERLAPPING:
            return self._overlapping(detection, audible=audible, responding=responding)
        return self._speaking(detection)

    # ---- over the assistant ----

    def _overlapping(self, detection: ServerVad | SemanticVad, *, audible: bool, responding: bool) -> list[TurnAction]:
        edges, policy = self._edges, self._policy
        onset = edges.onset or 0
        if not audible and not responding:
            return [self._begin(detection)]
        last = self._last_turn_voiced
        resumed = last is not None and to_ms(onset - last) <= policy.resume_ms
        if policy.confirm_ms > 0 and (resumed or not audible) and edges.span_ms >= policy.thinking_confirm_ms:
            return [self._barge_in(detection, resumed=True)]
        if policy.confirm_ms > 0 and not audible:
            return self._forget_overlap() if edges.silence_ms >= policy.overlap_end_ms else []
        match overlap.decide(self._overlap(), policy):
            case Verdict.INTERRUPT:
                return [self._barge_in(detection, resumed=False)]
            case Verdict.IGNORE:
                return self._forget_overlap()
            case Verdict.ASK:
                self._asking_words = True
                return [AskWords(max(self.floor, onset - to_samples(PREFIX_MS)), edges.position)]
            case Verdict.WAIT:
                return []

    def _overlap(self) -> Overlap:
        edges = self._edges
        onset = edges.onset or 0
        decided = edges.span_ms >= self._policy.confirm_ms or edges.silence_ms >= self._policy.overlap_end_ms
        if decided and self._confirm_at is None:
            self._confirm_at = edges.position
        return Overlap(
            span_ms=edges.span_ms,
            silence_ms=edges.silence_ms,
            words=self._words,
            logprob=self._logprob,
            words_of_ms=max(0, to_ms(self._words_to - onset)),
            asking=self._asking_words,
            words_lost=self._words_lost,
            since_confirm_ms=to_ms(edges.position - self._confirm_at) if self._confirm_at is not None else 0,
        )

    def _forget_overlap(self) -> list[TurnAction]:
        onset = self._edges.onset or 0
        self.reset(self._edges.position)
        return [Backchannel(onset)]

    def _barge_in(self, detection: ServerVad | SemanticVad, *, resumed: bool) -> BargeIn:
        begin = self._begin(detection)
        return BargeIn(begin.onset, begin.start, resumed)

    # ---- the caller's turn ----

    def _begin(self, detection: ServerVad | SemanticVad) -> BeginTurn:
        onset = self._edges.onset or 0
        self._start = max(self.floor, onset - to_samples(_prefix_ms(detection)))
        self.caller = Caller.SPEAKING
        self._last_partial = onset
        self._reset_pause()
        return BeginTurn(onset, self._start)

    def _speaking(self, detection: ServerVad | SemanticVad) -> list[TurnAction]:
        edges, policy = self._edges, self._policy
        actions: list[TurnAction] = []
        if edges.silence_ms == 0:
            if self._early or self._asked_at is not None:
                actions.append(PauseOver())
            self._reset_pause()
            if to_ms(edges.position - self._last_partial) >= policy.partial_interval_ms:
                self._last_partial = edges.position
                actions.append(TranscribePartial(self._start, edges.position))
        elif not self._early and edges.silence_ms >= policy.early_transcription_ms:
            self._early = True
            actions.append(TranscribeEarly(self._start, edges.position))
        if self._over(detection) or to_ms(edges.position - self._start) >= policy.max_turn_ms:
            return [*actions, self._end()]
        if isinstance(detection, SemanticVad) and self._should_ask():
            self._asking_end = True
            self._asked_at = edges.position
            actions.append(AskTurnEnd(self._start, edges.position))
        return actions

    def _over(self, detection: ServerVad | SemanticVad) -> bool:
        silence = self._edges.silence_ms
        if isinstance(detection, ServerVad):
            return silence >= max(1, detection.silence_duration_ms)
        return silence > 0 and has_ended(silence, self._probability, detection.eagerness)

    def _should_ask(self) -> bool:
        edges = self._edges
        if self._asking_end or edges.silence_ms < self._policy.ask_turn_end_ms:
            return False
        return self._asked_at is None or to_ms(edges.position - self._asked_at) >= ASK_AGAIN_MS

    def _end(self) -> EndTurn:
        edges = self._edges
        end = EndTurn(self._start, edges.last_voiced or edges.position, edges.position)
        self._last_turn_voiced = end.last_voiced
        self.reset(end.end)
        return end

    def _reset_pause(self) -> None:
        self._early = False
        self._probability = None
        self._asking_end = False
        self._asked_at = None

    def _reset_overlap(self) -> None:
        self._words = None
        self._logprob = 0.0
        self._words_to = 0
        self._words_lost = False
        self._asking_words = False
        self._confirm_at = None


def _prefix_ms(detection: ServerVad | SemanticVad) -> int:
    return detection.prefix_padding_ms if isinstance(detection, ServerVad) else PREFIX_MS
