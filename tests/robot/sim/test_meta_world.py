"""Meta-World behind the simulation's interface."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from antiphon.robot.sim.meta_world import MetaWorld

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def world() -> Iterator[MetaWorld]:
    made = MetaWorld()
    yield made
    made.close()


@pytest.mark.parametrize("task", ["reach", "drawer-close", "window-open"])
def test_the_expert_does_its_task(world: MetaWorld, task: str) -> None:
    world.reset(task, 4)
    for _ in range(150):
        world.step(world.expert())
        if world.succeeded():
            return
    pytest.fail("not done in 150 steps")


def test_the_goal_is_seen_all_along(world: MetaWorld) -> None:
    world.reset("reach", 1)
    goal = world.observe()[-3:]
    assert np.abs(goal).max() > 0.05
    world.step(world.expert())
    assert np.allclose(world.observe()[-3:], goal), "Meta-World hides goals by clipping them to zero"


def test_a_seed_makes_a_world(world: MetaWorld) -> None:
    world.reset("push", 7)
    first = world.observe()
    world.step(world.expert())
    world.reset("drawer-open", 7)
    world.reset("push", 7)
    assert np.array_equal(world.observe(), first)
    world.reset("push", 8)
    assert not np.array_equal(world.observe(), first)


def test_its_tasks_share_no_world(world: MetaWorld) -> None:
    world.reset("push", 0)
    with pytest.raises(ValueError, match="needs a reset"):
        world.retask("reach")


def test_holding_keeps_the_hand_and_the_grip(world: MetaWorld) -> None:
    world.reset("reach", 0)
    world.step(np.array([0, 0, 0, 0.5], np.float32))
    for _ in range(3):
        world.step(world.hold())
    hand = world.observe()[:3]
    for _ in range(10):
        world.step(world.hold())
    assert np.abs(world.observe()[:3] - hand).max() < 0.01
    assert world.hold()[3] == 0.5
