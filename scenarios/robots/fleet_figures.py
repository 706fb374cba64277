"""What the blocks of a fleet say, pooled by server, robots and pace; and what they should say."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean, median

from rich.table import Table

from ..figures import percentile
from ..report import Figure, at_most, none_of, plain
from .fleet_blocks import Block, Pace

OURS, PLAIN = "ours", "plain"
ROUND_TRIP_AIM = 1.1
CHUNKS_AIM = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All blocks of a kind together. Times in milliseconds, `cpu` ones for each chunk; `blocks`: chunks a second of each."""

    peer: str
    robots: int
    pace: Pace
    p50: float | None
    p99: float | None
    per_second: float
    blocks: tuple[float, ...]
    asked: int
    late: int
    skipped: int
    lost: int
    refused: int
    batch: float | None
    cpu: float | None
    own_cpu: float | None
    own_late: float


def gather(blocks: list[Block]) -> list[Measured]:
    """The blocks of each kind together, in the order in which the kinds came."""
    kinds: dict[tuple[str, int, Pace], list[Block]] = defaultdict(list)
    for block in blocks:
        kinds[block.peer, block.robots, block.pace].append(block)
    return [_pooled(some) for some in kinds.values()]


def _pooled(some: list[Block]) -> Measured:
    trips = [trip for block in some for trip in block.trips]
    batches = [batch for block in some for batch in block.batches]
    chunks = sum(block.chunks for block in some)
    return Measured(
        peer=some[0].peer,
        robots=some[0].robots,
        pace=some[0].pace,
        p50=percentile(trips, 0.5),
        p99=percentile(trips, 0.99),
        per_second=median(block.chunks / block.seconds for block in some),
        blocks=tuple(block.chunks / block.seconds for block in some),
        asked=sum(block.asked for block in some),
        late=sum(block.late for block in some),
        skipped=sum(block.skipped for block in some),
        lost=sum(block.lost for block in some),
        refused=sum(sum(block.refused.values()) for block in some),
        batch=fmean(batches) if batches else None,
        cpu=sum(block.server_cpu for block in some) / chunks * 1000 if chunks else None,
        own_cpu=sum(block.own_cpu for block in some) / chunks * 1000 if chunks else None,
        own_late=max(block.own_late for block in some),
    )


def find(measured: list[Measured], peer: str, robots: int, pace: Pace) -> Measured | None:
    """One of them."""
    return next((one for one in measured if (one.peer, one.robots, one.pace) == (peer, robots, pace)), None)


def figures(measured: list[Measured]) -> list[Figure]:
    """The rows of the report: the aims first."""
    rows = []
    fewest, most = min(one.robots for one in measured), max(one.robots for one in measured)
    ours, theirs = find(measured, OURS, fewest, "paced"), find(measured, PLAIN, fewest, "paced")
    if ours and theirs and ours.p50 and theirs.p50:
        note = f"p50 {ours.p50:.1f} ms beside {theirs.p50:.1f}"
        rows.append(at_most(f"round trip over plain, {_robots(fewest)}", ours.p50 / theirs.p50, ROUND_TRIP_AIM, digits=2, note=note))
    ours, theirs = find(measured, OURS, most, "saturated"), find(measured, PLAIN, most, "saturated")
    if ours and theirs and theirs.per_second:
        times = ours.per_second / theirs.per_second
        note = f"{ours.per_second:.0f} a second beside {theirs.per_second:.0f}"
        aim = CHUNKS_AIM if most >= 16 else None
        name = f"chunks a second over plain, {_robots(most)}"
        rows.append(plain(name, times, "x", digits=1, note=note) if aim is None else _at_least(name, times, aim, note))
    for one in measured:
        if one.peer == OURS and one.pace == "paced":
            theirs = find(measured, PLAIN, one.robots, "paced")
            note = f"plain: {theirs.late + theirs.skipped}" if theirs else ""
            missing = one.late + one.skipped
            rows.append(none_of(f"chunks late or never asked for, {_robots(one.robots)}", missing, one.asked + one.skipped, note))
    rows.append(none_of("connections lost", sum(one.lost for one in measured)))
    return rows


def aims(rows: list[Figure]) -> list[str]:
    """A sentence for each aim that was missed."""
    return [f"{row.name}: {row.value}, should be {row.aim}." for row in rows if row.met is False]


def _at_least(name: str, value: float, aim: float, note: str) -> Figure:
    return Figure(name, f"{value:.1f} x", f"≥ {aim:g} x", value >= aim, note)


def _robots(count: int) -> str:
    return f"{count} robot{'s' if count > 1 else ''}"


def table(measured: list[Measured]) -> Table:
    """Everything, a row a kind."""
    found = Table(title="Round trips in ms", title_justify="left", header_style="bold")
    for column in ("robots", "pace", "server", "p50", "p99", "late", "not asked", "refused", "batch", "chunks/s", "CPU ms", "robots' CPU"):
        found.add_column(column, justify="left" if column in ("pace", "server") else "right")
    for one in measured:
        found.add_row(
            str(one.robots),
            one.pace,
            one.peer,
            *(_ms(value) for value in (one.p50, one.p99)),
            *(str(value) for value in (one.late, one.skipped, one.refused)),
            *("–" if value is None else f"{value:.1f}" for value in (one.batch,)),
            f"{one.per_second:.0f}",
            *("–" if value is None else f"{value:.2f}" for value in (one.cpu, one.own_cpu)),
        )
    return found


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
