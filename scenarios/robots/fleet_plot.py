"""A picture of a fleet: chunks a second as fast as they come, and the round trip at the robots' own pace, by the number of robots."""

from __future__ import annotations

from pathlib import Path

from ..timeline import FAINT, GRID, INK, NoPlots
from .fleet_figures import OURS, PLAIN, Measured

COLOURS = {OURS: "#2f6fb5", PLAIN: "#c8472f"}
OTHER_COLOUR = "#3a9a6f"


def draw(path: Path, measured: list[Measured]) -> None:
    """Write it as PNG. Raises `NoPlots`."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise NoPlots("The plot needs matplotlib: pip install 'antiphon[plots]'") from error
    figure, (rate, trip) = plt.subplots(1, 2, figsize=(10, 4))
    try:
        for peer in dict.fromkeys(one.peer for one in measured):
            colour = COLOURS.get(peer, OTHER_COLOUR)
            fast = [one for one in measured if one.peer == peer and one.pace == "saturated"]
            rate.plot([one.robots for one in fast], [one.per_second for one in fast], "o-", color=colour, label=peer)
            for one in fast:
                rate.plot([one.robots] * len(one.blocks), one.blocks, ".", color=colour, alpha=0.35)
            paced = [one for one in measured if one.peer == peer and one.pace == "paced" and one.p50 is not None]
            robots = [one.robots for one in paced]
            trip.plot(robots, [one.p50 for one in paced], "o-", color=colour, label=f"{peer}, p50")
            trip.plot(robots, [one.p99 for one in paced], "o--", color=colour, alpha=0.6, label=f"{peer}, p99")
        rate.set_title("chunks a second, as fast as they come", loc="left")
        trip.set_title("round trip at the robots' pace, ms", loc="left")
        for axis in (rate, trip):
            axis.set_xlabel("robots", color=FAINT)
            axis.set_ylim(bottom=0)
            axis.title.set_color(INK)
            axis.grid(color=GRID)
            axis.set_axisbelow(True)
            axis.legend(frameon=False)
            for side in ("top", "right", "left", "bottom"):
                axis.spines[side].set_visible(False)
        figure.tight_layout()
        figure.savefig(path, dpi=110)
    finally:
        plt.close(figure)
