"""The policies in closed loop through the server: the scenario itself, small, and how it plans and judges."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from antiphon.robot.sim.worlds import WORLDS
from antiphon.robot.training.evaluation import FIRST_SEED as EVALUATION
from antiphon.scenarios.cli import app
from antiphon.scenarios.report import missed
from antiphon.scenarios.robots import closed_loop, loop_aims
from antiphon.scenarios.robots.audit import Audit
from antiphon.scenarios.robots.closed_loop import HANDOVERS, Plan
from antiphon.scenarios.robots.delayed_link import DelayedLink
from antiphon.scenarios.robots.driving import Episode
from antiphon.scenarios.robots.in_process import compare
from antiphon.scenarios.robots.loop_outcome import Outcome, line_of, markdown, upper_bound
from antiphon.scenarios.robots.trials import FIRST_SEED, GROUPS, OWN, Trial, shared_out, trials
from antiphon.scenarios.server import ServerFailed
from antiphon.scenarios.voice import Setting
from antiphon.tests.gateway.conftest import RunningServer, eventually
from rich.console import Console
from typer.testing import CliRunner

# ---- against the real server ----------------------------------------------------------------------------------------


def setting(tmp_path: Path, url: str | None = None) -> tuple[Setting, io.StringIO]:
    said = io.StringIO()
    return Setting(tmp_path / "out" / "robot_policies", Console(file=said, width=190), url), said


async def test_robots_do_as_they_are_told_and_late_chunks_are_continued(server: RunningServer, tmp_path: Path) -> None:
    where, said = setting(tmp_path, server.url)
    plan = Plan(policies=("tabletop",), groups=("own", "delays"), episodes=1, robots=9, delays_ms=(0, 100), handovers=("rtc",))
    await closed_loop.run(where, plan)
    report = json.loads((where.out / "report.json").read_text())
    own, late = report["details"]["policies"]["tabletop"]
    assert own["episodes"] == late["episodes"] == 9
    assert own["succeeded"] >= 6, said.getvalue()
    assert late["succeeded"] >= 6, said.getvalue()
    assert own["faults"] == late["faults"] == 0
    assert late["round_trip_ms"]["p50"] >= 100
    assert late["delay_steps"] >= 3
    assert late["stalled_at_the_start"] >= 9 * 3
    assert own["requests"] >= own["chunks"] > 9
    table = (where.out / "tabletop.md").read_text()
    assert OWN in table
    assert "| lift-red | " in table
    assert (where.out / "tabletop.png").read_bytes().startswith(b"\x89PNG")
    assert not (where.out / "logs").exists(), "nothing was wrong, so nothing is kept"
    assert "stale, late or non-finite" in said.getvalue()
    assert len(server.gateway.sessions) == 0, "the robots have left"


async def test_a_policy_that_is_not_served_is_a_sentence(server: RunningServer, tmp_path: Path) -> None:
    where, _ = setting(tmp_path, server.url)
    plan = Plan(policies=("tabletop-eyes",), groups=("own",), episodes=1, robots=1)
    with pytest.raises(ServerFailed, match="tabletop-eyes, its own instruction"):
        await asyncio.wait_for(closed_loop.run(where, plan), 60)


async def test_a_server_that_goes_in_between_is_a_sentence(server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_loop, "GONE_S", 0.5)
    where, _ = setting(tmp_path, server.url)
    plan = Plan(policies=("tabletop",), groups=("own",), episodes=10, robots=2)
    async with DelayedLink(server.url, 0.0) as link:
        running = asyncio.create_task(closed_loop.run(replace(where, url=link.url), plan))
        await eventually(lambda: link.carried["down"] > 5000, within=30)
    with pytest.raises(ServerFailed, match="gone"):
        await asyncio.wait_for(running, 60)


async def test_the_same_policy_is_measured_in_process(tmp_path: Path) -> None:
    own = outcome(3, 3)
    own.trial = replace(own.trial, name=OWN)
    late = outcome(3, 3, group="delays", delay_ms=100)
    late.audit.delays = [3, 3, 4]
    ensemble = outcome(3, 3, group="delays", delay_ms=100, handover="ensemble")
    ensemble.audit.delays = [3]
    await compare(tmp_path, "tabletop-eyes", [own, late, ensemble], 1)
    assert own.in_process is not None
    assert late.in_process is not None
    assert ensemble.in_process is None, "the evaluation has none"
    with pytest.raises(ServerFailed, match="moon"):
        await compare(tmp_path, "moon", [own], 1)


async def test_what_was_wrong_is_kept(server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the world to execute something else than it is commanded, it would come out."""
    act = closed_loop.SimulatedRobot.act

    def shaky(robot: Any, action: Any) -> None:
        act(robot, action + 0.001 if robot.steps == 12 else action)

    monkeypatch.setattr(closed_loop.SimulatedRobot, "act", shaky)
    where, said = setting(tmp_path, server.url)
    assert not await closed_loop.run(where, Plan(policies=("tabletop",), groups=("own",), episodes=1, robots=9))
    assert "was commanded" in said.getvalue()
    assert len(list((where.out / "logs").glob("*/robot-*.log"))) == 9


