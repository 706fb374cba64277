"""From what was asked for to each robot's episodes."""

from __future__ import annotations

import pytest
from antiphon.robot.sim.worlds import META_WORLD, TABLETOP, TABLETOP_EYES
from antiphon.scenarios.robots.driving import ANY_TASK, robot_url
from antiphon.scenarios.robots.planning import Plan, choose_world, episodes_of
from antiphon.scenarios.robots.worlds import CannotSimulate, said


def test_the_world_follows_from_the_task_or_from_the_server():
    assert choose_world(Plan()) is TABLETOP
    assert choose_world(Plan(task="drawer-open")) is META_WORLD
    assert choose_world(Plan(task="lift-red"), "tabletop-eyes") is TABLETOP_EYES, "the server's own policy can do it"
    assert choose_world(Plan(task="drawer-open"), "tabletop") is META_WORLD, "it cannot; another may be served too"
    assert choose_world(Plan(task="all"), "metaworld") is META_WORLD
    assert choose_world(Plan(world="metaworld"), "tabletop") is META_WORLD


@pytest.mark.parametrize(
    ("plan", "served", "words"),
    [
        (Plan(task="lift-purple"), None, "lift-blue"),
        (Plan(world="metaworld", task="lift-red"), None, "peg-insert-side"),
        (Plan(world="moon"), None, "tabletop-eyes"),
        (Plan(), "pi0", "pi0"),
        (Plan(), "", "--world"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(plan: Plan, served: str | None, words: str):
    with pytest.raises(CannotSimulate, match=words):
        choose_world(plan, served)


def test_robots_share_the_tasks_out():
    robots = episodes_of(Plan(task="all", robots=4), TABLETOP)
    assert {episode.task for mine in robots for episode in mine} == set(TABLETOP.tasks)
    assert [len(mine) for mine in robots] == [3] * 4
    seeds = [episode.seed for mine in robots for episode in mine]
    assert len(set(seeds)) == len(seeds), "no two scenes are alike"
    again = episodes_of(Plan(task="all", robots=4), TABLETOP)
    assert again == robots
    assert episodes_of(Plan(task="all", robots=4, seed=1), TABLETOP) != robots


def test_words():
    ((episode,),) = episodes_of(Plan(task="lift-red"), TABLETOP)
    assert episode.prompt == "lift the red cube"
    ((episode,),) = episodes_of(Plan(task="lift-red", prompt="up with it"), TABLETOP)
    assert (episode.task, episode.prompt) == ("lift-red", "up with it")
    assert said(TABLETOP, "lift-red", 0, "kept_out") in TABLETOP.language().kept_out["lift-red"]
    wrong = {said(TABLETOP, "lift-red", index, "wrong") for index in range(20)}
    assert len(wrong) == len(TABLETOP.tasks) - 1
    assert said(TABLETOP, "lift-red") not in wrong


def test_free_words_need_tasks_that_share_a_world():
    ((episode,),) = episodes_of(Plan(prompt="tidy up"), TABLETOP)
    assert episode.task == ANY_TASK
    with pytest.raises(CannotSimulate, match="--task"):
        episodes_of(Plan(prompt="tidy up"), META_WORLD)


@pytest.mark.parametrize("wrong", [{"handover": "hope"}, {"robots": 0}, {"robots": 100_000}])
def test_plans_that_make_no_sense(wrong: dict[str, object]):
    with pytest.raises(CannotSimulate):
        Plan(**wrong)  # type: ignore[arg-type]


def test_addresses():
    path = "/v1/realtime/robot/openpi"
    assert robot_url("http://h:1") == f"ws://h:1{path}"
    assert robot_url("https://h:1/", "arm two") == f"wss://h:1{path}?policy=arm+two"
    assert robot_url("h:1") == f"ws://h:1{path}"
    assert robot_url("ws://h:1/openpi?key=2", "arm") == "ws://h:1/openpi?key=2&policy=arm", "another server's own path"
