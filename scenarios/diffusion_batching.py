"""What step-level batching is worth: continuous against static batches against one request at a time, on the same weights, in one run; and
what the residual cache saves and costs.

The measuring is the engine's own (`python -m antiphon.engines.diffusion.bench`), in a process of its own on one thread; its clock is that
thread's CPU time, so other work on the machine does not count. This scenario starts it, judges and reports.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from .report import Figure, Report, missed, plain
from .server import ServerFailed
from .voice import Setting

THROUGHPUT_AIM = 1.5
LATENCY_AIM = 2.5
LIMIT_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured: `requests` of each point, `pictures` for the cache's error (0: no cache). `model` is a folder in the diffusers
    layout, "" the one that ships."""

    requests: int = 48
    loads: tuple[float, ...] = (0.7, 1.3, 2.0)
    pictures: int = 64
    model: str = ""


async def run(setting: Setting, plan: Plan) -> bool:
    """Measure and report. True when every aim is met. Raises `ServerFailed` when it cannot be measured."""
    found = await _bench(setting, plan)
    setting.console.print(_serving_table(found["serving"]))
    if found["cache"]:
        setting.console.print(_cache_table(found["cache"]))
    figures = [*_serving(found["serving"], max(plan.loads)), *_cached(found["cache"])]
    figures.append(plain("largest step", found["cap"], "rows", note=f"{found['step_ms'][str(found['cap'])]:.0f} ms"))
    report = Report("diffusion_batching", figures, missed(figures, [figure.name for figure in figures]), found)
    report.save(setting.out)
    report.show(setting.console)
    return report.passed


async def _bench(setting: Setting, plan: Plan) -> dict[str, Any]:
    """Start the measuring process, show what it says, take its result."""
    command = [sys.executable, "-m", "antiphon.engines.diffusion.bench"]
    command += ["--requests", str(plan.requests), "--pictures", str(plan.pictures), "--loads", ",".join(map(str, plan.loads))]
    command += ["--model", plan.model] if plan.model else []
    setting.out.mkdir(parents=True, exist_ok=True)
    result, log = setting.out / "bench.json", setting.out / "bench.log"
    with result.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(LIMIT_S):
            while line := await process.stderr.readline():
                lines.append(line.decode(errors="replace").rstrip())
                setting.console.print(Text(lines[-1], style="dim"))
            await process.wait()
    except TimeoutError as error:
        raise ServerFailed(f"The measurement did not end within {LIMIT_S:g} s.") from error
    finally:
        log.write_text("\n".join(lines) + "\n")
        with suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
                await process.wait()
    if process.returncode:
        raise ServerFailed("\n".join(["The measurement failed.", *lines[-12:]]))
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def _serving(points: list[dict[str, Any]], most: float) -> list[Figure]:
    """Continuous against the others."""
    at = {(point["load"], point["policy"]): point for point in points}
    serial, continuous = at[most, "serial"], at[most, "continuous"]
    faster = continuous["per_second"] / serial["per_second"]
    sooner = serial["mean_ms"] / continuous["mean_ms"]
    figures = [
        Figure(
            f"requests a second at {most:g}x load, against serial", f"{faster:.2f} x", f"≥ {THROUGHPUT_AIM:g} x", faster >= THROUGHPUT_AIM
        ),
        Figure(f"mean latency at {most:g}x load, against serial", f"1/{sooner:.2f}", f"≤ 1/{LATENCY_AIM:g}", sooner >= LATENCY_AIM),
    ]
    for load in sorted({point["load"] for point in points}):
        ratio = at[load, "continuous"]["mean_ms"] / at[load, "static"]["mean_ms"]
        figures.append(Figure(f"mean latency at {load:g}x load, against static batches", f"{ratio:.2f} x", "≤ 1.05 x", ratio <= 1.05))
    return figures


def _cached(points: list[dict[str, Any]]) -> list[Figure]:
    """What each threshold saves, and its error."""
    figures: list[Figure] = []
    whole = {point["steps"]: point for point in points if not point["threshold"]}
    for point in points:
        if point["threshold"]:
            faster = whole[point["steps"]]["ms_a_picture"] / point["ms_a_picture"]
            name = f"cache {point['threshold']:g} at {point['steps']} steps"
            figures.append(Figure(name, f"{faster:.2f} x", note=f"{point['psnr_mean']:.0f} dB, worst {point['psnr_worst']:.0f}"))
    return figures


def _serving_table(points: list[dict[str, Any]]) -> Table:
    table = Table(title="Serving, by offered load", title_justify="left", header_style="bold")
    for column in ("load", "policy", "requests/s", "mean ms", "p95 ms", "first step ms", "rows a step"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for point in points:
        table.add_row(
            f"{point['load']:g}x",
            point["policy"],
            f"{point['per_second']:.1f}",
            *(f"{point[key]:.0f}" for key in ("mean_ms", "p95_ms", "first_step_ms")),
            f"{point['rows_a_step']:.1f}",
        )
    return table


def _cache_table(points: list[dict[str, Any]]) -> Table:
    table = Table(title="Residual cache", title_justify="left", header_style="bold")
    for column in ("steps", "threshold", "rows computed", "ms a picture", "PSNR dB (worst)", "right in every attribute"):
        table.add_column(column, justify="right")
    for point in points:
        table.add_row(
            str(point["steps"]),
            f"{point['threshold']:g}" if point["threshold"] else "off",
            f"{point['rows_computed']:.0%}",
            f"{point['ms_a_picture']:.0f}",
            "–" if point["psnr_mean"] is None else f"{point['psnr_mean']:.1f} ({point['psnr_worst']:.1f})",
            "–" if point["strict"] is None else f"{point['strict']:.0%}",
        )
    return table