# ---- what is tried --------------------------------------------------------------------------------------------------


def test_the_scenes_are_those_of_the_evaluation() -> None:
    assert FIRST_SEED == EVALUATION


def test_every_cell_is_tried_once() -> None:
    found = trials(GROUPS, HANDOVERS, (0, 100, 200), episodes=5, late_episodes=3)
    assert [trial.group for trial in found[:3]] == ["own", "paraphrase", "wrong"]
    cells = Counter((trial.handover, trial.delay_ms) for trial in found if trial.words == "plain")
    assert cells == Counter({(how, delay): 1 for how in HANDOVERS for delay in (0, 100, 200)})
    assert {trial.episodes for trial in found if trial.group == "delays"} == {3}
    only = trials(("delays",), ("rtc",), (0, 200), episodes=5, late_episodes=5)
    assert [(trial.handover, trial.delay_ms) for trial in only] == [("rtc", 0), ("rtc", 200)], "a section of its own has all it needs"


@pytest.mark.parametrize("name", WORLDS)
def test_episodes_of_a_trial(name: str) -> None:
    world = WORLDS[name]
    own, paraphrase, wrong = trials(("own", "paraphrase", "wrong"), HANDOVERS, (), episodes=4, late_episodes=4)
    for trial in (own, paraphrase, wrong):
        wanted = trial.wanted(world)
        assert Counter(one.task for one in wanted) == dict.fromkeys(world.tasks, 4)
        assert len({(one.task, one.seed) for one in wanted}) == len(wanted)
        assert 0 < trial.seconds(world, 20.0, 8) < trial.seconds(world, 20.0, 4)
    plain = {one.task: one.prompt for one in own.wanted(world)}
    assert all(one.prompt != plain[one.task] for trial in (paraphrase, wrong) for one in trial.wanted(world))
    assert all(one.prompt in plain.values() for one in wrong.wanted(world))


def test_robots_that_see_are_half_as_many() -> None:
    assert [Plan(robots=9).robots_in(WORLDS[name]) for name in ("tabletop", "tabletop-eyes")] == [9, 4]
    assert Plan(robots=1).robots_in(WORLDS["tabletop-eyes"]) == 1


def test_robots_share_the_episodes_and_the_tasks() -> None:
    episodes = [Episode(task=task, prompt="", seed=seed) for task in "abc" for seed in range(10)]
    shares = shared_out(episodes, 4)
    assert sorted((one.task, one.seed) for share in shares for one in share) == sorted((one.task, one.seed) for one in episodes)
    assert {len(share) for share in shares} == {7, 8}
    assert all(2 <= count <= 3 for share in shares for count in Counter(one.task for one in share).values())
    assert len(shared_out(episodes[:2], 4)) == 2, "nobody drives without an episode"


# ---- how it is judged -----------------------------------------------------------------------------------------------


