"""What is measured of a call, each figure defined once, from what a client can see and hear.

TTFP                the user's last audible sample -> the first audio delta of the answer is received
onset-to-withheld   the first audible sample of an interruption -> the last stale byte is received, or the client is told to stop
                    (`speech_started`), whichever is later; only of interruptions that did interrupt
missed interruption one that talked over an answer without cutting it
false interruption  a hum or a noise during which, or up to 1.5 s after which, an answer was cut
stale bytes         audio of an answer received after the event that ended it (`speech_started` of the interruption, or its
                    `response.done`)
history = heard     the words of a cut answer that the server keeps, less the words that lie in the audio which the listener
                    heard (as an ear, a speech recogniser, makes them out of that audio)
WER                 edits over words, pooled, after normalisation (`words`); a turn's text is that of all items committed in it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..clients.interface import ServerEvent
from ..codecs.pcm import duration_ms
from .conversation import WATCH_S, CallLog, Happening
from .words import edits, normalise, word_error_rate, words_heard

CUT_WITHIN_S = 3.0
"""An interruption that has not cut the answer within this of its own end was missed."""


@dataclass(slots=True)
class Answer:
    """A response as the client received it."""

    response_id: str
    created: float
    item_id: str | None = None
    first_audio: float | None = None
    last_audio: float | None = None
    done: float | None = None
    status: str = ""
    transcript: str = ""
    audio_bytes: int = 0
    deltas: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True)
class Turn:
    """Something that a caller said, what was written down of it, and its answer."""

    happening: Happening
    written: str
    answer: Answer | None
    premature: int
    """Answers that were begun before the caller had finished."""

    @property
    def ttfp(self) -> float | None:
        if self.answer is None or self.answer.first_audio is None:
            return None
        return self.answer.first_audio - self.happening.end

    @property
    def wrong_words(self) -> int:
        return edits(normalise(self.happening.text), normalise(self.written))


@dataclass(slots=True)
class Interruption:
    """An interruption and what became of the answer under it."""

    happening: Happening
    cut: bool
    withheld: float | None
    """Seconds; None: it was missed."""
    silent: float | None
    """Seconds from its onset until the client's player was silent."""
    stale_bytes: int
    kept: str = ""
    said: str = ""
    heard_ms: float = 0.0
    ear: str | None = None
    """What a recogniser makes of the audio that was heard; None: nobody asked one."""

    @property
    def history_error(self) -> int | None:
        """Words kept less words heard; None: there was nothing to compare."""
        if not self.cut or self.ear is None:
            return None
        return len(normalise(self.kept)) - words_heard(self.said, self.ear)


def answers(events: list[ServerEvent]) -> dict[str, Answer]:
    """Every response of a call by its id, in order."""
    found: dict[str, Answer] = {}
    for event in events:
        response_id = event.response_id
        if event.type == "response.created" and response_id is not None:
            found[response_id] = Answer(response_id, event.at)
        answer = found.get(response_id or "")
        if answer is None:
            continue
        if event.audio:
            answer.item_id = event.item_id
            answer.first_audio = event.at if answer.first_audio is None else answer.first_audio
            answer.last_audio = event.at
            answer.audio_bytes += len(event.audio)
            answer.deltas.append((event.at, len(event.audio)))
        elif event.type.endswith("audio_transcript.delta"):
            answer.transcript += event.data["delta"]
        elif event.type == "response.done":
            answer.done, answer.status = event.at, event.data["response"]["status"]
    return found


def turns(log: CallLog) -> list[Turn]:
    """What callers said, in order, each with its answer."""
    said = [happening for happening in log.happenings if happening.kind in ("say", "interrupt")]
    made = list(answers(log.events).values())
    texts = _transcripts(log.events)
    rows: list[Turn] = []
    for index, happening in enumerate(said):
        until = said[index + 1].onset if index + 1 < len(said) else float("inf")
        items = [event.item_id for event in log.events if event.type.endswith("buffer.committed") and happening.onset < event.at < until]
        written = " ".join(texts[item] for item in items if item in texts).strip()
        mine = [answer for answer in made if happening.onset < answer.created < until]
        right = [answer for answer in mine if answer.first_audio is not None and answer.first_audio >= happening.end]
        answer = right[0] if right else None
        premature = sum(other.created < happening.end for other in mine if other is not answer)
        rows.append(Turn(happening, written, answer, premature))
    return rows


