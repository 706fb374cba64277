"""The policies that ship, in closed loop through the server: robots in real time over the real wire, with their own words, with others,
and with chunks that come late; and whether anything was executed that should not have been.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table
from rich.text import Text

from ...clients.robot import ControlSettings, EpisodeLog, PolicyUnreachable, RobotClient, RobotError, read_log
from ...clients.robot.settings import Handover
from ...robot.sim.simulation import RenderError
from ...robot.sim.worlds import World
from ..report import Report, missed
from ..server import Server, ServerFailed
from ..timeline import NoPlots
from ..voice import Setting
from . import in_process, loop_aims
from .audit import Executed, audit
from .delayed_link import DelayedLink
from .driving import Episode, Played, SimulatedRobot, drive, robot_url
from .loop_outcome import COLUMNS, Outcome, cells, markdown
from .loop_plot import draw
from .trials import GROUPS, Group, Trial, shared_out, trials
from .worlds import CannotSimulate, world_of

POLICIES = ("tabletop", "tabletop-eyes", "metaworld")
HANDOVERS: tuple[Handover, ...] = ("wait", "switch", "rtc")
TELL_S = 15.0
GONE_S = 20.0
"""A robot without a connection for so long is given up, and the trial with it."""
CONFIGURATION = """\
[server]
pipelines = ["tone"]
media = []
log_level = "warning"

[robots]
policies = [{policies}]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is tried. `late_episodes`: a task in each cell of delay and hand-over; None: as many as otherwise. `execute`: actions of a
    chunk that are played; None: the client's own choice. `compare`: also evaluate the policies in process."""

    policies: tuple[str, ...] = POLICIES
    groups: tuple[Group, ...] = GROUPS
    episodes: int = 5
    late_episodes: int | None = None
    robots: int = 8
    delays_ms: tuple[int, ...] = (0, 100, 200)
    handovers: tuple[Handover, ...] = HANDOVERS
    execute: int | None = None
    compare: bool = False

    def robots_in(self, world: World) -> int:
        """Robots at once: half as many where they see, as drawing is most of a step's work then."""
        return max(1, self.robots // 2) if world.cameras else self.robots

    def trials(self) -> list[Trial]:
        """What is tried with each policy."""
        late = self.episodes if self.late_episodes is None else self.late_episodes
        return trials(self.groups, self.handovers, self.delays_ms, episodes=self.episodes, late_episodes=late)


async def run(setting: Setting, plan: Plan) -> bool:
    """Drive and report. True when every aim is met. Raises `ServerFailed` when it could not be done."""
    begun = time.monotonic()
    setting.out.mkdir(parents=True, exist_ok=True)
    _estimate(setting, plan)
    found: dict[str, list[Outcome]] = {}
    async with _server(setting, plan) as server:
        for policy in plan.policies:
            found[policy] = await _Bench(setting, plan, server.url, policy).play()
    if plan.compare:
        for policy, outcomes in found.items():
            _tell(setting, f"{policy}: the same in process")
            await in_process.compare(setting.out / "in_process" / policy, policy, outcomes, plan.episodes)
    return _report(setting, plan, found, time.monotonic() - begun)


def _server(setting: Setting, plan: Plan) -> Server:
    if setting.url is not None:
        return Server.at(setting.url)
    config = setting.config
    if config is None:
        config = setting.out / "antiphon.toml"
        config.write_text(CONFIGURATION.format(policies=", ".join(f'"{policy}"' for policy in plan.policies)))
    return Server(log=setting.out / "server.log", options=("--config", str(config)))


def _estimate(setting: Setting, plan: Plan) -> None:
    worlds = [world_of(policy) for policy in plan.policies]
    seconds = sum(trial.seconds(world, 20.0, plan.robots_in(world)) for world in worlds for trial in plan.trials())
    episodes = sum(len(world.tasks) * trial.episodes for world in worlds for trial in plan.trials())
    _tell(setting, f"{episodes} episodes in real time, up to {plan.robots} robots at once: some {max(1, round(seconds / 60))} min")


def _tell(setting: Setting, line: str) -> None:
    setting.console.print(Text(line, style="dim"))


@dataclass(slots=True, eq=False)
class _Witness:
    """What a robot's world saw, by episode, and how far it is."""

    worlds: list[Executed] = field(default_factory=list)
    over: int = 0
    succeeded: int = 0
    _connected: float = field(default_factory=time.monotonic)

    def __call__(self, client: RobotClient, robot: SimulatedRobot, number: int) -> None:
        now = time.monotonic()
        if client.controller is not None and client.controller.connected:
            self._connected = now
        elif now - self._connected > GONE_S:
            raise PolicyUnreachable(f"The server has been gone for {GONE_S:g} s. {client.statistics().last_error}")
        if number == len(self.worlds):
            self.worlds.append(robot.log)
        if robot.over:
            self.over += 1
            self.succeeded += robot.succeeded


class _Bench:
    """A policy's robots and trials."""

    def __init__(self, setting: Setting, plan: Plan, server: str, policy: str) -> None:
        self._setting = setting
        self._plan = plan
        self._server = server
        self._policy = policy
        self._world: World = world_of(policy)
        self._logs = setting.out / "logs" / policy

    async def play(self) -> list[Outcome]:
        """Every trial, one after another. Raises `ServerFailed`."""
        try:
            robots = [SimulatedRobot.of(self._world) for _ in range(self._plan.robots_in(self._world))]
        except CannotSimulate as error:
            raise ServerFailed(str(error)) from error
        found: list[Outcome] = []
        try:
            for trial in self._plan.trials():
                found.append(await self._try(trial, robots))
                _tell(self._setting, f"{self._policy}: " + ", ".join(cells(found[-1])[:2]) + f", {found[-1].seconds:.0f} s")
        finally:
            for robot in robots:
                robot.close()
        return found

    async def _try(self, trial: Trial, robots: Sequence[SimulatedRobot]) -> Outcome:
        shares = shared_out(trial.wanted(self._world), len(robots))
        witnesses = [_Witness() for _ in shares]
        limit = 120 + 10 * trial.seconds(self._world, 10.0, len(robots))
        begun = time.monotonic()
        async with AsyncExitStack() as stack:
            url = self._server
            if trial.delay_ms:
                url = (await stack.enter_async_context(DelayedLink(url, trial.delay_ms / 1000))).url
            telling = asyncio.create_task(self._progress(trial, witnesses, sum(map(len, shares))), name="robot_policies: progress")
            stack.callback(telling.cancel)
            played = await self._together(trial, url, robots, shares, witnesses, limit)
        outcome = Outcome(trial, seconds=time.monotonic() - begun)
        for mine in played:
            outcome.take(mine)
        outcome.tasks = {task: outcome.tasks[task] for task in self._world.tasks if task in outcome.tasks}
        self._audit(outcome, witnesses)
        return outcome

    async def _together(
        self,
        trial: Trial,
        url: str,
        robots: Sequence[SimulatedRobot],
        shares: Sequence[Sequence[Episode]],
        witnesses: Sequence[_Witness],
        limit: float,
    ) -> list[list[Played]]:
        """All robots at once. Raises `ServerFailed`."""
        shutil.rmtree(self._logs, ignore_errors=True)
        self._logs.mkdir(parents=True)
        try:
            async with asyncio.timeout(limit), asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._robot(number, trial, url, robot, share, witness), name=f"robot {number}")
                    for number, (robot, share, witness) in enumerate(zip(robots, shares, witnesses, strict=False))
                ]
        except TimeoutError as error:
            raise ServerFailed(f"{self._policy}, {trial.name}: the robots were not done within {limit:.0f} s.") from error
        except ExceptionGroup as errors:
            known, others = errors.split((RobotError, CannotSimulate, RenderError))
            if others is not None or known is None:
                raise
            raise ServerFailed(f"{self._policy}, {trial.name}: {known.exceptions[0]}") from errors
        return [task.result() for task in tasks]

    async def _robot(
        self, number: int, trial: Trial, url: str, robot: SimulatedRobot, episodes: Sequence[Episode], witness: _Witness
    ) -> list[Played]:
        settings = ControlSettings(
            handover=trial.handover,
            execute=self._plan.execute,
            jump_dims=robot.simulation.action_dim - 1,
            hold_limit_s=5.0,
            reply_timeout_s=5.0,
            connect_timeout_s=90.0,
        )
        with EpisodeLog(self._log(number)) as log:
            return await drive(
                robot_url(url, self._policy),
                robot,
                episodes,
                settings=settings,
                api_key=self._setting.api_key,
                log=log,
                watch=witness,
            )

    async def _progress(self, trial: Trial, witnesses: Sequence[_Witness], of: int) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            over, won = sum(one.over for one in witnesses), sum(one.succeeded for one in witnesses)
            _tell(self._setting, f"{self._policy}: {trial.name}: {won} of {over}, {of - over} to come")

    def _audit(self, outcome: Outcome, witnesses: Sequence[_Witness]) -> None:
        """Hold the worlds' logs against the robots'; these are kept if something is wrong."""
        for number, witness in enumerate(witnesses):
            outcome.audit.add(audit(read_log(self._log(number)), witness.worlds))
        if outcome.audit.faults:
            kept = self._logs.with_name(f"{self._policy}, {outcome.trial.name}")
            shutil.rmtree(kept, ignore_errors=True)
            self._logs.rename(kept)
        else:
            shutil.rmtree(self._logs)
            with suppress(OSError):  # others' are still there
                self._logs.parent.rmdir()

    def _log(self, number: int) -> Path:
        return self._logs / f"robot-{number}.log"


