"""A picture of action chunks: when each was asked for, when it came, which of its actions were executed, and what they were.

Drawn from the robots' own logs: it is what they saw, whoever served them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ...clients.robot import Mode
from ..timeline import FAINT, GRID, INK, NoPlots
from .brush import Brush
from .driving import Played
from .tracks import FENCED, LOST, Request, Track

WINDOW_S = 12.0
"""Seconds in one row of the picture."""
TALLEST = 24.0
"""Inches; what comes after is left out, and the title says so."""
CURVES_OF_EACH = 3
"""Up to so many robots, each has its actions drawn; of more, the first has."""
MOST = 16

CHUNKS = ("#2f6fb5", "#d98c2b", "#3a9a6f", "#8a5fb5", "#c2557a", "#4aa3b8")
CURVES = ("#c8472f", "#2f6fb5", "#3a9a6f", "#7d68b0", "#d98c2b", "#4aa3b8", "#66788a")
GOOD, BAD, HELD, STOPPED, OFFLINE = "#2e8b57", "#c8372d", "#c9d1d9", "#f0b7ae", "#f6dfe6"
EXPECTED = (FENCED, LOST, "superseded")
"""Chunks that are not taken as it should be."""
CHARACTERS = 190
"""Small letters that fit into the width of the picture."""
ROWS = 3
"""Chunks that follow each other lie on so many heights, so that a request and the chunk before it are both seen."""
STRIP = (-0.55, ROWS + 0.45)
"""A robot's strip, from bottom to top."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A robot: its name, what its log tells, how its episodes went."""

    name: str
    track: Track
    played: Sequence[Played]


def check() -> None:
    """Raise `NoPlots` if matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise NoPlots("The chunk timeline needs matplotlib: pip install 'antiphon[plots]'")


def draw(path: Path, lanes: Sequence[Lane], title: str, actions: Sequence[str] = ()) -> None:
    """Write the picture as a PNG. `actions` are names for the numbers of an action; the last, the gripper's, is drawn thin. Raises
    `NoPlots`, OSError."""
    check()
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    lanes = [lane for lane in lanes if lane.track.steps][:MOST]
    layout = _Layout.of(lanes)
    figure = plt.figure(figsize=(17, layout.height), facecolor="white")
    try:
        _Drawing(figure, layout, list(actions)).draw()
        said = title + layout.left_out
        figure.text(0.055, 1 - 0.16 / layout.height, said, fontsize=14, weight="bold", color=INK, va="top")
        _legend(figure, plt, layout, list(actions), offline=any(_cut_off(lane.track) for lane in lanes))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
    finally:
        plt.close(figure)


@dataclass(frozen=True, slots=True)
class _Row:
    """Seconds of the picture that stand beside each other; `lanes` are those at work then, `curves` those with their actions drawn."""

    span: tuple[float, float]
    lanes: list[Lane]
    curves: list[Lane]


@dataclass(frozen=True, slots=True)
class _Layout:
    """What goes where. `begin` is the picture's second 0 on the robots' clock, `lane` a robot's height in inches."""

    begin: float
    window: float
    rows: list[_Row]
    lane: float
    left_out: str

    TOP = 0.95
    BETWEEN = 0.55
    CURVE = 1.25

    @classmethod
    def of(cls, lanes: Sequence[Lane]) -> _Layout:
        begin = min((lane.track.begin for lane in lanes), default=0.0)
        length = max((lane.track.end for lane in lanes), default=1.0) - begin
        window = max(2.0, length * 1.02) if length <= WINDOW_S * 1.25 else WINDOW_S
        curves = lanes if len(lanes) <= CURVES_OF_EACH else lanes[:1]
        layout = cls(begin, window, [], 1.05 if len(lanes) <= 4 else 0.66, "")
        needed = max(1, math.ceil(length / window))
        for number in range(needed):
            start = number * window
            here = [lane for lane in lanes if lane.track.end - begin > start]
            row = _Row((start, start + window), here, [lane for lane in here if lane in curves])
            if number and layout.height + layout.of_row(row) > TALLEST:
                return replace(layout, left_out=f"   (the first {start:.0f} of {length:.0f} s)")
            layout.rows.append(row)
        return layout

    def of_row(self, row: _Row) -> float:
        return len(row.lanes) * self.lane + len(row.curves) * self.CURVE + self.BETWEEN

    @property
    def height(self) -> float:
        return self.TOP + sum(map(self.of_row, self.rows))


