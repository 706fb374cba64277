"""Where the time of a turn went: from the marks of session and pipeline to the figures of docs/metrics.md. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class StageSpan:
    """When a stage of a pipeline started, gave its first chunk and ended; seconds on one monotonic clock, None: not yet."""

    start: float | None = None
    first: float | None = None
    end: float | None = None

    def mark(self, what: str, at: float) -> None:
        """The first `start` and `first` count, and the last `end`: a stage may run once a clause."""
        if what == "end":
            self.end = at
        elif what in ("start", "first") and getattr(self, what) is None:
            setattr(self, what, at)


@dataclass(slots=True)
class Turn:
    """The timings of one turn: the user's item and the first response to it."""

    item_id: str
    marks: dict[str, float] = field(default_factory=dict)
    stages: dict[str, StageSpan] = field(default_factory=dict)
    response_id: str | None = None
    status: str = ""
    output_tokens: int = 0
    audio_seconds: float = 0.0

    def answer_with(self, response_id: str) -> None:
        """A response to this turn begins; of an earlier one (the user had not finished) nothing counts any more."""
        if self.response_id is not None:
            self.stages.clear()
            self.marks.pop("first_audio", None)
        self.response_id = response_id

    def stage(self, name: str) -> StageSpan:
        return self.stages.setdefault(name, StageSpan())

    def between(self, start: str, end: str) -> float | None:
        """Seconds from one of the session's marks to another."""
        if start not in self.marks or end not in self.marks:
            return None
        return self.marks[end] - self.marks[start]

    @property
    def ttfp(self) -> float | None:
        """The user's last audible sample to the first audio handed to the outbox."""
        return self.between("speech_stopped", "first_audio")

    @property
    def e2el(self) -> float | None:
        """The user's last audible sample to the moment the pipeline has made the whole answer."""
        end = self.stage("speech").end or self.stage("chat").end
        start = self.marks.get("speech_stopped")
        return end - start if end is not None and start is not None else None

    @property
    def ttft(self) -> float | None:
        """Chat engine's start to its first token."""
        return _length(self.stage("chat").start, self.stage("chat").first)

    @property
    def tpot(self) -> float | None:
        """Mean time of a token after the first."""
        whole = _length(self.stage("chat").first, self.stage("chat").end)
        return whole / (self.output_tokens - 1) if whole is not None and self.output_tokens > 1 else None

    @property
    def rtf(self) -> float | None:
        """Time the speech stage took over the duration of what it made."""
        whole = _length(self.stage("speech").start, self.stage("speech").end)
        return whole / self.audio_seconds if whole is not None and self.audio_seconds > 0 else None

    @property
    def gateway_share(self) -> float | None:
        """Of the way from the commit to the first audio, what lay between the models.

        That way is: the transcript (if it is not there yet), the chat engine until the first clause goes to the speech engine,
        the speech engine until its first chunk, the outbox. Three hand-overs are ours: from commit or transcript to the chat
        engine's start, from the clause to the speech engine's start (inside the chat span, see docs/metrics.md), and from the
        speech engine's first chunk to the outbox.
        """
        committed, first_audio = self.marks.get("committed"), self.marks.get("first_audio")
        chat, speech = self.stage("chat"), self.stage("speech")
        if committed is None or first_audio is None or chat.start is None or speech.first is None:
            return None
        ready = max(committed, self.marks.get("transcript_ready", committed))
        return max(0.0, chat.start - ready) + max(0.0, first_audio - speech.first)

    def report(self) -> dict[str, Any]:
        """For the operator's route: when what happened, in ms after the end of the user's speech (of a turn without speech: after its
        beginning), and the figures in ms."""
        starts = [span.start for span in self.stages.values() if span.start is not None]
        zero = self.marks.get("speech_stopped", min((*self.marks.values(), *starts), default=0.0))
        spans = {
            name: {what: _ms(getattr(span, what), zero) for what in ("start", "first", "end") if getattr(span, what) is not None}
            for name, span in self.stages.items()
        }
        figures = {name: getattr(self, name) for name in ("ttfp", "ttft", "tpot", "e2el", "gateway_share")}
        return {
            "item_id": self.item_id,
            "response_id": self.response_id,
            "status": self.status,
            "marks_ms": {name: _ms(at, zero) for name, at in self.marks.items()},
            "stages_ms": {name: span for name, span in spans.items() if span},
            "figures_ms": {name: round(value * 1000, 2) for name, value in figures.items() if value is not None},
            "rtf": round(self.rtf, 3) if self.rtf is not None else None,
            "output_tokens": self.output_tokens,
            "audio_ms": round(self.audio_seconds * 1000),
        }


class TurnTimings:
    """The last turns of a session. Bound: `keep` turns, the oldest go first."""

    def __init__(self, keep: int = 50) -> None:
        self._turns: deque[Turn] = deque(maxlen=keep)

    def turn(self, item_id: str) -> Turn:
        """The turn of a user's item; made when it is new."""
        for turn in reversed(self._turns):
            if turn.item_id == item_id:
                return turn
        turn = Turn(item_id)
        self._turns.append(turn)
        return turn

    def mark(self, item_id: str, what: str, at: float) -> Turn:
        """Note one of the session's marks. Speech may pause and go on: `speech_stopped` is the last, all others are the first."""
        turn = self.turn(item_id)
        if what == "speech_stopped":
            turn.marks[what] = at
        else:
            turn.marks.setdefault(what, at)
        return turn

    def of_response(self, response_id: str) -> Turn | None:
        """The turn that this response answers, while it is kept."""
        return next((turn for turn in reversed(self._turns) if turn.response_id == response_id), None)

    def report(self) -> list[dict[str, Any]]:
        """All kept turns, the oldest first."""
        return [turn.report() for turn in self._turns]


def _length(start: float | None, end: float | None) -> float | None:
    return end - start if start is not None and end is not None else None


def _ms(at: float, zero: float) -> float:
    return round((at - zero) * 1000, 2)
