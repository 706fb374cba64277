"""What is shown while robots are at work: a line each on a terminal, elsewhere a line at the end of each episode."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...clients.robot import Mode, RobotClient
from .driving import SimulatedRobot, Watch

A_SECOND = 3
"""How often the lines are shown anew: that takes time which the control loops share."""
ASKED_EVERY = 10
"""Steps between two looks at the figures of a robot."""
STYLES = {Mode.RUN: "green", Mode.HOLD: "yellow", Mode.STOP: "bold red"}


@dataclass(slots=True, eq=False)
class _Row:
    episodes: int
    episode: int = 0
    task: str = ""
    prompt: str = ""
    step: int = 0
    mode: Mode = Mode.HOLD
    round_trip_ms: float | None = None
    done: int = 0
    ended: int = 0


class Progress:
    """Use as `with Progress(console, [episodes of each robot]) as progress`, and `progress.of(number)` as a robot's `watch`."""

    def __init__(self, console: Console, episodes: list[int]) -> None:
        self._console = console
        self._rows = [_Row(count) for count in episodes]
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._table, refresh_per_second=A_SECOND, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def of(self, number: int) -> Watch:
        """Watches a robot."""
        row = self._rows[number]

        def watch(client: RobotClient, robot: SimulatedRobot, episode: int) -> None:
            row.episode, row.task, row.prompt = episode, robot.task, robot.prompt
            row.step, row.mode = robot.steps, client.mode
            if robot.over or robot.steps % ASKED_EVERY == 0:
                round_trip = client.statistics().round_trip_s
                row.round_trip_ms = round_trip.p50 * 1000 if round_trip.count else None
            if robot.over:
                row.ended += 1
                row.done += robot.succeeded
                if self._live is None:
                    self._tell(number, row, robot)

        return watch

    def _tell(self, number: int, row: _Row, robot: SimulatedRobot) -> None:
        how = f"done in {robot.steps} steps" if robot.succeeded else f"not done in {robot.steps} steps"
        what = robot.did or robot.task
        line = Text(f"robot {number + 1:>2}  {row.ended}/{row.episodes}  {what:<20}  {_ms(row.round_trip_ms):>7}  ")
        line.append(how, style="green" if robot.succeeded else "red")
        self._console.print(line)

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name, side in (("robot", "right"), ("episode", "right"), ("told", "left"), ("step", "right"), ("", "left")):
            table.add_column(name, justify=side, no_wrap=True, max_width=36)  # type: ignore[arg-type]
        table.add_column("round trip", justify="right", no_wrap=True)
        table.add_column("done", justify="right")
        for number, row in enumerate(self._rows):
            mode = Text(row.mode.value.upper(), style=STYLES[row.mode])
            done = Text(f"{row.done}/{row.ended}", style="green" if row.done == row.ended else "red")
            ended = f"{min(row.episode + 1, row.episodes)}/{row.episodes}"
            table.add_row(str(number + 1), ended, row.prompt, str(row.step), mode, _ms(row.round_trip_ms), done)
        return table


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"
