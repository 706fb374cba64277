"""Two pictures of a load: CPU and lateness by the number of sessions, and memory over time."""

from __future__ import annotations

from pathlib import Path

from .load_figures import Steady, Step
from .timeline import FAINT, GRID, INK, NoPlots


def draw(path: Path, steps: list[Step], steady: Steady | None) -> None:
    """Write the pictures as one PNG. Raises `NoPlots`."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise NoPlots("The plot needs matplotlib: pip install 'antiphon[plots]'") from error
    figure, axes = plt.subplots(1, 3 if steady is not None else 2, figsize=(15 if steady is not None else 10, 4))
    try:
        sessions = [step.sessions for step in steps]
        axes[0].plot(sessions, [step.cpu * 100 for step in steps], "o-", color="#2f6fb5")
        axes[0].set_title("server, % of one core", loc="left")
        axes[1].plot(sessions, [step.late_p99 for step in steps], "o-", color="#c8472f", label="p99")
        axes[1].plot(sessions, [step.late_p50 for step in steps], "o-", color="#3a9a6f", label="p50")
        axes[1].set_title("audio later than due, ms", loc="left")
        axes[1].legend(frameon=False)
        for axis in axes[:2]:
            axis.set_xlabel("sessions", color=FAINT)
        if steady is not None:
            axes[2].plot([sample[0] for sample in steady.samples], [sample[1] for sample in steady.samples], color="#7d68b0")
            axes[2].set_title(f"memory of {steady.sessions} sessions, MB (PSS)", loc="left")
            axes[2].set_xlabel("minutes", color=FAINT)
        for axis in axes:
            axis.set_ylim(bottom=0)
            axis.title.set_color(INK)
            axis.grid(color=GRID)
            axis.set_axisbelow(True)
            for side in ("top", "right", "left", "bottom"):
                axis.spines[side].set_visible(False)
        figure.tight_layout()
        figure.savefig(path, dpi=110)
    finally:
        plt.close(figure)
