"""What a simulated robot offers, whatever simulates it: the control loops, the collectors and the evaluation know no more than this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Action = npt.NDArray[np.float32]
State = npt.NDArray[np.float32]
Picture = npt.NDArray[np.uint8]

DRAWING_HELP = "drawing needs OpenGL off screen: install libegl1 and libgl1-mesa-dri, or libosmesa6 with MUJOCO_GL=osmesa"

STATE_KEY, ROBOT_KEY = "observation/state", "observation/robot"


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A moment of a world, as far as a picture needs it; `rendering.Stage` draws it, at any later time. Arrays as MuJoCo names them."""

    task: str
    qpos: npt.NDArray[np.float64]
    mocap_pos: npt.NDArray[np.float64]
    site_xpos: npt.NDArray[np.float64]
    body_pos: npt.NDArray[np.float64] | None = None
    """Of the model, where episodes move its parts; shared by an episode's scenes."""


@dataclass(frozen=True, slots=True)
class View:
    """Where people look at a world from: what is in the middle of the picture (metres), how far away, and from where (degrees)."""

    middle: tuple[float, float, float]
    distance: float
    azimuth: float
    elevation: float


class Simulation(Protocol):
    """One robot in one world. A seed decides everything that is random in an episode."""

    rate: float
    """Control steps a second."""
    action_dim: int
    tasks: tuple[str, ...]
    """What it can be asked to do, by name."""
    cameras: tuple[str, ...]
    shared_world: bool
    """Do its tasks share a world, so that the task may change under way?"""

    robot: tuple[int, ...]
    """Which numbers of the state are the robot's own, known without seeing the world."""

    def reset(self, task: str, seed: int) -> None:
        """Begin an episode."""

    def retask(self, task: str) -> None:
        """Another task in the world as it stands. Raises `ValueError` where worlds are not shared."""

    def observe(self) -> State:
        """`[S]` float32."""

    def step(self, action: Action) -> None:
        """`[A]`, clipped to the robot's bounds: the world moves on by 1 / `rate` seconds."""

    def succeeded(self) -> bool:
        """Is the task done, as things stand?"""

    def expert(self) -> Action:
        """What who knows the task would do now; depends on the state of the world alone."""

    def hold(self) -> Action:
        """The action that keeps the robot where it is, and what it carries."""

    def render(self, camera: str, size: int) -> Picture:
        """`[size, size, 3]` RGB. Raises `RenderError`."""

    def scene(self) -> Scene:
        """The world as it stands, to be drawn later."""

    def close(self) -> None:
        """Free what belongs to this simulation alone."""


class RenderError(RuntimeError):
    """There is no way to draw: the message says what to install."""


def observation_of(simulation: Simulation, cameras: dict[str, str], size: int) -> dict[str, npt.NDArray[Any]]:
    """An observation as it goes over the wire: `observation/state`, the robot's own part of it (`observation/robot`), and the picture of
    each camera (key -> camera), `[size, size, 3]`."""
    state = simulation.observe()
    found: dict[str, npt.NDArray[Any]] = {STATE_KEY: state, ROBOT_KEY: state[list(simulation.robot)]}
    for key, camera in cameras.items():
        found[key] = simulation.render(camera, size)
    return found