class _Drawing:
    """Puts everything on its axes."""

    def __init__(self, figure: Any, layout: _Layout, names: list[str]) -> None:
        self._figure = figure
        self._layout = layout
        self._names = names
        self._y = layout.height - layout.TOP

    def draw(self) -> None:
        layout = self._layout
        for row in layout.rows:
            axis: Any = None
            for lane in row.lanes:
                axis = self._axis(layout.lane, row.span)
                self._strip(axis, lane, row.span)
                if lane in row.curves:
                    axis = self._axis(layout.CURVE, row.span)
                    self._curves(axis, lane, row.span)
            if axis is not None:
                self._ticks(axis, row.span)
            self._y -= layout.BETWEEN

    def _axis(self, height: float, span: tuple[float, float]) -> Any:
        """The next axis below; `height` in inches, with a little air."""
        whole = self._layout.height
        self._y -= height
        axis = self._figure.add_axes((0.055, (self._y + 0.06) / whole, 0.935, (height - 0.08) / whole))
        axis.set_xlim(*span)
        axis.set_facecolor("white")
        for side in axis.spines.values():
            side.set_visible(False)
        axis.grid(axis="x", color=GRID, linewidth=0.8)
        axis.set_axisbelow(True)
        axis.tick_params(axis="both", length=0, labelsize=8, colors=FAINT)
        axis.set_xticks(np.arange(math.ceil(span[0]), span[1] + 1e-6, 1.0))
        axis.set_xlim(*span)
        axis.set_xticklabels([])
        return axis

    def _ticks(self, axis: Any, span: tuple[float, float]) -> None:
        at = np.arange(math.ceil(span[0]), span[1] + 1e-6, 1.0)
        axis.set_xticks(at, [f"{second:g} s" for second in at])
        axis.tick_params(axis="x", length=0, labelsize=8, colors=FAINT)
        axis.set_xlim(*span)

    # ---- a robot's chunks -------------------------------------------------------------------------------------------

    def _strip(self, axis: Any, lane: Lane, span: tuple[float, float]) -> None:
        track, begin = lane.track, self._layout.begin
        axis.set_ylim(*STRIP)
        axis.set_yticks([1.0], [lane.name], fontsize=9, color=INK)
        brush = Brush()
        self._modes(brush, track, span, STRIP)
        for start, end in track.offline:
            brush.bar(start - begin, end - begin, *STRIP, OFFLINE, above=0.5)
        for request in track.requests:
            if request.asked - begin < span[1] and self._until(track, request) - begin > span[0]:
                self._request(axis, brush, track, request)
        brush.flush(axis)
        axis.set_xlim(*span)
        self._borders(axis, lane, span, words=True)

    def _until(self, track: Track, request: Request) -> float:
        planned = request.asked + request.horizon / track.rate
        return max(planned, request.answered or request.asked, *(end for _, end in request.used[-1:]))

    def _request(self, axis: Any, brush: Brush, track: Track, request: Request) -> None:
        begin, period = self._layout.begin, 1 / track.rate
        y = float(ROWS - 1 - request.sequence % ROWS)
        colour = CHUNKS[request.sequence % len(CHUNKS)]
        asked = request.asked - begin
        brush.point((asked, y), colour, "o")
        if request.answered is None:
            brush.line((asked, y), (asked + period, y), FAINT, dashed=True)
            self._cross(axis, brush, asked + period, y, request.why_not)
            return
        came = request.answered - begin
        brush.line((asked, y), (came, y), colour, width=1.1)
        if request.why_not:
            self._cross(axis, brush, came, y, request.why_not)
            return
        brush.line((came, y - 0.3), (came, y + 0.3), colour, width=1.4, above=4)
        planned = asked + request.horizon * period
        if planned > came:
            brush.bar(came, planned, y - 0.17, y + 0.17, colour, alpha=0.16)
        for start, end in _runs(request.used):
            brush.bar(start - begin, end - begin, y - 0.31, y + 0.31, colour, above=3)
        if request.used and request.prefix and self._layout.lane > 0.8:
            at = request.used[0][0] - begin
            axis.text(at + 0.02, y, f"+{request.prefix}", fontsize=6, color="white", va="center", ha="left", zorder=5, clip_on=True)

    def _cross(self, axis: Any, brush: Brush, at: float, y: float, why: str) -> None:
        colour = FAINT if why in EXPECTED else BAD
        brush.point((at, y), colour, "x")
        axis.text(at + 0.008 * self._layout.window, y, why.replace("_", " "), fontsize=7, color=colour, va="center", zorder=6, clip_on=True)

    def _modes(self, brush: Brush, track: Track, span: tuple[float, float], heights: tuple[float, float]) -> None:
        """Behind everything: where the robot held, or was stopped."""
        begin = self._layout.begin
        for mode, colour in ((Mode.HOLD, HELD), (Mode.STOP, STOPPED)):
            for start, end in _runs((step.at, step.until) for step in track.steps if step.mode is mode):
                if start - begin < span[1] and end - begin > span[0]:
                    brush.bar(start - begin, end - begin, *heights, colour, alpha=0.75, above=0.6)

    def _borders(self, axis: Any, lane: Lane, span: tuple[float, float], *, words: bool) -> None:
        """Where episodes begin; and in words, what they were and how they went."""
        begins = [at - self._layout.begin for at in lane.track.begins()]
        for number, at in enumerate(begins):
            if span[0] <= at < span[1]:
                axis.axvline(at, color=INK, linewidth=1.3, zorder=7)
            end = begins[number + 1] if number + 1 < len(begins) else lane.track.end - self._layout.begin
            if not words or number >= len(lane.played) or end <= span[0] or at >= span[1]:
                continue
            played = lane.played[number]
            word = f"done, {played.steps} steps" if played.succeeded else f"not done in {played.steps} steps"
            went_on = "… " if at < span[0] else ""
            room = (min(end, span[1]) - max(at, span[0])) / self._layout.window * CHARACTERS
            axis.text(
                max(at, span[0]) + 0.003 * self._layout.window,
                ROWS,
                _fit(f"{went_on}{played.did or played.episode.task}: {word}", int(room)),
                fontsize=7.5,
                color=GOOD if played.succeeded else BAD,
                va="center",
                weight="bold",
                clip_on=True,
                zorder=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
            )

    # ---- a robot's actions ------------------------------------------------------------------------------------------

    def _curves(self, axis: Any, lane: Lane, span: tuple[float, float]) -> None:
        track, begin = lane.track, self._layout.begin
        steps = [step for step in track.steps if span[0] - 1 <= step.at - begin <= span[1] + 1]
        if not steps:
            return
        at = np.array([step.at - begin for step in steps])
        actions = np.stack([step.action for step in steps])
        limits = _limits(np.stack([step.action for step in track.steps]))
        axis.set_ylim(*limits)
        axis.set_ylabel("actions", fontsize=8, color=FAINT, labelpad=4)
        brush = Brush()
        self._modes(brush, track, span, limits)
        before: int | None = None
        for when, step in zip(at, steps, strict=True):
            if step.sequence is not None and step.sequence != before:
                brush.line((when, limits[0]), (when, limits[1]), CHUNKS[step.sequence % len(CHUNKS)], width=0.8, above=1)
            before = step.sequence
        brush.flush(axis)
        for dim in range(min(actions.shape[1], len(CURVES))):
            edges = np.append(at, steps[-1].until - begin)
            values = np.append(actions[:, dim], actions[-1, dim])
            axis.step(edges, values, where="post", zorder=3, **_curve(dim, self._names))
        self._borders(axis, lane, span, words=False)


