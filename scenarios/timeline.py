"""A picture of a call: who speaks when, what was heard of each answer, interruptions, latencies."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from .conversation import CallLog, Happening
from .figures import answers, interruptions, turns

ROW_S = 30.0
"""Seconds of the call in one row of the picture."""

INK, FAINT, GRID = "#1f2933", "#66788a", "#e4e9ee"
COLOURS = {"say": "#2f6fb5", "interrupt": "#c8472f", "backchannel": "#7d68b0", "noise": "#9aa5b1"}
ANSWER, UNHEARD = "#3a9a6f", "#cfe8dc"
_CALLER, _ASSISTANT = 1.0, 0.0
_HEIGHT = 0.34
_CHARACTERS_PER_S = 7.6
"""How many small letters fit into a second of a bar."""


class NoPlots(Exception):
    """matplotlib is not installed."""


def draw(log: CallLog, path: Path, title: str) -> None:
    """Write the picture as a PNG. Raises `NoPlots` with the command that mends it."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise NoPlots("The timeline needs matplotlib: pip install 'antiphon[plots]'") from error
    length = max([segment.end for segment in log.heard] + [happening.end for happening in log.happenings], default=log.started_at)
    rows = max(1, int((length - log.started_at) // ROW_S) + 1)
    figure, axes = plt.subplots(rows, 1, figsize=(16, 1.9 * rows + 1.2), squeeze=False)
    figure.patch.set_facecolor("white")
    try:
        for index, (axis,) in enumerate(axes):
            _frame(axis, index * ROW_S, last=index == rows - 1)
        picture = _Picture([axis for (axis,) in axes], log.started_at)
        _draw_callers(picture, log)
        _draw_answers(picture, log)
        _draw_latencies(picture, log)
        figure.suptitle(title, x=0.06, y=1 - 0.22 / figure.get_figheight(), ha="left", va="top", fontsize=14, color=INK, weight="bold")
        _legend(figure, plt)
        top = 1 - 0.85 / figure.get_figheight()
        figure.subplots_adjust(left=0.06, right=0.985, top=top, bottom=0.42 / figure.get_figheight(), hspace=0.42)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
    finally:
        plt.close(figure)


class _Picture:
    """Places things by time on the right row; what crosses a row's end goes on in the next."""

    def __init__(self, axes: list[Any], started_at: float) -> None:
        self._axes = axes
        self._started_at = started_at

    def axis(self, at: float) -> tuple[Any, float]:
        """The row of a time, and the time in seconds of the call."""
        second = max(0.0, at - self._started_at)
        return self._axes[min(len(self._axes) - 1, int(second // ROW_S))], second

    def bar(self, start: float, end: float, y: float, colour: str, **style: Any) -> None:
        """A bar from one time to another."""
        first, last = max(0.0, start - self._started_at), max(0.0, end - self._started_at)
        for index, axis in enumerate(self._axes):
            left, right = max(first, index * ROW_S), min(last, (index + 1) * ROW_S)
            if left < right:
                axis.barh(y, right - left, left=left, height=2 * _HEIGHT, color=colour, linewidth=0, **style)

    def words(self, text: str, start: float, end: float, y: float, colour: str) -> None:
        """Words inside a bar, as many as there is room for (on the row where the bar begins)."""
        axis, first = self.axis(start)
        room = min(end - self._started_at, (first // ROW_S + 1) * ROW_S) - first
        columns = int(room * _CHARACTERS_PER_S)
        if columns < 4:
            return
        lines = textwrap.wrap(" ".join(text.split()), columns, max_lines=2, placeholder="…")
        axis.text(first + 0.1, y, "\n".join(lines), fontsize=7.5, color=colour, va="center", ha="left", clip_on=True, linespacing=1.15)


def _frame(axis: Any, start: float, *, last: bool) -> None:
    axis.set_xlim(start, start + ROW_S)
    axis.set_ylim(-0.62, 1.75)
    axis.set_yticks([_ASSISTANT, _CALLER], ["antiphon", "caller"], fontsize=10, color=INK)
    axis.set_xticks([start + 5 * step for step in range(int(ROW_S // 5) + 1)])
    axis.tick_params(axis="x", labelsize=8, colors=FAINT, length=0)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.set_facecolor("white")
    for side in axis.spines.values():
        side.set_visible(False)
    if last:
        axis.set_xlabel("seconds", fontsize=8, color=FAINT, loc="right")


def _colour(happening: Happening) -> str:
    return COLOURS.get(happening.kind, COLOURS["noise"])


def _draw_callers(picture: _Picture, log: CallLog) -> None:
    for happening in log.happenings:
        end = max(happening.end, happening.onset + 0.12)
        picture.bar(happening.onset, end, _CALLER, _colour(happening))
        if happening.kind in ("say", "interrupt"):
            noise = f" ({happening.snr_db:g} dB noise)" if happening.snr_db is not None else ""
            picture.words(happening.text + noise, happening.onset, happening.end, _CALLER, "white")
        else:
            axis, at = picture.axis(happening.onset)
            label = f"“{happening.text.rstrip('.')}”" if happening.text else happening.kind
            axis.text(at, _CALLER + _HEIGHT + 0.05, label, fontsize=7.5, color=_colour(happening), va="bottom", ha="left")


def _draw_answers(picture: _Picture, log: CallLog) -> None:
    stopped = {stop.item_id: at for at, stop in log.cuts}
    for answer in answers(log.events).values():
        segments = [segment for segment in log.heard if segment.item_id == answer.item_id]
        if not segments:
            continue
        for segment in segments:
            picture.bar(segment.start, segment.end, _ASSISTANT, ANSWER)
        heard_to = segments[-1].end
        cut = stopped.get(answer.item_id or "")
        text = log.kept.get(answer.item_id or "", answer.transcript)
        if cut is not None:
            received = heard_to + max(0, answer.audio_bytes - sum(len(segment.pcm) for segment in segments)) / 48_000
            picture.bar(heard_to, received, _ASSISTANT, UNHEARD)
        picture.words(text, segments[0].start, segments[0].end, _ASSISTANT, "white")


def _draw_latencies(picture: _Picture, log: CallLog) -> None:
    for turn in turns(log):
        if turn.ttfp is None or turn.answer is None or turn.answer.first_audio is None:
            continue
        _arrow(picture, turn.happening.end, turn.answer.first_audio, f"{turn.ttfp * 1000:.0f} ms", FAINT)
    for row in interruptions(log):
        axis, onset = picture.axis(row.happening.onset)
        axis.plot([onset, onset], [-0.45, _CALLER - _HEIGHT], color=COLOURS["interrupt"], linewidth=1, linestyle=(0, (3, 2)))
        label = "missed" if row.withheld is None else f"stops after {row.withheld * 1000:.0f} ms"
        side, shift = ("right", -0.06) if onset % ROW_S > ROW_S - 3 else ("left", 0.06)
        axis.text(onset + shift, -0.6, label, fontsize=7.5, color=COLOURS["interrupt"], va="bottom", ha=side)


def _arrow(picture: _Picture, start: float, end: float, label: str, colour: str) -> None:
    axis, first = picture.axis(start)
    last = first + (end - start)
    y = 0.5
    axis.annotate("", (last, y), (first, y), arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1}, annotation_clip=False)
    axis.text((first + last) / 2, y + 0.03, label, fontsize=7.5, color=colour, ha="center", va="bottom", clip_on=True)


def _legend(figure: Any, plt: Any) -> None:
    shown = [
        ("caller", COLOURS["say"]),
        ("interruption", COLOURS["interrupt"]),
        ("backchannel", COLOURS["backchannel"]),
        ("noise", COLOURS["noise"]),
        ("answer, heard", ANSWER),
        ("sent, never heard", UNHEARD),
    ]
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for _, colour in shown]
    figure.legend(
        handles,
        [name for name, _ in shown],
        loc="upper right",
        bbox_to_anchor=(0.985, 1 - 0.15 / figure.get_figheight()),
        ncols=len(shown),
        frameon=False,
        fontsize=9,
        handlelength=1.1,
        handleheight=1.0,
        columnspacing=1.4,
    )
