"""Tables of figures: on the terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of a report. `aim` is what it should be, in words; `met` None: there is no aim."""

    name: str
    value: str
    aim: str = ""
    met: bool | None = None
    note: str = ""


@dataclass(slots=True)
class Report:
    """What a scenario found. `failures` are sentences; without any, it passed."""

    scenario: str
    figures: list[Figure]
    failures: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    """Everything measured, for the JSON file."""

    @property
    def passed(self) -> bool:
        return not self.failures

    def show(self, console: Console) -> None:
        """Print the table and the verdict."""
        table = Table(title=f"{self.scenario} on {machine()}", title_justify="left", header_style="bold")
        table.add_column("figure")
        table.add_column("value", justify="right")
        table.add_column("aim")
        table.add_column("note", style="dim")
        for row in self.figures:
            style = "" if row.met is None else "green" if row.met else "red"
            table.add_row(row.name, Text(row.value, style=style), row.aim, row.note)
        console.print(table)
        for failure in self.failures:
            console.print(Text(failure, style="red"))
        console.print(Text("passed", style="bold green") if self.passed else Text("failed", style="bold red"))

    def save(self, folder: Path) -> None:
        """Write `report.md` and `report.json`."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"# {self.scenario}", "", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {machine()}", ""]
        lines += ["| figure | value | aim | met | note |", "|---|---:|---|---|---|"]
        words = {None: "", True: "yes", False: "**no**"}
        lines += [f"| {row.name} | {row.value} | {row.aim} | {words[row.met]} | {row.note} |" for row in self.figures]
        lines += ["", "Passed." if self.passed else "Failed:", *(f"- {failure}" for failure in self.failures), ""]
        (folder / "report.md").write_text("\n".join(lines))
        body = {
            "scenario": self.scenario,
            "machine": machine(),
            "passed": self.passed,
            "failures": self.failures,
            "figures": [asdict(row) for row in self.figures],
            "details": self.details,
        }
        (folder / "report.json").write_text(json.dumps(body, indent=1, default=str) + "\n")


def machine() -> str:
    """The machine in a few words."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass  # not Linux: the platform's own word for it
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} cores of {name}, Python {platform.python_version()}{load}"


def at_most(name: str, value: float | None, limit: float, unit: str = "", *, digits: int = 0, note: str = "") -> Figure:
    """A figure that should not exceed a limit."""
    unit = f" {unit}" if unit and unit != "%" else unit
    if value is None:
        return Figure(name, "–", f"≤ {limit:g}{unit}", None, note)
    return Figure(name, f"{value:.{digits}f}{unit}", f"≤ {limit:g}{unit}", value <= limit, note)


def plain(name: str, value: float | None, unit: str = "", *, digits: int = 0, note: str = "") -> Figure:
    """A figure without an aim."""
    unit = f" {unit}" if unit and unit != "%" else unit
    return Figure(name, "–" if value is None else f"{value:.{digits}f}{unit}", note=note)


def none_of(name: str, count: int, of: int | None = None, note: str = "") -> Figure:
    """Something that should not have happened at all."""
    return Figure(name, f"{count} of {of}" if of is not None else str(count), "0", count == 0, note)


def missed(figures: Sequence[Figure], required: Sequence[str]) -> list[str]:
    """A sentence for each required figure that misses its aim."""
    return [f"{row.name}: {row.value}, should be {row.aim}." for row in figures if row.name in required and row.met is False]