def interruptions(log: CallLog, ears: Mapping[str, str] | None = None) -> list[Interruption]:
    """Every interruption that was over an answer. `ears`: what a recogniser makes of the heard audio of each cut item."""
    by_item = {answer.item_id: answer for answer in answers(log.events).values()}
    rows: list[Interruption] = []
    for happening in log.happenings:
        if happening.kind != "interrupt" or happening.over is None:
            continue
        cut = next(((at, stop) for at, stop in log.cuts if stop.item_id == happening.over and at >= happening.onset), None)
        answer = by_item[happening.over]
        if cut is None or cut[0] > happening.end + CUT_WITHIN_S:
            rows.append(Interruption(happening, False, None, None, 0, said=answer.transcript))
            continue
        told = cut[0]
        last = max((at for at, _ in answer.deltas if at >= happening.onset), default=told)
        rows.append(
            Interruption(
                happening,
                True,
                withheld=max(last, told) - happening.onset,
                silent=told - happening.onset,
                stale_bytes=stale_bytes(answer, told),
                kept=log.kept.get(happening.over, answer.transcript),
                said=answer.transcript,
                heard_ms=cut[1].heard_ms,
                ear=(ears or {}).get(happening.over),
            )
        )
    return rows


def stale_bytes(answer: Answer, told: float) -> int:
    """Audio of an answer that came after the client had been told that it is over."""
    over = min(told, answer.done if answer.done is not None else told)
    return sum(size for at, size in answer.deltas if at > over)


def false_interruptions(log: CallLog) -> list[Happening]:
    """Hums and noises that cut an answer."""
    return [
        happening
        for happening in log.happenings
        if happening.kind not in ("say", "interrupt") and any(happening.onset <= at <= happening.end + WATCH_S for at, _ in log.cuts)
    ]


def hums_and_noises(log: CallLog) -> list[Happening]:
    """Hums and noises over an answer (that is: those which had the chance to do harm)."""
    return [happening for happening in log.happenings if happening.kind not in ("say", "interrupt") and happening.over is not None]


def _transcripts(events: list[ServerEvent]) -> dict[str | None, str]:
    """The final transcript of each of the user's items that still exists."""
    texts: dict[str | None, str] = {}
    for event in events:
        if event.type.endswith("input_audio_transcription.completed"):
            texts[event.item_id] = event.data["transcript"]
        elif event.type == "conversation.item.deleted":
            texts.pop(event.item_id, None)
    return texts


def percentile(values: list[float], share: float) -> float | None:
    """The value below which `share` of them lie (linear between neighbours); None for none."""
    return float(np.percentile(values, share * 100)) if values else None


@dataclass(slots=True)
class Summary:
    """The figures of a call. Times in ms."""

    turns: int
    answered: int
    wer: float
    wer_noisy: float | None
    ttfp: list[float]
    interruptions: int
    missed: int
    withheld: list[float]
    silent: list[float]
    hums_and_noises: int
    false_interruptions: int
    stale_bytes: int
    history_errors: list[int]
    premature: int
    underruns: int
    underrun_ms: float
    late_frames: int
    spoken_minutes: float
    server: dict[str, list[float]]
    """The server's own figures of each turn, by name."""


def summarise(log: CallLog, ears: Mapping[str, str] | None = None) -> Summary:
    """All figures of a call."""
    said, cuts = turns(log), interruptions(log, ears)
    noisy = [turn for turn in said if turn.happening.snr_db is not None]
    pairs = [(turn.happening.text, turn.written) for turn in said]
    return Summary(
        turns=len(said),
        answered=sum(turn.answer is not None for turn in said),
        wer=word_error_rate(pairs),
        wer_noisy=word_error_rate((turn.happening.text, turn.written) for turn in noisy) if noisy else None,
        ttfp=[turn.ttfp * 1000 for turn in said if turn.ttfp is not None],
        interruptions=len(cuts),
        missed=sum(not row.cut for row in cuts),
        withheld=[row.withheld * 1000 for row in cuts if row.withheld is not None],
        silent=[row.silent * 1000 for row in cuts if row.silent is not None],
        hums_and_noises=len(hums_and_noises(log)),
        false_interruptions=len(false_interruptions(log)),
        stale_bytes=sum(row.stale_bytes for row in cuts),
        history_errors=[row.history_error for row in cuts if row.history_error is not None],
        premature=sum(turn.premature for turn in said),
        underruns=log.underruns,
        underrun_ms=log.underrun_s * 1000,
        late_frames=log.late_frames,
        spoken_minutes=duration_ms(b"".join(segment.pcm for segment in log.heard)) / 60_000,
        server=server_figures(log.server_report),
    )


def server_figures(report: Mapping[str, Any]) -> dict[str, list[float]]:
    """The figures that the server keeps of each answered turn (`GET /v1/realtime/sessions/{id}`), in ms; `rtf` is a ratio."""
    rows: dict[str, list[float]] = {}
    for turn in report.get("turns", []):
        for name, value in turn.get("figures_ms", {}).items():
            rows.setdefault(name, []).append(float(value))
        if turn.get("rtf") is not None:
            rows.setdefault("rtf", []).append(float(turn["rtf"]))
    return rows
