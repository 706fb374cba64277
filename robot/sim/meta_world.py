"""Meta-World's arm and tasks (Yu et al. 2019; package `metaworld`, MIT), with its scripted experts.

The state `[39]` holds the hand, the things on the table, the same a step earlier, and the goal: it gives the task away, whatever the
instruction says. An action is (dx, dy, dz) in units of 1 cm, and the gripper's force (> 0: close).
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

import mujoco
import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP

from .meta_world_words import TASKS
from .rendering import Camera, Stage
from .simulation import Action, Picture, Scene, State


class MetaWorld:
    """See the module's docstring and `simulation.Simulation`. Each task has a world of its own; the one last asked for is kept."""

    rate = 20.0
    """Steps a second that robots are paced at. Meta-World itself knows no clock; a step is 12.5 ms of its physics."""
    action_dim = 4
    tasks: tuple[str, ...] = tuple(TASKS)
    cameras: tuple[str, ...] = ("corner", "corner2", "corner3", "topview", "gripperPOV")
    shared_world = False
    robot: tuple[int, ...] = (0, 1, 2, 3)

    def __init__(self) -> None:
        self._task = ""
        self._env: Any = None
        self._expert: Any = None
        self._camera: Camera | None = None
        self._state = np.zeros(39)
        self._succeeded = False
        self._grip = -1.0
        self._places: Any = None

    def reset(self, task: str, seed: int) -> None:
        if task != self._task:
            self.close()
            self._env = _world(f"{task}-v3")
            maker: Any = ENV_POLICY_MAP[f"{task}-v3"]
            self._expert = maker()
            self._camera = Camera(self._env.model)
            self._task = task
        self._env.seed(seed)
        self._state, _ = self._env.reset()
        self._places = self._env.model.body_pos.copy()
        self._succeeded = False
        self._grip = -1.0

    def retask(self, task: str) -> None:
        raise ValueError(f"Meta-World's tasks have worlds of their own; {task!r} needs a reset")

    def observe(self) -> State:
        return self._state.astype(np.float32)

    def step(self, action: Action) -> None:
        move = np.clip(action, -1, 1).astype(np.float32)
        self._grip = float(move[3])
        self._state, _, _, _, told = self._env.step(move)
        self._succeeded = bool(told["success"] > 0.5)

    def succeeded(self) -> bool:
        return self._succeeded

    def expert(self) -> Action:
        action: Action = np.clip(self._expert.get_action(self._state), -1, 1).astype(np.float32)
        return action

    def hold(self) -> Action:
        return np.array([0, 0, 0, self._grip], np.float32)

    def render(self, camera: str, size: int) -> Picture:
        assert self._camera is not None
        return self._camera.picture(self._env.data, camera, size)

    def scene(self) -> Scene:
        data = self._env.data
        return Scene(self._task, data.qpos.copy(), data.mocap_pos.copy(), data.site_xpos.copy(), self._places)

    def close(self) -> None:
        if self._camera is not None:
            self._camera.close()
        if self._env is not None:
            self._env.close()
        self._env = self._camera = None
        self._task = ""


def stage(task: str) -> Stage:
    """Draws scenes of a task. Without smooth edges, which cost more than all the rest here."""
    world = _world(f"{task}-v3")
    try:
        return Stage(world.model, samples=0)
    finally:
        world.close()


def _world(name: str) -> Any:
    """An environment whose state shows the goal and whose seeds decide its places."""
    env = _shared_class(name)()
    env._partially_observable = False
    env.__dict__.pop("sawyer_observation_space", None)  # computed and kept while goals were hidden: it would clip them to zero
    env._freeze_rand_vec = False
    env.seeded_rand_vec = True
    env._set_task_called = True
    env.reset()
    return env


@lru_cache(maxsize=len(TASKS))
def _shared_class(name: str) -> Any:
    """The environment's class, compiling its model once for all of its instances (each has a copy: they move its parts about)."""
    base: Any = ALL_V3_ENVIRONMENTS[name]
    compiled: list[Any] = []

    class Shared(base):  # type: ignore[misc]  # known when it is imported
        def _initialize_simulation(self) -> Any:
            if not compiled:
                compiled.append(mujoco.MjModel.from_xml_path(self.fullpath))
            model = copy.copy(compiled[0])
            model.vis.global_.offwidth = self.width
            model.vis.global_.offheight = self.height
            return model, mujoco.MjData(model)

    return Shared
