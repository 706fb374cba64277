"""Pictures of a MuJoCo world, drawn off screen and without shadows (ten times as fast on a CPU).

A `Camera` draws a world as it stands, a `Stage` draws it from scenes that were noted: a control loop has no time for pictures that only
people look at.
"""

from __future__ import annotations

import atexit
import copy
from typing import Any

import mujoco
import numpy as np

from .simulation import DRAWING_HELP, Picture, RenderError, Scene, View

LARGEST = 640
"""Pixels of a side."""


class Camera:
    """Draws a model's cameras; the renderers are made when first asked for, one for each size."""

    def __init__(self, model: Any, *, mirrors: bool = True) -> None:
        self._model = model
        self._mirrors = mirrors
        self._renderers: dict[int, Any] = {}

    def picture(self, data: Any, camera: Any, size: int) -> Picture:
        """`[size, size, 3]` RGB, from a camera of the model's (its name) or one of MuJoCo's free ones. Raises `RenderError`."""
        renderer = self._renderers.get(size)
        if renderer is None:
            renderer = self._renderers[size] = self._open(size)
        renderer.update_scene(data, camera)
        drawn: Picture = np.array(renderer.render(), np.uint8)
        return drawn

    def _open(self, size: int) -> Any:
        if getattr(mujoco.gl_context, "GLContext", None) is None:  # its renderer would stumble over that, and again when it is freed
            raise RenderError(f"{DRAWING_HELP} (MUJOCO_GL says that there is none)")
        try:
            renderer = mujoco.Renderer(self._model, size, size)
        except Exception as error:  # each back end has errors of its own
            raise RenderError(f"{DRAWING_HELP} ({type(error).__name__}: {error})") from error
        atexit.register(self.close)  # when the interpreter frees what is left, OpenGL is no longer there
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = self._mirrors
        return renderer

    def close(self) -> None:
        """Free what was opened."""
        atexit.unregister(self.close)
        while self._renderers:
            self._renderers.popitem()[1].close()


class Stage:
    """Draws scenes of a model, for people: with smooth edges where `samples` > 0, without mirrors. All on one thread."""

    def __init__(self, model: Any, *, samples: int = 4) -> None:
        self._model = copy.copy(model)  # what policies see is drawn as ever
        self._model.vis.quality.offsamples = samples
        self._model.vis.global_.offwidth = self._model.vis.global_.offheight = LARGEST
        self._data = mujoco.MjData(self._model)
        self._camera = Camera(self._model, mirrors=False)

    def draw(self, scene: Scene, view: View, size: int) -> Picture:
        """`[size, size, 3]` RGB, at most `LARGEST`. Raises `RenderError`."""
        model, data = self._model, self._data
        if scene.body_pos is not None:
            model.body_pos[:] = scene.body_pos
        data.qpos[:] = scene.qpos
        data.mocap_pos[:] = scene.mocap_pos
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        data.site_xpos[:] = scene.site_xpos
        return self._camera.picture(data, _free(view), size)

    def close(self) -> None:
        """Free what was opened."""
        self._camera.close()


def _free(view: View) -> Any:
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.lookat[:] = view.middle
    camera.distance, camera.azimuth, camera.elevation = view.distance, view.azimuth, view.elevation
    return camera
