"""Simulated robots in real time against a live server: what they do, and the files and figures that are left of it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress as Bar
from websockets.exceptions import InvalidStatus

from ...clients.robot import EpisodeLog, PolicyUnreachable, RobotClient, RobotError
from ...clients.robot.connection import open_connection
from ...codecs.video import VideoError
from ...robot.sim.worlds import World
from ..server import Server
from . import timeline, video
from .delayed_link import DelayedLink
from .driving import SETTINGS, Episode, Played, SimulatedRobot, Watch, drive, robot_url
from .planning import Plan, choose_world, episodes_of
from .progress import Progress
from .timeline import Lane
from .tracks import Track, read_track
from .video import Film
from .worlds import open_world

OPEN_WITHIN_S = 60.0
"""A server's policy may still be loading when the server listens already."""
TRY_EVERY_S = 0.5
CONFIGURATION = """\
[server]
pipelines = ["tone"]
media = []
log_level = "warning"

[robots]
policies = ["{policy}"]

[jobs]
folder = "{folder}"
"""


@dataclass(slots=True, eq=False)
class RobotRun:
    """What one robot did. `error`: why it did not play all of its episodes."""

    name: str
    episodes: Sequence[Episode]
    played: list[Played] = field(default_factory=list)
    film: Film = field(default_factory=Film)
    track: Track = field(default_factory=lambda: Track(20.0))
    error: str = ""


@dataclass(slots=True, eq=False)
class Result:
    """What all of them did. `files` are those that were written."""

    world: World
    plan: Plan
    robots: list[RobotRun]
    seconds: float = 0.0
    files: list[Path] = field(default_factory=list)

    @property
    def played(self) -> list[Played]:
        return [played for robot in self.robots for played in robot.played]

    @property
    def episodes(self) -> int:
        """Those that were to be played."""
        return sum(len(robot.episodes) for robot in self.robots)

    @property
    def succeeded(self) -> int:
        return sum(played.succeeded for played in self.played)

    @property
    def errors(self) -> list[str]:
        """Why robots could not go on."""
        return [f"{robot.name}: {robot.error}" for robot in self.robots if robot.error]

    @property
    def round_trips_s(self) -> list[float]:
        """Of every request."""
        return [one for robot in self.robots for one in robot.track.round_trips()]

    @property
    def jumps(self) -> list[float]:
        """At every border between chunks, the gripper left out."""
        return [one for robot in self.robots for one in robot.track.jumps(len(self.world.actions) - 1)]

    def share(self, count: str) -> float:
        """Of all control steps: "held", "stopped", "missed"."""
        steps = sum(played.executed + played.held + played.stopped for played in self.played)
        return float(sum(getattr(played, count) for played in self.played)) / max(1, steps)

    @property
    def title(self) -> str:
        """In a line."""
        plan, count = self.plan, len(self.robots)
        delay = f", {plan.delay_s * 1000:g} ms more delay" if plan.delay_s else ""
        what = f"“{plan.prompt}”, " if plan.prompt is not None else f"{plan.task}, " if plan.task not in (None, "all") else ""
        return f"{self.world.name}: {what}{count} robot{'s' if count > 1 else ''}, hand-over {plan.handover}{delay}"


async def run(plan: Plan, console: Console, *, url: str | None = None, api_key: str | None = None, config: Path | None = None) -> Result:
    """Play a plan on the server at `url`, or on one that is started here (with `config`, if given), and write its files.

    Raises `CannotSimulate`, `RobotError` if no robot could play at all, `ServerFailed`, `RenderError`, `NoVideo`, `NoPlots`, OSError.
    """
    if plan.video is not None:
        video.check()
    if plan.timeline is not None:
        timeline.check()
    for path in (plan.video, plan.timeline):
        if path is not None:
            _check_writable(path)
    world = await _world(plan, url, api_key)
    (await asyncio.to_thread(open_world, world)).close()  # what is missing should be known before a server is started
    if plan.video is not None or world.cameras:
        await asyncio.to_thread(_check_drawing, world)
    async with _server(world, url, config) as server:
        result = await play(plan, world, console, server.url, api_key=api_key)
    stop = threading.Event()
    try:
        await asyncio.to_thread(write_files, result, console, stop)
    except asyncio.CancelledError:
        stop.set()
        raise
    return result


async def play(plan: Plan, world: World, console: Console, server: str, *, api_key: str | None = None) -> Result:
    """Have all robots play. Raises `CannotSimulate`, `RobotError` if none could play at all, `RenderError`, OSError."""
    runs = [RobotRun(f"robot {index + 1}", mine) for index, mine in enumerate(episodes_of(plan, world))]
    robots = [SimulatedRobot.of(world) for _ in runs]
    result = Result(world, plan, runs)
    try:
        async with contextlib.AsyncExitStack() as stack:
            folder = plan.logs or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-robots-")))
            folder.mkdir(parents=True, exist_ok=True)
            if plan.delay_s:
                link = await stack.enter_async_context(DelayedLink(server, plan.delay_s))
                server = link.url
            await asyncio.to_thread(_warm, runs, robots)
            progress = stack.enter_context(Progress(console, [len(one.episodes) for one in runs]))
            began = time.monotonic()
            await _all(plan, robot_url(server, world.name), runs, robots, folder, progress, api_key)
            result.seconds = time.monotonic() - began
    finally:
        for robot in robots:
            robot.close()
    if not result.played and result.errors:
        raise RobotError(runs[0].error)
    return result


