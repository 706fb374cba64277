"""A simulated robot under `clients.robot.RobotClient`: several episodes, one after another, on one connection."""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...clients.robot import ControlSettings, EpisodeLog, Outcome, PolicyUnreachable, RobotClient, Statistics
from ...robot.sim.simulation import Action, Simulation, observation_of
from ...robot.sim.worlds import World
from .worlds import open_world

ANY_TASK = "any"
"""Whatever the robot does first of what can be asked for is a success: for words of which nobody knows what they ask for. Only where tasks
share a world."""
PATH = "/v1/realtime/robot/openpi"
SETTINGS = ControlSettings(jump_dims=3, reply_timeout_s=5.0)
"""The last number of an action is the gripper's, which may jump."""
Watch = Callable[[RobotClient, "SimulatedRobot", int], None]
"""Called after each control step, with the number of the episode."""
AWAY = 2
"""Episodes in a row without a single chunk, after which a robot gives up."""
COUNTS = ("executed", "held", "stopped", "missed", "stalls", "requests", "chunks", "clipped", "timeouts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What a robot is to do: `task` (or `ANY_TASK`) decides what counts as success, `prompt` is what the policy is told, `seed` decides
    the scene."""

    task: str
    prompt: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What became of an episode. Its own counts are as in `clients.robot.Statistics`; `statistics` are the robot's from its first episode
    to the end of this one."""

    episode: Episode
    succeeded: bool
    did: str
    """The task that was done, "" if none was."""
    steps: int
    """Control steps that the world moved on by: holding counts."""
    executed: int
    held: int
    stopped: int
    missed: int
    stalls: int
    requests: int
    chunks: int
    clipped: int
    timeouts: int
    refused: dict[str, int]
    statistics: Statistics


class SimulatedRobot:
    """A simulation as a `clients.robot.Robot`. `cameras` (key of the observation -> camera) are drawn at each step, `[size, size, 3]`.

    `begin` comes first. An episode is over when the task is done or `limit` steps were taken; then the world stands still.
    """

    def __init__(self, simulation: Simulation, cameras: Mapping[str, str] | None = None, picture_size: int = 64, limit: int = 160) -> None:
        self.simulation = simulation
        self.limit = limit
        self.task = ""
        self.prompt = ""
        self.steps = 0
        self.did = ""
        """The task that was done."""
        self.log: list[tuple[int, Action]] = []
        """What was executed, as (step, action), since the episode began."""
        self._wanted: Sequence[str] = ()
        self._warm: set[str] = set()
        self._cameras = dict(cameras or {})
        self._size = picture_size

    @classmethod
    def of(cls, world: World) -> SimulatedRobot:
        """A robot in a world of its own. Raises `CannotSimulate`."""
        return cls(open_world(world), world.cameras, world.picture_size, world.limit)

    @property
    def succeeded(self) -> bool:
        """Was the task done?"""
        return bool(self.did)

    @property
    def over(self) -> bool:
        """Has the episode ended?"""
        return self.succeeded or self.steps >= self.limit

    def warm(self, tasks: Sequence[str]) -> None:
        """Compile the worlds of these tasks, unless they are: a control loop has no time for it. No episode may be running."""
        for task in dict.fromkeys(tasks):
            if task != ANY_TASK and task not in self._warm:
                self.simulation.reset(task, 0)
                self._warm.add(task)

    def begin(self, task: str, prompt: str, seed: int) -> None:
        """Begin an episode. Raises `ValueError` for `ANY_TASK` where each task has a world of its own."""
        simulation = self.simulation
        if task == ANY_TASK and not simulation.shared_world:
            raise ValueError("Here each task has a world of its own: say which one.")
        self._wanted = simulation.tasks if task == ANY_TASK else (task,)
        simulation.reset(self._wanted[0], seed)
        self.task, self.prompt = task, prompt
        self.steps, self.did, self.log = 0, "", []

    def observe(self) -> dict[str, Any]:
        """What the policy is told. Raises `RenderError`."""
        return {**observation_of(self.simulation, self._cameras, self._size), "prompt": self.prompt}

    def act(self, action: Action) -> None:
        """One control step of the world."""
        if self.over:
            return
        self.log.append((self.steps, action))
        self.simulation.step(action)
        self.steps += 1
        self.did = next(filter(self._done, self._wanted), "")

    def _done(self, task: str) -> bool:
        if len(self._wanted) > 1:
            self.simulation.retask(task)
        return self.simulation.succeeded()

    def hold(self, _observation: Any = None) -> Action:
        """What keeps it where it is."""
        return self.simulation.hold()

    def close(self) -> None:
        """Free its world."""
        self.simulation.close()


@dataclass(slots=True, eq=False)
class _Drive:
    """The episodes of one robot, as the control loop goes from step to step."""

    robot: SimulatedRobot
    episodes: Sequence[Episode]
    watch: Watch | None
    played: list[Played]
    client: RobotClient | None = None
    _before: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    _refused: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        episode = self.episodes[len(self.played)]
        self.robot.begin(episode.task, episode.prompt, episode.seed)

    def step(self) -> bool:
        """After each control step; is all done?"""
        assert self.client is not None
        if self.watch is not None:
            self.watch(self.client, self.robot, len(self.played))
        if not self.robot.over:
            return False
        self._note(self.client.statistics())
        self._require_a_server()
        outcome: Outcome = "success" if self.robot.succeeded else "failure"
        if len(self.played) == len(self.episodes):
            self.client.ended(outcome)
            return True
        self.begin()
        self.client.new_episode(outcome=outcome)
        return False

    def _require_a_server(self) -> None:
        """A server that is away for a moment costs an episode; one that stays away would cost them all, held to their ends."""
        latest = self.played[-AWAY:]
        if len(latest) == AWAY and not any(played.chunks or played.executed for played in latest):
            why = latest[-1].statistics.last_error or "no reply came"
            raise PolicyUnreachable(f"Nothing came from the policy for {AWAY} episodes: {why}")

    def _note(self, statistics: Statistics) -> None:
        now = {name: getattr(statistics, name) for name in COUNTS}
        refused = {why: count - self._refused.get(why, 0) for why, count in statistics.refused.items()}
        self.played.append(
            Played(
                episode=self.episodes[len(self.played)],
                succeeded=self.robot.succeeded,
                did=self.robot.did,
                steps=self.robot.steps,
                refused={why: count for why, count in refused.items() if count},
                statistics=statistics,
                **{name: now[name] - self._before[name] for name in COUNTS},
            )
        )
        self._before, self._refused = now, dict(statistics.refused)


async def drive(
    url: str,
    robot: SimulatedRobot,
    episodes: Sequence[Episode],
    *,
    settings: ControlSettings | None = None,
    api_key: str | None = None,
    session_id: str | None = None,
    log: EpisodeLog | None = None,
    watch: Watch | None = None,
    played: list[Played] | None = None,
) -> list[Played]:
    """Have a robot play its episodes by the policy at `url` (see `robot_url`): one client, one connection, however they end.

    `played` (given empty) is filled as it goes, for those whom an error does not let see the end. Raises what `RobotClient.run` raises
    (`PolicyUnreachable` also when nothing has come for `AWAY` episodes), and `RenderError`.
    """
    if not episodes:
        return []
    drive_ = _Drive(robot, episodes, watch, [] if played is None else played)
    await asyncio.to_thread(robot.warm, [episode.task for episode in episodes])
    drive_.begin()
    robot.observe()  # opens what draws, on this thread, before the clock runs
    client = drive_.client = RobotClient(
        url,
        robot,
        hold=robot.hold,
        stop=robot.hold,
        settings=settings or SETTINGS,
        api_key=api_key,
        session_id=session_id,
        anew=session_id is not None,
        log=log,
    )
    await client.run(until=drive_.step)
    return drive_.played


def robot_url(server: str, policy: str | None = None) -> str:
    """The address of a policy on a server (`http://HOST:PORT`, also with the `/v1` that OpenAI's clients want; another path is kept);
    without a name, its first."""
    parts = urllib.parse.urlsplit(server if "://" in server else f"http://{server}")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    query = {**dict(urllib.parse.parse_qsl(parts.query)), **({"policy": policy} if policy else {})}
    path = PATH if parts.path.strip("/") in ("", "v1") else parts.path
    return urllib.parse.urlunsplit((scheme, parts.netloc, path, urllib.parse.urlencode(query), ""))
