"""`antiphon robot`: simulated robots against a live server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...clients.robot import RobotError
from ...codecs.video import VideoError
from ...robot.sim.simulation import RenderError
from ..server import ServerFailed, ended_by_sigterm
from ..timeline import NoPlots
from . import sim as simulation
from . import timeline as timelines
from .driving import Played
from .planning import Plan
from .sim import Result
from .tracks import Track
from .video import NoVideo
from .worlds import CannotSimulate

app = typer.Typer(help="Robots: simulated ones, driven by a live server's policy.", no_args_is_help=True, add_completion=False)

NOT_DONE, USAGE, STOPPED = 1, 2, 130


@app.callback()
def _robot() -> None:
    """Keeps the group a group."""


@app.command("sim")
def sim(
    task: Annotated[str | None, typer.Option(help='A task by its name, or "all". A name that does not exist lists those that do.')] = None,
    prompt: Annotated[
        str | None, typer.Option(help="What the robot is told, instead of the task's own words. Without --task, whatever it does counts.")
    ] = None,
    world: Annotated[
        str | None, typer.Option(help="tabletop, tabletop-eyes or metaworld. Default: as the task or the server's policy has it.")
    ] = None,
    robots: Annotated[int, typer.Option(help="Robots at once.", min=1, max=256)] = 1,
    episodes: Annotated[
        int | None, typer.Option(help="Episodes of each robot. Default: until each task had its turn.", min=1, max=10_000)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the scenes.", min=0, max=1_000_000)] = 0,
    handover: Annotated[
        str, typer.Option(help="From a chunk to the next: wait, switch, rtc (chunks continue what runs) or ensemble.")
    ] = "rtc",
    delay_ms: Annotated[float, typer.Option(help="Make each round trip so much longer.", min=0, max=10_000)] = 0.0,
    video: Annotated[Path | None, typer.Option(help="Leave a video here (MP4; the first 16 robots).")] = None,
    timeline: Annotated[
        Path | None, typer.Option(help="Leave a picture of the action chunks here (PNG). Default: beside the video.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Leave the robots' episode logs in this folder.")] = None,
    url: Annotated[str | None, typer.Option(help="A server that runs already; without it one is started.", envvar="ANTIPHON_URL")] = None,
    api_key: Annotated[str | None, typer.Option(help="The API key, if the server wants one.", envvar="ANTIPHON_API_KEY")] = None,
) -> None:
    """Have simulated robots do their tasks in real time, each by the action chunks that a server's policy sends.

    Exit codes: 0 every episode succeeded, 1 one did not, 2 they could not be played, 130 ended by Ctrl-C or SIGTERM.
    """
    console = Console(width=None if sys.stdout.isatty() else 118)
    try:
        plan = Plan(
            world=world,
            task=task,
            prompt=prompt,
            robots=robots,
            episodes=episodes,
            seed=seed,
            handover=handover,  # type: ignore[arg-type]  # the plan checks it
            delay_s=delay_ms / 1000,
            video=_file(video, ".mp4"),
            timeline=_file(timeline, ".png") or _beside(video, console),
            logs=log,
        )
        with ended_by_sigterm():
            result = asyncio.run(simulation.run(plan, console, url=url, api_key=api_key))
    except (CannotSimulate, RobotError, ServerFailed, RenderError, NoVideo, NoPlots, VideoError, OSError) as error:
        console.print(Text(str(error), style="red"))
        raise typer.Exit(USAGE) from error
    except KeyboardInterrupt:
        raise typer.Exit(STOPPED) from None
    show(result, console)
    raise typer.Exit(0 if result.succeeded == result.episodes else NOT_DONE)


def show(result: Result, console: Console) -> None:
    """Print a robot's figures in a row, all of them in the last, and what was written."""
    console.print(Text(f"{result.title}, {result.seconds:.1f} s", style="bold"))
    table = Table(box=SIMPLE_HEAD, header_style="dim", pad_edge=False)
    table.add_column("robot", justify="right", no_wrap=True)
    for name in ("done", "steps", "held", "stalls", "missed", "round trip\np50 / p99", "jump\np50 / p95"):
        table.add_column(name, justify="right", no_wrap=True)
    if any(one.refused for one in result.played):
        table.add_column("not taken")
    dims = len(result.world.actions) - 1
    for number, robot in enumerate(result.robots, 1):
        _row(table, str(number), len(robot.episodes), robot.played, [robot.track], dims)
    if len(result.robots) > 1:
        table.add_section()
        _row(table, "all", result.episodes, result.played, [robot.track for robot in result.robots], dims)
    console.print(table)
    for error in result.errors:
        console.print(Text(error, style="red"))
    for last in {robot.played[-1].statistics.last_error for robot in result.robots if robot.played}:
        if last:
            console.print(Text(f"The last that went wrong: {last}", style="yellow"))
    for path in result.files:
        console.print(Text(f"{path} ({path.stat().st_size / 1024:.0f} KiB)", style="dim"))
    if result.plan.logs is not None:
        console.print(Text(f"The episode logs are in {result.plan.logs}", style="dim"))


def _row(table: Table, name: str, episodes: int, played: list[Played], tracks: list[Track], dims: int) -> None:
    trips = [one * 1000 for track in tracks for one in track.round_trips()]
    jumps = [one for track in tracks for one in track.jumps(dims)]
    done = sum(one.succeeded for one in played)
    steps = sum(one.steps for one in played)
    refused: dict[str, int] = {}
    for one in played:
        for why, count in one.refused.items():
            refused[why] = refused.get(why, 0) + count
    cells: list[str | Text] = [
        name,
        Text(f"{done}/{episodes}", style="green" if done == episodes else "red"),
        f"{steps / len(played):.0f}" if played else "–",
        f"{sum(one.held + one.stopped for one in played) / max(1, steps):.1%}",
        str(sum(one.stalls for one in played)),
        str(sum(one.missed for one in played)),
        _quantiles(trips, (0.5, 0.99), 0, " ms"),
        _quantiles(jumps, (0.5, 0.95), 2),
        ", ".join(f"{why.replace('_', ' ')} {count}" for why, count in sorted(refused.items())),
    ]
    table.add_row(*cells[: len(table.columns)])


def _quantiles(values: list[float], parts: tuple[float, ...], digits: int, unit: str = "") -> str:
    if not values:
        return "–"
    return " / ".join(f"{one:.{digits}f}" for one in np.quantile(values, parts)) + unit


def _file(path: Path | None, suffix: str) -> Path | None:
    """A path as it is given, if its name says what it will be. Raises `CannotSimulate`."""
    if path is not None and path.suffix.lower() != suffix:
        raise CannotSimulate(f"{path} must end in {suffix}.")
    return path


def _beside(video: Path | None, console: Console) -> Path | None:
    """The timeline that goes with a video; none, with a word of it, where there is nothing to draw it with."""
    if video is None:
        return None
    try:
        timelines.check()
    except NoPlots as error:
        console.print(Text(f"There will be no timeline: {error}", style="yellow"))
        return None
    return video.with_suffix(".png")
