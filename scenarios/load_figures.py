"""What is measured of a load: each step of it, and a steady one over time."""

from __future__ import annotations

from dataclasses import dataclass, field

LATE_MS = 100.0
"""Audio later than this is a missed deadline (the 99th percentile counts)."""

WARM_UP_MIN = 2.5
"""Each session keeps the last two minutes of its audio: only after that can memory be flat."""


@dataclass(slots=True)
class Step:
    """What was measured with so many sessions. `cpu` is the server's share of one core; times in ms, memory in MB."""

    sessions: int
    cpu: float
    client_cpu: float
    cpu_us_per_20ms: float
    late_p50: float
    late_p99: float
    underruns: int
    errors: int
    lost: int
    first_audio_p50: float
    first_audio_p99: float
    own_late_p99: float
    rss: float
    pss: float
    pss_per_session: float
    deltas: int
    last_error: str = ""

    @property
    def slipped(self) -> bool:
        """Whether the server missed its deadlines."""
        return self.late_p99 > LATE_MS or self.underruns > 0 or self.lost > 0 or self.errors > 0 or self.deltas == 0

    @property
    def good(self) -> bool:
        """Whether so many sessions were carried, as far as the client can tell."""
        return not self.slipped and not self.client_is_slow

    @property
    def client_is_slow(self) -> bool:
        """Whether the client was too late itself for the rest to mean anything."""
        return self.own_late_p99 > LATE_MS / 2


@dataclass(slots=True)
class Steady:
    """Memory over a steady load: (minutes, PSS in MB, threads, open files)."""

    sessions: int
    samples: list[tuple[float, float, int, int]] = field(default_factory=list)
    late_p99: float | None = None
    underruns: int = 0
    lost: int = 0

    @property
    def growth_percent(self) -> float | None:
        """PSS of the last third over the first third after the warm-up, in percent; None: it was too short to say."""
        warm = [pss for minute, pss, _, _ in self.samples if minute >= WARM_UP_MIN]
        third = len(warm) // 3
        if third < 2:
            return None
        first, last = sum(warm[:third]) / third, sum(warm[-third:]) / third
        return (last / first - 1) * 100
