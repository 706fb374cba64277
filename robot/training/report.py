"""What an evaluation found, as a table, as JSON and as pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .evaluation import Outcome

OWN = "its own instruction"


def figures(outcomes: Sequence[Outcome], about: dict[str, Any]) -> dict[str, Any]:
    """Everything, for machines. `about`: what was measured, and how it was trained."""
    trials = [
        {
            **{name: value for name, value in asdict(outcome).items() if name != "steps"},
            "succeeded": outcome.succeeded,
            "episodes": outcome.episodes,
            "mean_steps": round(float(np.mean(outcome.steps)), 1) if outcome.steps else None,
        }
        for outcome in outcomes
    ]
    return {**about, "trials": trials}


def markdown(outcomes: Sequence[Outcome], title: str) -> str:
    """For people."""
    lines = [f"# {title}", "", "| trial | success | mean steps | stalled | jump at borders, median / p95 |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        steps = f"{np.mean(outcome.steps):.0f}" if outcome.steps else "-"
        lines.append(
            f"| {outcome.name} | {outcome.succeeded}/{outcome.episodes} = {outcome.rate:.1%} | {steps} | {outcome.stalled:.1%} "
            f"| {outcome.jump_median:.2f} / {outcome.jump_p95:.2f} |"
        )
    lines += ["", "| task | " + " | ".join(outcome.name for outcome in outcomes[:3]) + " |", "|---|" + "---|" * len(outcomes[:3])]
    for task in outcomes[0].tasks:
        cells = [f"{won}/{tried}" for won, tried in (outcome.tasks[task] for outcome in outcomes[:3])]
        lines.append(f"| {task} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def write(folder: Path, outcomes: Sequence[Outcome], losses: Sequence[tuple[int, float]], about: dict[str, Any]) -> str:
    """Leave `report.json`, `report.md` and, where matplotlib is installed, `loss.png`, `tasks.png` and `delays.png`; returns the table."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(figures(outcomes, about), indent=1) + "\n")
    table = markdown(outcomes, f"Policy {about['policy']}: closed loop, {about['steps']} training steps")
    (folder / "report.md").write_text(table)
    _plots(folder, outcomes, losses)
    return table


def _plots(folder: Path, outcomes: Sequence[Outcome], losses: Sequence[tuple[int, float]]) -> None:
    try:
        import matplotlib
    except ModuleNotFoundError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    if losses:
        figure, axes = pyplot.subplots(figsize=(7, 4))
        axes.semilogy([step for step, _ in losses], [loss for _, loss in losses])
        axes.set(xlabel="training step", ylabel="flow-matching loss")
        _keep(figure, folder / "loss.png")
    figure, axes = pyplot.subplots(figsize=(7, 0.4 * len(outcomes[0].tasks) + 1.5))
    for index, outcome in enumerate(outcomes[:3]):
        at = np.arange(len(outcome.tasks)) + 0.27 * (index - 1)
        axes.barh(at, [won / max(1, tried) for won, tried in outcome.tasks.values()], 0.25, label=outcome.name)
    axes.set_yticks(range(len(outcomes[0].tasks)), list(outcomes[0].tasks))
    axes.invert_yaxis()
    axes.set(xlabel="success", xlim=(0, 1.02))
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3, fontsize=8)
    _keep(figure, folder / "tasks.png")
    if any(outcome.delay for outcome in outcomes):
        _keep(_delays(pyplot, outcomes), folder / "delays.png")


def _delays(pyplot: Any, outcomes: Sequence[Outcome]) -> Any:
    """Success, stalling and jumps over the delay, a line for each hand-over."""
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.6))
    still = next(outcome for outcome in outcomes if outcome.name == OWN)
    for how in ("wait", "switch", "rtc"):
        line = [still, *(outcome for outcome in outcomes if outcome.delay and outcome.handover == how)]
        for axes, values in zip(panels, ([o.rate for o in line], [o.stalled for o in line], [o.jump_median for o in line]), strict=True):
            axes.plot([outcome.delay for outcome in line], values, marker="o", label=how)
    for axes, name in zip(panels, ("success", "steps stalled", "jump at borders (median)"), strict=True):
        axes.set(xlabel="delay in control steps", title=name)
    panels[0].legend()
    return figure


def _keep(figure: Any, file: Path) -> None:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
