"""A table-top scene in MuJoCo where only the instruction says what to do.

A suction gantry, three coloured cubes and two coloured pads, all in random places. Every task shares every scene, so a policy that does
not read its instruction cannot succeed. 20.8 control steps a second; an action is (dx, dy, dz) in units of 2 cm, and suction (> 0: on).
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib.resources import files
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from .rendering import Camera, Stage
from .simulation import Action, Picture, Scene, State
from .tabletop_goals import CUBES, GOALS, PADS, Goal

SUBSTEPS = 12
STEP = 0.02
"""Metres of a whole action."""
BASE = np.array([0.0, 0.0, 0.2])
LOW, HIGH = np.array([-0.3, -0.3, -0.19]), np.array([0.3, 0.3, 0.1])
APART = 0.085
"""Metres at least between two things on the table at the start."""
CARRY, LIFTED, LIFT_TO = 0.13, 0.15, 0.2
"""Heights in metres: of the tip that carries; of a cube that counts as lifted; of the tip that lifts."""

Vector = npt.NDArray[np.float64]


@lru_cache(maxsize=1)
def _model() -> Any:
    """The scene, compiled once and shared by all of its simulations."""
    return mujoco.MjModel.from_xml_string(files(__package__).joinpath("tabletop.xml").read_text())


@lru_cache(maxsize=1)
def _camera() -> Camera:
    """One for all simulations of a process: a renderer takes any of their worlds, and a hundred OpenGL contexts would be many."""
    return Camera(_model())


def stage(task: str) -> Stage:
    """Draws scenes; those of every task."""
    return Stage(_model())


class TableTop:
    """See the module's docstring and `simulation.Simulation`.

    The state `[20]`: tip (3), its movement in the last step (3), suction, each cube (3 x 3), each pad (2 x 2), in metres.
    """

    rate = 1 / (0.004 * SUBSTEPS)
    action_dim = 4
    tasks: tuple[str, ...] = tuple(GOALS)
    cameras: tuple[str, ...] = ("front", "top")
    shared_world = True
    robot: tuple[int, ...] = (0, 1, 2, 6)

    def __init__(self) -> None:
        self._model = _model()
        self._data = mujoco.MjData(self._model)
        self._goal = next(iter(GOALS.values()))
        model = self._model
        self._cube_at = {cube: model.joint(model.body(cube).jntadr[0]).qposadr[0] for cube in CUBES}
        self._tip_at = model.joint("tx").qposadr[0]
        self._body = {name: model.body(name).id for name in (*CUBES, "tip")}
        self._suction = 0.0
        self._before = self._tip()

    # ---- the world --------------------------------------------------------------------------------------------------

    def reset(self, task: str, seed: int) -> None:
        self._goal = GOALS[task]
        random = np.random.default_rng(seed)
        data = self._data
        mujoco.mj_resetData(self._model, data)
        places = _places(random, len(CUBES) + len(PADS))
        for cube, place in zip(CUBES, places, strict=False):
            at = self._cube_at[cube]
            data.qpos[at : at + 7] = [*place, 0.02, 1, 0, 0, 0]
        for index, place in enumerate(places[len(CUBES) :]):
            data.mocap_pos[index] = [*place, 0.001]
        tip = random.uniform([-0.2, -0.2, -0.06], [0.2, 0.2, 0.05])
        data.qpos[self._tip_at : self._tip_at + 3] = tip
        data.ctrl[:3] = tip
        data.ctrl[3] = self._suction = 0.0
        mujoco.mj_forward(self._model, data)
        mujoco.mj_step(self._model, data, 10)
        self._before = self._tip()

    def retask(self, task: str) -> None:
        self._goal = GOALS[task]

    def observe(self) -> State:
        tip = self._tip()
        cubes = [self._cube(cube) for cube in CUBES]
        return np.concatenate([tip, tip - self._before, [self._suction], *cubes, *self._data.mocap_pos[:, :2]]).astype(np.float32)

    def step(self, action: Action) -> None:
        move = np.clip(action, -1, 1)
        self._before = self._tip()
        self._data.ctrl[:3] = np.clip(self._before - BASE + move[:3] * STEP, LOW, HIGH)
        self._suction = float(move[3] > 0)
        self._data.ctrl[3] = self._suction
        mujoco.mj_step(self._model, self._data, SUBSTEPS)

    def succeeded(self) -> bool:
        return self._fulfils(self._goal)

    def _fulfils(self, goal: Goal) -> bool:
        cube = self._cube(goal.cube)
        if goal.kind == "lift":
            return bool(cube[2] > LIFTED)
        pad = self._pad(goal.pad)
        return bool(math.hypot(*(cube[:2] - pad)) < 0.03 and cube[2] < 0.03 and self._suction == 0)

    def hold(self) -> Action:
        return np.array([0, 0, 0, 1 if self._suction else -1], np.float32)

    def render(self, camera: str, size: int) -> Picture:
        return _camera().picture(self._data, camera, size)

    def scene(self) -> Scene:
        data = self._data
        return Scene(self._goal.name, data.qpos.copy(), data.mocap_pos.copy(), data.site_xpos.copy())

    def close(self) -> None:
        """Nothing is this simulation's alone."""

    def _tip(self) -> Vector:
        found: Vector = self._data.xpos[self._body["tip"]].copy()
        return found

    def _cube(self, cube: str) -> Vector:
        found: Vector = self._data.xpos[self._body[cube]].copy()
        return found

    def _pad(self, pad: str) -> Vector:
        found: Vector = self._data.mocap_pos[PADS.index(pad), :2].copy()
        return found

    # ---- who knows how ----------------------------------------------------------------------------------------------

    def expert(self) -> Action:
        goal = self._goal
        tip, cube = self._tip(), self._cube(goal.cube)
        top = cube[2] + 0.02
        aside, above = math.hypot(*(tip[:2] - cube[:2])), tip[2] - top
        if goal.kind == "place" and self._fulfils(goal):
            return _towards(tip, np.array([tip[0], tip[1], 0.16]), False)
        if self._suction and aside < 0.03 and abs(above) < 0.02:
            return self._carry(goal, tip, cube)
        if aside > 0.01:
            if above <= 0.02:
                return _towards(tip, np.array([tip[0], tip[1], top + 0.06]), False)
            height = max(top + 0.05, 0.1) if aside > 0.04 else top + 0.05
            return _towards(tip, np.array([cube[0], cube[1], height]), False)
        return _towards(tip, np.array([cube[0], cube[1], top - 0.004]), above < 0.01)

    def _carry(self, goal: Goal, tip: Vector, cube: Vector) -> Action:
        """The cube hangs on the tip: up with it, or over the pad and down."""
        if goal.kind == "lift":
            return _towards(tip, np.array([tip[0], tip[1], LIFT_TO]), True)
        pad = self._pad(goal.pad)
        away = math.hypot(*(cube[:2] - pad))
        over = tip[:2] + (pad - cube[:2])
        if away < 0.012:
            return _towards(tip, np.array([*over, 0.043]), cube[2] >= 0.0235)
        if tip[2] > 0.1 or away < 0.05:
            return _towards(tip, np.array([*over, CARRY]), True)
        return _towards(tip, np.array([tip[0], tip[1], CARRY]), True)


def _towards(tip: Vector, target: Vector, suction: bool) -> Action:
    """Seven tenths of the way in one step, as far as a step goes."""
    move = np.clip((target - tip) * (0.7 / STEP), -1, 1)
    return np.append(move, 1 if suction else -1).astype(np.float32)


def _places(random: np.random.Generator, count: int) -> list[Vector]:
    """Points on the table, none too near to another."""
    places: list[Vector] = []
    while len(places) < count:
        place = random.uniform([-0.22, -0.16], [0.22, 0.2])
        if all(math.hypot(*(place - other)) > APART for other in places):
            places.append(place)
    return places
