"""A picture of what late chunks cost: success, stalls and jumps over the delay, a line for each hand-over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..timeline import FAINT, GRID, INK, NoPlots
from .loop_outcome import Outcome, line_of

COLOURS = {"wait": "#7d68b0", "switch": "#c8472f", "rtc": "#2f6fb5", "ensemble": "#3a9a6f"}


def draw(path: Path, policy: str, outcomes: Sequence[Outcome]) -> bool:
    """Write the picture; False: there is nothing to be drawn. Raises `NoPlots`."""
    lines = {how: line for how in COLOURS if len(line := line_of(outcomes, how)) > 1}  # type: ignore[arg-type]
    if not lines:
        return False
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise NoPlots("The plot needs matplotlib: pip install 'antiphon[plots]'") from error
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8))
    try:
        for how, line in lines.items():
            at = [one.trial.delay_ms for one in line]
            for axis, values in zip(
                axes,
                ([one.rate * 100 for one in line], [one.stalled * 100 for one in line], [one.jump(0.5) for one in line]),
                strict=True,
            ):
                axis.plot(at, values, "o-", color=COLOURS[how], label=how)
        for axis, title in zip(axes, (f"{policy}: success, %", "steps stalled, %", "jump at borders, median"), strict=True):
            axis.set_title(title, loc="left")
            axis.title.set_color(INK)
            axis.set_xlabel("more delay of a round trip, ms", color=FAINT)
            axis.set_ylim(bottom=0)
            axis.grid(color=GRID)
            axis.set_axisbelow(True)
            for side in ("top", "right", "left", "bottom"):
                axis.spines[side].set_visible(False)
        axes[0].legend(frameon=False)
        figure.tight_layout()
        figure.savefig(path, dpi=110)
    finally:
        plt.close(figure)
    return True
