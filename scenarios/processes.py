"""What a process costs: CPU time and memory, from `/proc` (Linux). Its children count as well."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time in seconds since the process began; memory in bytes (`pss` shares common pages fairly among processes)."""

    cpu: float
    rss: int
    pss: int
    threads: int
    files: int


def measure(pid: int) -> Cost:
    """The cost of a process and its children. Raises ProcessLookupError when it is gone."""
    costs = [_one(member) for member in _family(pid)]
    present = [cost for cost in costs if cost is not None]
    if not present:
        raise ProcessLookupError(f"process {pid} is gone")
    return Cost(
        cpu=sum(cost.cpu for cost in present),
        rss=sum(cost.rss for cost in present),
        pss=sum(cost.pss for cost in present),
        threads=sum(cost.threads for cost in present),
        files=sum(cost.files for cost in present),
    )


def _family(pid: int) -> list[int]:
    found = [pid]
    for member in found:
        for task in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def _one(pid: int) -> Cost | None:
    root = Path(f"/proc/{pid}")
    try:
        fields = (root / "stat").read_text().rpartition(")")[2].split()
        memory = dict(line.split()[:2] for line in (root / "smaps_rollup").read_text().splitlines()[1:])
        files = len(list((root / "fd").iterdir()))
    except (OSError, ValueError):
        return None
    return Cost(
        cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
        rss=int(memory["Rss:"]) * 1024,
        pss=int(memory["Pss:"]) * 1024,
        threads=int(fields[17]),
        files=files,
    )