def _about(plan: Plan, policy: str) -> str:
    robots = plan.robots_in(world_of(policy))
    return f"{robots} robots at once, each in real time on a connection of its own. The stall at the start waits for the first chunk."


def _report(setting: Setting, plan: Plan, found: dict[str, list[Outcome]], seconds: float) -> bool:
    rows = [row for policy, outcomes in found.items() for row in loop_aims.figures(policy, outcomes)]
    failures = missed(rows, loop_aims.required(rows))
    failures += [sentence for outcomes in found.values() for outcome in outcomes for sentence in outcome.audit.told]
    rows.append(loop_aims.time_taken(seconds))
    for policy, outcomes in found.items():
        table = Table(title=f"{policy}: closed loop through the server", title_justify="left", header_style="bold")
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "trial" else "right")
        for outcome in outcomes:
            table.add_row(*cells(outcome))
        setting.console.print(table)
        (setting.out / f"{policy}.md").write_text(markdown(policy, outcomes, _about(plan, policy)))
        try:
            draw(setting.out / f"{policy}.png", policy, outcomes)
        except NoPlots as error:
            setting.console.print(Text(str(error), style="yellow"))
    details = {policy: [outcome.record() for outcome in outcomes] for policy, outcomes in found.items()}
    report = Report("robot_policies", rows, failures, {"robots": plan.robots, "episodes": plan.episodes, "policies": details})
    report.show(setting.console)
    report.save(setting.out)
    _tell(setting, f"Report, tables and plots are in {setting.out}")
    return report.passed
