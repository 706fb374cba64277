"""A fleet of robots against our server and against openpi's own, on the same weights, in one run: how long a chunk takes, what comes too
late, and how many chunks a second there can be.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.text import Text

from ...robot.sim.simulation import observation_of
from ...robot.sim.worlds import WORLDS
from ..report import Report
from ..server import Server, ServerFailed
from ..timeline import NoPlots
from ..voice import Setting
from .fleet_blocks import Block, Order, Peer
from .fleet_figures import OURS, PLAIN, Measured, aims, figures, gather, table
from .fleet_peer import fetch_peer, plain_server
from .fleet_plot import draw

PATH = "/v1/realtime/robot/openpi"
WEIGHTS = Path(__file__).parents[2] / "robot" / "weights"
EPISODES, STEPS = 4, 64
"""Of the recorded observations."""
SLACK_S = 60.0
CONFIGURATION = """\
# What a user runs for robots alone: no voice, no pictures.
[server]
pipelines = ["tone"]
media = []
log_level = "warning"

[robots]
policies = ["{policy}"]
"""
ENGINE = """
[engines.{policy}]
kind = "flow-policy"
process = {process}
options = {{ model = "{policy}" }}
"""
LAUNCHERS = {"in_process": "false", "subprocess": "true"}
"""Where the policy runs -> its engine's `process`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many robots at a time, at which rate, for how long: `seconds` a block, `rounds` blocks of a kind for each server."""

    policy: str = "tabletop"
    robots: tuple[int, ...] = (1, 4, 16)
    hertz: float = 20.0
    seconds: float = 2.0
    rounds: int = 3
    also: str = ""
    """One of `LAUNCHERS`: our server is measured a second time, with the policy there."""


async def run(setting: Setting, plan: Plan) -> bool:
    """Measure and report; whether the aims were met. Raises `ServerFailed`."""
    if plan.policy not in WORLDS or WORLDS[plan.policy].cameras:
        blind = ", ".join(name for name, world in WORLDS.items() if not world.cameras)
        raise ServerFailed(f"There are no observations for {plan.policy!r}. Policies to measure with: {blind}.")
    if plan.also and plan.also not in LAUNCHERS:
        raise ServerFailed(f"A policy cannot run in {plan.also!r}, but: {', '.join(LAUNCHERS)}.")
    setting.out.mkdir(parents=True, exist_ok=True)
    record(setting.out / "observations.npz", plan.policy)
    packages = setting.out / "openpi"
    setting.console.print(Text("Fetching openpi's own server", style="dim"))
    await fetch_peer(packages)
    async with AsyncExitStack() as stack:
        peers = [await _ours(stack, setting, plan, OURS, "")]
        url, pid = await stack.enter_async_context(plain_server(WEIGHTS / plan.policy, packages, setting.out / "plain.log"))
        peers.append(Peer(PLAIN, url, pid))
        if plan.also:
            engine = ENGINE.format(policy=plan.policy, process=LAUNCHERS[plan.also])
            peers.append(await _ours(stack, setting, plan, plan.also.replace("_", " "), engine))
        blocks = await _measure(setting, plan, tuple(peers))
    return _report(setting, blocks)


def record(file: Path, policy: str) -> None:
    """Drive the simulator with who knows the task, and write down what the robot saw and was told."""
    world = WORLDS[policy]
    simulation = world.simulate()
    seen: list[dict[str, np.ndarray]] = []
    for episode in range(EPISODES):
        task = world.tasks[episode % len(world.tasks)]
        simulation.reset(task, episode)
        prompt = np.asarray(world.language().plain[task])
        for _ in range(STEPS):
            seen.append({**observation_of(simulation, world.cameras, world.picture_size), "prompt": prompt})
            simulation.step(simulation.expert())
    simulation.close()
    arrays: dict[str, Any] = {key: np.stack([each[key] for each in seen]) for key in seen[0]}
    np.savez(file, **arrays)


async def _ours(stack: AsyncExitStack, setting: Setting, plan: Plan, name: str, more: str) -> Peer:
    """Our server, started as a user starts it."""
    folder = setting.out / name.replace(" ", "_")
    folder.mkdir(exist_ok=True)
    config = folder / "antiphon.toml"
    config.write_text(CONFIGURATION.format(policy=plan.policy) + more)
    server = await stack.enter_async_context(Server(log=folder / "server.log", options=("--config", str(config))))
    assert server.pid is not None
    return Peer(name, server.url.replace("http", "ws", 1) + PATH, server.pid)


async def _measure(setting: Setting, plan: Plan, peers: tuple[Peer, ...]) -> list[Block]:
    """Have the robots' process do its work, and take what it says."""
    order = Order(
        peers=peers,
        robots=plan.robots,
        observations=str(setting.out / "observations.npz"),
        seconds=plan.seconds,
        rounds=plan.rounds,
        period_s=1 / plan.hertz,
    )
    log = setting.out / "robots.log"
    command = [sys.executable, "-m", "antiphon.scenarios.robots.fleet_blocks"]
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, limit=1 << 26
        )
    assert process.stdin is not None
    assert process.stdout is not None
    blocks: list[Block] = []
    try:
        process.stdin.write(msgspec.json.encode(order))
        process.stdin.close()
        async with asyncio.timeout(SLACK_S + 2 * plan.rounds * len(peers) * len(plan.robots) * (plan.seconds + 2)):
            while line := await process.stdout.readline():
                blocks.append(msgspec.json.decode(line, type=Block))
                _tell(setting, blocks[-1])
            await process.wait()
    except TimeoutError as error:
        raise ServerFailed("The fleet did not come to an end.") from error
    finally:
        with suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
                await process.wait()
    if process.returncode:
        raise ServerFailed(f"The fleet failed.\n{log.read_text(errors='replace')}")
    return blocks


def _tell(setting: Setting, block: Block) -> None:
    middle = f"{np.median(block.trips):.1f} ms" if block.trips else "no chunk"
    rate = f"{block.chunks / block.seconds:.0f} chunks/s"
    setting.console.print(Text(f"{block.robots:>3} robots, {block.pace}, {block.peer}: {middle}, {rate}", style="dim"))


def _report(setting: Setting, blocks: list[Block]) -> bool:
    measured: list[Measured] = gather(blocks)
    rows = figures(measured)
    report = Report("robot_fleet", rows, aims(rows), {"blocks": [msgspec.to_builtins(block) for block in blocks]})
    setting.console.print(table(measured))
    report.show(setting.console)
    report.save(setting.out)
    try:
        draw(setting.out / "fleet.png", measured)
    except NoPlots as error:
        setting.console.print(Text(str(error), style="dim"))
    return report.passed
