"""The server's figures for Prometheus. `docs/metrics.md` defines each name once; a test holds the two together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

TURN_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0)
TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
REACTION_BUCKETS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.73, 0.8, 1.0, 1.5, 2.0)
SHARE_BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1)
JOB_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
FACTOR_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 4.0)
ROBOT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 5.0, 30.0, 120.0)

Sample = tuple[dict[str, str], float]


class Metrics:
    """All figures of one server, in a registry of their own (two servers in one process do not disturb each other)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.ttft = self._of_turns("antiphon_ttft_seconds", "Chat engine start to first token", TURN_BUCKETS)
        self.ttfp = self._of_turns("antiphon_ttfp_seconds", "End of user speech to first audio byte out", TURN_BUCKETS)
        self.tpot = self._of_turns("antiphon_tpot_seconds", "Time per output token after the first", TOKEN_BUCKETS)
        self.e2el = self._of_turns("antiphon_e2el_seconds", "End of user speech to the end of making the answer", TURN_BUCKETS)
        self.rtf = self._of_turns("antiphon_rtf_ratio", "Time to make speech over its duration", FACTOR_BUCKETS)
        self.gateway_share = self._of_turns("antiphon_gateway_share_seconds", "What of a turn no model was working for", SHARE_BUCKETS)
        self.onset_to_withheld = self._of_turns(
            "antiphon_onset_to_withheld_seconds", "Onset of an interruption to the purge", REACTION_BUCKETS
        )
        self.purged_audio = self._counter("antiphon_purged_audio_seconds", "Audio dropped by fences", "where")
        self.barge_ins = self._counter("antiphon_barge_ins", "Times that a caller's speech ended a response", "kind")
        self.backchannels = self._counter("antiphon_backchannels", "Speech over the assistant that did not end the response")
        self.underruns = self._counter("antiphon_player_underruns", "Times that a simulated player ran dry in the middle of an answer")
        self.epoch_drops = self._counter("antiphon_epoch_drops", "Events and chunks dropped because a fence had passed them", "where")
        self.sessions_started = self._counter("antiphon_sessions_started", "Sessions admitted")
        self.sessions_ended = self._counter("antiphon_sessions_ended", "Sessions ended", "reason")
        self.refusals = self._counter("antiphon_refusals", "Handshakes refused", "code")
        self.evictions = self._counter("antiphon_evictions", "Idle sessions ended to make room or because their time was over", "reason")
        self.slow_readers = self._counter("antiphon_slow_reader_closes", "Connections closed because the client stopped reading")
        self.responses = self._counter("antiphon_responses", "Responses ended", "status")
        self.client_errors = self._counter("antiphon_client_errors", "Error events sent", "code")
        self.tokens = self._counter("antiphon_tokens", "Tokens of the chat engines", "kind")
        self.input_audio = self._counter("antiphon_input_audio_seconds", "Caller audio received")
        self.output_audio = self._counter("antiphon_output_audio_seconds", "Audio handed to sockets")
        self.vad_dropped = self._counter("antiphon_vad_dropped_audio_seconds", "Caller audio that the VAD engine was too late for")
        self.jobs_submitted = self._counter("antiphon_jobs_submitted", "Jobs taken into the queue", "kind")
        self.jobs_ended = self._counter("antiphon_jobs_ended", "Jobs ended", "kind", "status")
        self.jobs_expired = self._counter("antiphon_jobs_expired", "Ended jobs removed because their time was over")
        self.job_attempts = self._counter("antiphon_job_attempts", "Attempts ended", "kind", "outcome")
        self.job_recoveries = self._counter("antiphon_job_recoveries", "Attempts after the first", "kind")
        self.job_wait = self._histogram("antiphon_job_wait_seconds", "From submission to the first attempt", "kind", JOB_BUCKETS)
        self.job_work = self._histogram("antiphon_job_work_seconds", "Duration of attempts that completed their job", "kind", JOB_BUCKETS)
        self.artifact_bytes = self._counter("antiphon_artifact_bytes", "Bytes of completed jobs' files", "kind")
        self.orphans_removed = self._counter("antiphon_orphans_removed", "Files removed that no job or upload spoke of")
        self.webhooks = self._counter("antiphon_webhooks", "Tries to tell of an ended job", "outcome")
        self.robot_answers = self._counter("antiphon_robot_answers", "Requests of robots answered", "status")
        self.robot_round = self._histogram(
            "antiphon_robot_round_seconds", "Arrival of an observation to its chunk at the socket", "policy", ROBOT_BUCKETS
        )
        self.robot_episodes = self._counter("antiphon_robot_episodes", "Episodes of robots that ended", "policy", "outcome")
        self.crashes = self._counter("antiphon_crashes", "Faults in the gateway itself", "where")

    def _of_turns(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return self._histogram(name, text, "pipeline", buckets)

    def _histogram(self, name: str, text: str, label: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, (label,), buckets=buckets, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def watch(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Add gauges that are read when somebody asks."""
        self.registry.register(_Watched(read))

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def value(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        """A sample's present value, 0 when it has none yet."""
        return self.registry.get_sample_value(name, dict(labels or {})) or 0.0


def totals(counter: Counter, label: str) -> dict[str, int]:
    """A counter's present values by one of its labels, summed over the others."""
    found: dict[str, int] = {}
    for family in counter.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                found[sample.labels[label]] = found.get(sample.labels[label], 0) + int(sample.value)
    return found


class _Watched:
    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()

    def describe(self) -> Iterable[Metric]:
        return ()


def gauge(name: str, text: str, samples: Iterable[Sample]) -> GaugeMetricFamily:
    """A gauge family from (labels, value) pairs that all have the same labels."""
    pairs = list(samples)
    labels = tuple(pairs[0][0]) if pairs else ()
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in pairs:
        family.add_metric([values[label] for label in labels], value)
    return family


__all__ = ["Metrics", "gauge", "totals"]
