"""The table-top scene: its tasks can be done, one at a time, and only the task says which."""

from __future__ import annotations

import numpy as np
import pytest
from antiphon.robot.sim.simulation import ROBOT_KEY, STATE_KEY, observation_of
from antiphon.robot.sim.tabletop import TableTop
from antiphon.robot.sim.tabletop_goals import GOALS


def drive(scene: TableTop, steps: int) -> int | None:
    """Let the expert work; returns the step at which the task was done."""
    for step in range(steps):
        scene.step(scene.expert())
        if scene.succeeded():
            return step
    return None


@pytest.mark.parametrize("task", TableTop.tasks)
def test_the_expert_does_every_task(task: str) -> None:
    scene = TableTop()
    for seed in range(4):
        scene.reset(task, seed)
        assert not scene.succeeded()
        assert drive(scene, 150) is not None


@pytest.mark.parametrize("task", ["place-red-white", "lift-blue"])
def test_doing_one_task_does_none_of_the_others(task: str) -> None:
    """Nor in passing: so a policy that heard another instruction cannot succeed by accident."""
    scene = TableTop()
    scene.reset(task, 3)
    for _ in range(60):
        scene.step(scene.expert())
        assert not any(scene._fulfils(goal) for name, goal in GOALS.items() if name != task)


def test_a_lifted_cube_stays_up() -> None:
    scene = TableTop()
    scene.reset("lift-green", 1)
    assert drive(scene, 100) is not None
    for _ in range(10):
        scene.step(scene.expert())
    for _ in range(20):
        scene.step(scene.hold())
        assert scene.succeeded()


def test_a_seed_makes_a_world() -> None:
    one, other = TableTop(), TableTop()
    one.reset("lift-red", 11)
    drive(one, 20)
    one.reset("lift-red", 11)
    other.reset("place-blue-white", 11)
    assert np.array_equal(one.observe(), other.observe()), "the task changes nothing in the world"
    other.reset("lift-red", 12)
    assert np.abs(one.observe() - other.observe()).max() > 0.01


def test_the_task_may_change_under_way() -> None:
    scene = TableTop()
    scene.reset("lift-red", 5)
    drive(scene, 12)
    before = scene.observe()
    scene.retask("lift-blue")
    assert np.array_equal(scene.observe(), before)
    assert drive(scene, 150) is not None


def test_actions_out_of_bounds_are_clipped() -> None:
    one, other = TableTop(), TableTop()
    for scene, size in ((one, 1.0), (other, 50.0)):
        scene.reset("lift-red", 0)
        scene.step(np.array([size, -size, size, size], np.float32))
    assert np.array_equal(one.observe(), other.observe())


def test_an_observation_has_state_robot_and_pictures() -> None:
    scene = TableTop()
    scene.reset("lift-red", 2)
    observation = observation_of(scene, {"observation/image": "top"}, 64)
    assert observation[STATE_KEY].shape == (20,)
    assert np.array_equal(observation[ROBOT_KEY], observation[STATE_KEY][[0, 1, 2, 6]])
    assert observation["observation/image"].shape == (64, 64, 3)


def test_the_camera_sees_the_red_cube_move() -> None:
    scene = TableTop()
    places = []
    for seed in (0, 1):
        scene.reset("lift-red", seed)
        picture = scene.render("top", 64).astype(int)
        red = (picture[:, :, 0] - picture[:, :, 1:].max(2)) > 60
        assert red.sum() > 6
        rows, columns = np.nonzero(red)
        places.append((columns.mean(), -rows.mean(), *scene.observe()[7:9]))
    (u0, v0, x0, y0), (u1, v1, x1, y1) = places
    assert np.sign(u1 - u0) == np.sign(x1 - x0)
    assert np.sign(v1 - v0) == np.sign(y1 - y0)