async def _all(
    plan: Plan, url: str, runs: list[RobotRun], robots: list[SimulatedRobot], folder: Path, progress: Progress, api_key: str | None
) -> None:
    """All robots at once, each a fraction of a control step after the one before: together they would be in each other's way."""

    async def one(number: int, run: RobotRun, robot: SimulatedRobot) -> None:
        await asyncio.sleep(number / len(runs) / robot.simulation.rate)
        path = folder / f"robot-{number + 1}.log"
        watch = _both(progress.of(number), run.film if plan.video is not None and number < video.MOST else None)
        settings = replace(SETTINGS, handover=plan.handover)
        with EpisodeLog(path) as log:
            try:
                await drive(url, robot, run.episodes, settings=settings, api_key=api_key, log=log, watch=watch, played=run.played)
            except RobotError as error:
                run.error = str(error)
        if path.stat().st_size:
            run.track = read_track(path)

    try:
        async with asyncio.TaskGroup() as group:
            for number, (run, robot) in enumerate(zip(runs, robots, strict=True)):
                group.create_task(one(number, run, robot), name=run.name)
    except ExceptionGroup as several:
        raise several.exceptions[0] from several  # what ended one robot for good (its pictures, its log) will have ended the others as well


def write_files(result: Result, console: Console, stop: threading.Event | None = None) -> None:
    """The video and the timeline of a plan. On one thread; `stop` ends it before the next frame, and then the video is not there.
    Raises what `video.shoot` and `timeline.draw` raise."""
    plan = result.plan
    if plan.video is not None:
        films = [robot.film for robot in result.robots]
        with _bar(console, "drawing the video") as show:

            def tell(done: int, of: int) -> None:
                if stop is not None and stop.is_set():
                    raise VideoError("The video was given up.")
                show(done, of)

            frames = video.shoot(plan.video, result.world, films, rate=_rate(result), title=result.title, tell=tell)
        if frames:
            result.files.append(plan.video)
    if plan.timeline is not None:
        lanes = [Lane(robot.name, robot.track, robot.played) for robot in result.robots]
        timeline.draw(plan.timeline, lanes, _headline(result), result.world.actions)
        result.files.append(plan.timeline)


async def _world(plan: Plan, url: str | None, api_key: str | None) -> World:
    """The plan's world. A server that runs is asked for its policy: where the plan does not say which, that decides."""
    if url is None:
        return choose_world(plan)
    served = await served_policy(url, api_key)
    return choose_world(plan, served if plan.world is None else None)


async def served_policy(server: str, api_key: str | None = None) -> str:
    """The name of the policy that a server serves first. Raises `Refused`, `PolicyUnreachable`."""
    deadline = time.monotonic() + OPEN_WITHIN_S
    while True:
        try:
            connection = await open_connection(robot_url(server), api_key=api_key, session_id=None, anew=False, timeout=10.0)
        except PolicyUnreachable as error:
            if not isinstance(error.__cause__, InvalidStatus) or time.monotonic() > deadline:
                raise  # nobody is there; one who says that he is busy may still be loading
            await asyncio.sleep(TRY_EVERY_S)
        else:
            await connection.close()
            return connection.policy.name


@contextlib.asynccontextmanager
async def _server(world: World, url: str | None, config: Path | None) -> AsyncIterator[Server]:
    """The server at `url`, or one with the policy of this world alone."""
    if url is not None:
        yield Server.at(url)
        return
    with tempfile.TemporaryDirectory(prefix="antiphon-robots-") as made:
        folder = Path(made)
        if config is None:
            config = folder / "antiphon.toml"
            config.write_text(CONFIGURATION.format(policy=world.name, folder=(folder / "jobs").as_posix()))
        async with Server(log=folder / "server.log", options=("--config", str(config))) as server:
            yield server


def _warm(runs: Sequence[RobotRun], robots: Sequence[SimulatedRobot]) -> None:
    """Make all worlds ready before the first robot moves: compiling one takes the others' time."""
    for run, robot in zip(runs, robots, strict=True):
        robot.warm([episode.task for episode in run.episodes])


def _both(first: Watch, second: Watch | None) -> Watch:
    if second is None:
        return first
    also = second

    def watch(client: RobotClient, robot: SimulatedRobot, episode: int) -> None:
        first(client, robot, episode)
        also(client, robot, episode)

    return watch


def _check_writable(path: Path) -> None:
    """Can this file be written? Raises OSError if not; what is there stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    there = path.exists()
    path.open("ab").close()
    if not there:
        path.unlink()


def _check_drawing(world: World) -> None:
    """Draw a picture, so that what is missing for it is known before all is played. Raises `CannotSimulate`, `RenderError`."""
    simulation = open_world(world)
    stage = world.stage(world.tasks[0])
    try:
        simulation.reset(world.tasks[0], 0)
        stage.draw(simulation.scene(), world.view, 64)
    finally:
        stage.close()
        simulation.close()


def _rate(result: Result) -> float:
    return result.robots[0].track.rate


def _headline(result: Result) -> str:
    trips = np.array(result.round_trips_s or [0.0]) * 1000
    p50, p99 = np.quantile(trips, (0.5, 0.99))
    done = f"{result.succeeded} of {result.episodes} episodes done"
    return f"{result.title} · {done} · round trip p50 {p50:.0f} ms, p99 {p99:.0f} ms"


@contextlib.contextmanager
def _bar(console: Console, words: str) -> Iterator[Callable[[int, int], None]]:
    """Something that moves while frames are drawn."""
    with Bar(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(words)
        yield lambda done, of: shown.update(task, completed=done, total=of)
