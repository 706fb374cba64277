"""The demo's third act: simulated robots do what they are told by a live server's policy, and leave a video and a timeline of it."""

from __future__ import annotations

import numpy as np
from rich.text import Text

from ..clients.robot import RobotError
from ..codecs.video import VideoError
from ..robot.sim.simulation import RenderError
from .acts import Act
from .report import Figure, plain
from .robots import sim
from .robots.planning import Plan
from .robots.video import NoVideo
from .robots.worlds import CannotSimulate
from .timeline import NoPlots
from .voice import Setting

ROBOTS, EPISODES = 4, 6
"""Some fifteen seconds."""
DONE = 0.8
"""Of the episodes, at least: the policy does more than 99 of 100 when its chunks come in time."""


async def run(setting: Setting) -> Act:
    """Have them play. Raises `ServerFailed`."""
    plan = Plan(
        world="tabletop",
        robots=ROBOTS,
        episodes=EPISODES,
        video=setting.out / "robots.mp4",
        timeline=setting.out / "robots.png",
    )
    try:
        result = await sim.run(plan, setting.console, url=setting.url, api_key=setting.api_key, config=setting.config)
    except (CannotSimulate, RobotError, RenderError, NoVideo, NoPlots, VideoError) as error:
        setting.console.print(Text(str(error), style="red"))
        return Act(failures=[f"The robots could not be played: {error}"])
    setting.console.print(Text(f"{', '.join(path.name for path in result.files)} are in {setting.out}", style="dim"))
    act = Act(figures(result), [f"A robot could not go on: {error}" for error in result.errors], {"robots": details(result)})
    if result.succeeded < DONE * result.episodes:
        act.failures.append(f"Of {result.episodes} episodes {result.succeeded} were done; {DONE:.0%} should be.")
    return act


def figures(result: sim.Result) -> list[Figure]:
    """The act's rows of the table."""
    done = result.succeeded
    trips = np.array(result.round_trips_s or [np.nan]) * 1000
    note = f"{len(result.robots)} robots, {result.world.name}, hand-over {result.plan.handover}"
    goal = f"≥ {DONE:.0%}"
    return [
        Figure("robots' episodes done", f"{done} of {result.episodes}", goal, done >= DONE * result.episodes, note),
        plain("robot's round trip, observation to actions, p50", float(np.quantile(trips, 0.5)), "ms", digits=0),
        plain("robot's round trip, p99", float(np.quantile(trips, 0.99)), "ms", digits=0),
        plain("control steps without an action", 100 * result.share("held"), "%", digits=1, note="mostly an episode's first"),
        plain("jump where a chunk takes over, median", _median(result.jumps), digits=2, note="actions lie in [-1, 1]"),
    ]


def details(result: sim.Result) -> dict[str, object]:
    """What was measured, for the report's JSON file."""
    return {
        robot.name: [
            {"task": one.episode.task, "seed": one.episode.seed, "done": one.succeeded, "steps": one.steps, "held": one.held}
            for one in robot.played
        ]
        for robot in result.robots
    }


def _median(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None