def outcome(won: int, tried: int, *, group: Any = "own", handover: Any = "rtc", delay_ms: int = 0, stalled: int = 0) -> Outcome:
    words = {"paraphrase": "kept_out", "wrong": "wrong"}.get(group, "plain")
    trial = Trial(group=group, name=group, words=words, handover=handover, delay_ms=delay_ms, episodes=tried // 2)  # type: ignore[arg-type]
    return Outcome(
        trial,
        tasks={"a": (won // 2, tried // 2), "b": (won - won // 2, tried - tried // 2)},
        audit=Audit(steps=1000, executed=1000 - stalled, stalled=stalled),
    )


def verdict(policy: str, *outcomes: Outcome) -> list[str]:
    """What missed its aim."""
    rows = loop_aims.figures(policy, outcomes)
    return missed(rows, loop_aims.required(rows))


@pytest.mark.parametrize(
    ("policy", "good", "bad"),
    [
        ("tabletop", outcome(97, 100), outcome(96, 100)),
        ("metaworld", outcome(97, 100), outcome(96, 100)),
        ("tabletop-eyes", outcome(80, 100), outcome(79, 100)),
        ("tabletop", outcome(90, 100, group="paraphrase"), outcome(89, 100, group="paraphrase")),
        ("tabletop", outcome(2, 100, group="wrong"), outcome(3, 100, group="wrong")),
    ],
)
def test_aims_are_kept_to_with_enough_episodes(policy: str, good: Outcome, bad: Outcome) -> None:
    assert not verdict(policy, good)
    assert len(verdict(policy, bad)) == 1


def test_with_few_episodes_chance_is_allowed_for() -> None:
    assert not verdict("tabletop", outcome(17, 18))
    assert verdict("tabletop", outcome(12, 18))
    assert not verdict("tabletop", outcome(1, 18, group="wrong"))
    assert verdict("tabletop", outcome(6, 18, group="wrong"))


def test_what_late_chunks_may_cost() -> None:
    own = outcome(100, 100)
    for delay, allowed in ((100, 97), (200, 90)):
        assert not verdict("tabletop", own, outcome(allowed, 100, group="delays", delay_ms=delay))
        assert verdict("tabletop", own, outcome(allowed - 1, 100, group="delays", delay_ms=delay))
    assert not verdict("tabletop", own, outcome(50, 100, group="delays", delay_ms=100, handover="switch")), "the others are only told"
    assert not verdict("tabletop-eyes", own, outcome(92, 100, group="delays", delay_ms=100))
    assert verdict("tabletop", own, outcome(100, 100, group="delays", delay_ms=100, stalled=11)), "it may not stall once it moves"


def test_one_action_that_was_wrong_is_one_too_many() -> None:
    found = outcome(100, 100)
    found.audit.fault("Episode 1, step 3: something.")
    assert verdict("metaworld", found)


def test_as_good_as_in_process_within_chance() -> None:
    found = outcome(97, 100)
    for in_process, good in ((0.98, True), (0.97, True), (0.999, True), (1.0, True)):
        found.in_process = in_process
        assert (not verdict("metaworld", found)) == good
    found = outcome(160, 200)
    found.in_process = 0.95
    assert verdict("tabletop-eyes", found)


def test_chance() -> None:
    assert upper_bound(0, 0) == 1.0
    assert upper_bound(10, 10) == pytest.approx(1.0)
    assert upper_bound(0, 50) == pytest.approx(0.071, abs=0.002)
    assert upper_bound(40, 50) == pytest.approx(0.888, abs=0.005)


def test_a_line_begins_without_delay() -> None:
    own, late, wrong = outcome(9, 10), outcome(8, 10, group="delays", delay_ms=200), outcome(0, 10, group="wrong")
    assert line_of([late, wrong, own], "rtc") == [own, late]
    assert line_of([own], "wait") == []


def test_the_table_tells_success_task_by_task() -> None:
    table = markdown("tabletop", [outcome(9, 10), outcome(0, 10, group="wrong")], "about")
    assert "9/10 = 90.0%" in table
    assert "| a | 4/5 | 0/5 |" in table


@pytest.mark.parametrize("options", [("--trials", "own,hope"), ("--trials", ""), ("--policy", "moon"), ("--delay", "-5")])
def test_options_that_make_no_sense_are_refused(options: tuple[str, str]) -> None:
    assert CliRunner().invoke(app, ["robot_policies", *options]).exit_code == 2