def _runs(steps: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that follow each other drawn together: (start, end)."""
    found: list[tuple[float, float]] = []
    for start, end in steps:
        if found and start - found[-1][1] < 1e-6:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _curve(dim: int, names: Sequence[str]) -> dict[str, Any]:
    """How a number of the actions is drawn; the gripper's (the last, where they have names) is not a movement, and thin."""
    if names and dim == len(names) - 1:
        return {"color": FAINT, "linewidth": 0.9, "linestyle": (0, (3, 1.5)), "alpha": 0.8}
    return {"color": CURVES[dim], "linewidth": 1.5}


def _cut_off(track: Track) -> bool:
    """Was the connection lost, other than by leaving?"""
    return any(start < track.end and end > start for start, end in track.offline)


def _fit(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"


def _limits(actions: Any) -> tuple[float, float]:
    low, high = float(actions.min()), float(actions.max())
    air = 0.08 * max(high - low, 1e-3)
    return low - air, high + air


def _legend(figure: Any, plt: Any, layout: _Layout, names: list[str], *, offline: bool) -> None:
    from matplotlib.lines import Line2D

    blue = CHUNKS[0]
    handles = [
        (Line2D([], [], color=blue, linewidth=1.1, marker="o", markersize=3.2), "asked, on its way"),
        (plt.Rectangle((0, 0), 1, 1, color=blue, linewidth=0), "executed (+d: continues d actions)"),
        (plt.Rectangle((0, 0), 1, 1, facecolor=blue, alpha=0.16, linewidth=0), "of the chunk, not executed"),
        (Line2D([], [], color=BAD, marker="x", markersize=6, markeredgewidth=1.8, linestyle=""), "not taken"),
        (plt.Rectangle((0, 0), 1, 1, color=HELD, linewidth=0), "held"),
        (plt.Rectangle((0, 0), 1, 1, color=STOPPED, linewidth=0), "stopped"),
        (Line2D([], [], color=INK, linewidth=1.3), "another episode: a fence"),
        *([(plt.Rectangle((0, 0), 1, 1, color=OFFLINE, linewidth=0), "no connection")] if offline else []),
        *((Line2D([], [], **_curve(dim, names)), name) for dim, name in enumerate(names[: len(CURVES)])),
    ]
    figure.legend(
        [handle for handle, _ in handles],
        [name for _, name in handles],
        loc="upper left",
        bbox_to_anchor=(0.05, 1 - 0.4 / layout.height),
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        handlelength=1.5,
        columnspacing=1.3,
    )
