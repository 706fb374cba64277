"""Pictures drawn later, from scenes that were noted."""

from __future__ import annotations

import numpy as np
import pytest
from antiphon.robot.sim.rendering import Stage
from antiphon.robot.sim.simulation import Picture, Scene, View
from antiphon.robot.sim.worlds import META_WORLD, TABLETOP, World

pytestmark = pytest.mark.filterwarnings("ignore")

SIZE = 96


def noted(world: World, task: str, seed: int, steps: int) -> list[Scene]:
    simulation = world.simulate()
    simulation.reset(task, seed)
    scenes = [simulation.scene()]
    for _ in range(steps):
        simulation.step(simulation.expert())
        scenes.append(simulation.scene())
    simulation.close()
    return scenes


def drawn(stage: Stage, scene: Scene, view: View) -> Picture:
    return stage.draw(scene, view, SIZE).astype(int)


@pytest.mark.parametrize(("world", "task"), [(TABLETOP, "lift-red"), (META_WORLD, "drawer-open")], ids=["tabletop", "metaworld"])
def test_each_moment_looks_as_it_was(world: World, task: str) -> None:
    scenes = noted(world, task, 3, 25)
    stage = world.stage(task)
    try:
        first, last = (drawn(stage, scene, world.view) for scene in (scenes[0], scenes[-1]))
        assert np.abs(first - last).max() > 100, "something has moved"
        assert np.array_equal(drawn(stage, scenes[0], world.view), first), "and a moment looks the same whatever was drawn in between"
    finally:
        stage.close()


def test_an_episode_has_its_things_where_they_were() -> None:
    """Meta-World moves the parts of its model about for each episode, and the mark of its goal with each step."""
    one, other = (noted(META_WORLD, "drawer-open", seed, 0)[0] for seed in (1, 2))
    stage = META_WORLD.stage("drawer-open")
    try:
        before = drawn(stage, one, META_WORLD.view)
        assert np.abs(drawn(stage, other, META_WORLD.view) - before).max() > 100
        assert np.array_equal(drawn(stage, one, META_WORLD.view), before)
    finally:
        stage.close()


def test_what_a_policy_sees_is_not_touched_by_what_people_see() -> None:
    simulation = TABLETOP.simulate()
    simulation.reset("lift-red", 3)
    before = simulation.render("top", 64)
    stage = TABLETOP.stage("lift-red")
    stage.draw(simulation.scene(), TABLETOP.view, SIZE)
    stage.close()
    assert np.array_equal(simulation.render("top", 64), before)
