"""Pictures of a MuJoCo world, drawn off screen and without shadows (ten times as fast on a CPU)."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from .simulation import Picture, RenderError

HELP = "drawing needs OpenGL off screen: install libegl1 and libgl1-mesa-dri, or libosmesa6 with MUJOCO_GL=osmesa"


class Camera:
    """Draws a model's cameras; the renderers are made when first asked for, one for each size."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._renderers: dict[int, Any] = {}

    def picture(self, data: Any, camera: str, size: int) -> Picture:
        """`[size, size, 3]` RGB. Raises `RenderError`."""
        renderer = self._renderers.get(size)
        if renderer is None:
            renderer = self._renderers[size] = self._open(size)
        renderer.update_scene(data, camera)
        drawn: Picture = np.array(renderer.render(), np.uint8)
        return drawn

    def _open(self, size: int) -> Any:
        try:
            renderer = mujoco.Renderer(self._model, size, size)
        except Exception as error:  # each back end has errors of its own
            raise RenderError(f"{HELP} ({type(error).__name__}: {error})") from error
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
        return renderer

    def close(self) -> None:
        """Free what was opened."""
        while self._renderers:
            self._renderers.popitem()[1].close()
