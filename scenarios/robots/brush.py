"""Many small marks on an axis, drawn as a few collections: an artist for each would take matplotlib ten times as long."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Point = tuple[float, float]


class Brush:
    """Takes marks, and puts them on the axis at `flush`."""

    def __init__(self) -> None:
        self._bars: defaultdict[tuple[float, float], list[tuple[list[Point], str]]] = defaultdict(list)
        self._lines: defaultdict[tuple[float, float, bool], list[tuple[list[Point], str]]] = defaultdict(list)
        self._points: defaultdict[str, list[tuple[Point, str]]] = defaultdict(list)

    def bar(self, left: float, right: float, low: float, high: float, colour: str, *, alpha: float = 1.0, above: float = 2.0) -> None:
        """A filled rectangle; `above` is matplotlib's zorder."""
        self._bars[alpha, above].append(([(left, low), (right, low), (right, high), (left, high)], colour))

    def line(self, start: Point, end: Point, colour: str, *, width: float = 1.0, above: float = 3.0, dashed: bool = False) -> None:
        """A line."""
        self._lines[width, above, dashed].append(([start, end], colour))

    def point(self, at: Point, colour: str, marker: str) -> None:
        """A dot ("o") or a cross ("x")."""
        self._points[marker].append((at, colour))

    def flush(self, axis: Any) -> None:
        """Draw it all."""
        from matplotlib.collections import LineCollection, PolyCollection

        for (alpha, above), bars in self._bars.items():
            shapes, colours = zip(*bars, strict=True)
            axis.add_collection(PolyCollection(shapes, facecolors=colours, alpha=alpha, linewidths=0, zorder=above), autolim=False)
        for (width, above, dashed), lines in self._lines.items():
            shapes, colours = zip(*lines, strict=True)
            style = (0, (2, 2)) if dashed else "solid"
            drawn = LineCollection(shapes, colors=colours, linewidths=width, linestyles=[style], zorder=above)
            axis.add_collection(drawn, autolim=False)
        for marker, points in self._points.items():
            places, colours = zip(*points, strict=True)
            thick = 1.6 if marker == "x" else 0.0
            axis.scatter(*zip(*places, strict=True), s=30 if marker == "x" else 10, c=colours, marker=marker, linewidths=thick, zorder=6)
