"""Turns what happens in one session into the server's metrics and the timings of its turns."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..codecs.pcm import SAMPLE_RATE
from ..engines.messages import StageMark
from ..sessions.commands import Measure, Send, StartResponse, TurnMark
from ..sessions.server_events import ErrorEvent, OutputAudioDelta, ResponseDone
from .logs import logger
from .metrics import Metrics
from .transports.connection import Purged
from .turn_timings import Turn, TurnTimings

log = logger("gateway.figures")


class Figures:
    """The figures of one session. Label children are bound once, since audio comes fifty times a second."""

    def __init__(self, metrics: Metrics, pipeline: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.timings = TurnTimings()
        self._metrics = metrics
        self._pipeline = pipeline
        self._clock = clock
        self._samples: dict[str, int] = {}
        """Audio sent of each response in progress, in samples."""

    # ---- caller's audio ----

    def heard(self, samples: int) -> None:
        self._metrics.input_audio.inc(samples / SAMPLE_RATE)

    def vad_dropped(self, samples: int) -> None:
        self._metrics.vad_dropped.inc(samples / SAMPLE_RATE)

    # ---- what goes out ----

    def sent(self, send: Send, now: float) -> None:
        """An event went into the outbox."""
        event = send.event
        if type(event) is OutputAudioDelta:
            self._metrics.output_audio.inc(send.samples / SAMPLE_RATE)
            self._samples[event.response_id] = self._samples.get(event.response_id, 0) + send.samples
        elif type(event) is ErrorEvent:
            self._metrics.client_errors.labels(event.error.code or "none").inc()
        elif type(event) is ResponseDone:
            self._response_done(event)

    def fenced(self, purged: Purged) -> None:
        """A fence dropped this from the outbox."""
        self._metrics.purged_audio.labels("outbox").inc(purged.samples / SAMPLE_RATE)
        self._metrics.epoch_drops.labels("outbox").inc(purged.events)

    # ---- turns ----

    def response_started(self, command: StartResponse) -> None:
        turn = self.timings.turn(command.turn_item_id or command.response_id)
        turn.answer_with(command.response_id)

    def stage(self, response_id: str, mark: StageMark) -> None:
        turn = self.timings.of_response(response_id)
        if turn is not None:
            turn.stage(mark.stage).mark(mark.what, mark.at)

    def mark(self, mark: TurnMark) -> None:
        self.timings.mark(mark.item_id, mark.what, mark.at)

    def _response_done(self, event: ResponseDone) -> None:
        response = event.response
        status = str(response["status"])
        self._metrics.responses.labels(status).inc()
        samples = self._samples.pop(response["id"], 0)
        turn = self.timings.of_response(response["id"])
        if turn is None:
            return
        turn.status = status
        turn.audio_seconds = samples / SAMPLE_RATE
        usage = response.get("usage") or {}
        turn.output_tokens = usage.get("output_token_details", {}).get("text_tokens", 0)
        self._metrics.tokens.labels("input").inc(usage.get("input_tokens", 0))
        self._metrics.tokens.labels("cached").inc(usage.get("input_token_details", {}).get("cached_tokens", 0))
        self._metrics.tokens.labels("output").inc(turn.output_tokens)
        self._observe(turn, whole=status == "completed")

    def _observe(self, turn: Turn, *, whole: bool) -> None:
        """Put a turn's figures into the histograms; those of the whole answer only when it was made whole."""
        metrics = self._metrics
        first = ((metrics.ttft, turn.ttft), (metrics.ttfp, turn.ttfp), (metrics.gateway_share, turn.gateway_share))
        all_of_it = ((metrics.tpot, turn.tpot), (metrics.e2el, turn.e2el), (metrics.rtf, turn.rtf)) if whole else ()
        for histogram, value in (*first, *all_of_it):
            if value is not None:
                histogram.labels(self._pipeline).observe(value)

    # ---- what the session measures itself ----

    def measure(self, measure: Measure, since: float) -> None:
        """A figure of the session's. `since` is the time of the event that it was handling."""
        metrics, value, labels = self._metrics, measure.value, measure.labels
        match measure.name:
            case "dropped_by_epoch":
                metrics.epoch_drops.labels("session").inc(value)
            case "player_underruns":
                metrics.underruns.inc(value)
            case "purged_audio_ms":
                metrics.purged_audio.labels("session").inc(value / 1000)
            case "backchannels":
                metrics.backchannels.inc(value)
            case "barge_ins":
                metrics.barge_ins.labels(labels["kind"]).inc(value)
            case "onset_to_fence_ms":
                # The fence stood before this in the session's answer: its purge is done by now.
                metrics.onset_to_withheld.labels(self._pipeline).observe(value / 1000 + self._clock() - since)
            case _:
                log.warning("unknown measure", name=measure.name)

    def crashed(self, where: str) -> None:
        """A fault in the gateway itself."""
        self._metrics.crashes.labels(where).inc()
