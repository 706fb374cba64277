"""A request as the arguments of the pipeline's own `__call__`. What the pipeline cannot do is refused, with the name of the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InvalidRequestError
from ...interface import MediaCapabilities
from ...messages import GenerateBody, Raster
from .facts import FRAMES

_RATES = ("frame_rate", "fps")
_DEFAULT_STRENGTH = GenerateBody(prompt="").strength


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A request that was checked. `kind` is "text", "image" or "mask"; `image` `[height, width, 3]`, `mask` `[height, width]` as given."""

    body: GenerateBody
    kind: str
    width: int | None
    height: int | None
    steps: int
    fps: float
    image: npt.NDArray[np.uint8] | None = None
    mask: npt.NDArray[np.uint8] | None = None


def plan_of(body: GenerateBody, media: MediaCapabilities) -> Plan:
    """Check a request against what the model makes. Raises `InvalidRequestError`, its message beginning with the field's name."""
    image = _picture(body.image) if body.image is not None else None
    mask = _mask(body, image)
    if image is not None and not media.edits:
        raise InvalidRequestError("image: this model makes nothing from a picture")
    width, height = _size(body, media, image)
    _check_frames(body.frames, media)
    steps = media.default_steps if body.steps is None else body.steps
    if not 1 <= steps <= media.max_steps:
        raise InvalidRequestError(f"steps: must lie between 1 and {media.max_steps}, not {steps}")
    if body.guidance is not None and not (math.isfinite(body.guidance) and body.guidance >= 0):
        raise InvalidRequestError(f"guidance: must be a number from 0 on, not {body.guidance}")
    if body.fps is not None and not 0 < body.fps <= 240:
        raise InvalidRequestError(f"fps: must lie between 0 and 240, not {body.fps}")
    if not 0 < body.strength <= 1:
        raise InvalidRequestError(f"strength: must be more than 0 and at most 1, not {body.strength}")
    if not 0 <= body.seed < 2**63:
        raise InvalidRequestError(f"seed: must lie between 0 and 2^63 - 1, not {body.seed}")
    if body.cache is not None and not (math.isfinite(body.cache) and body.cache >= 0):
        raise InvalidRequestError(f"cache: must be a number from 0 on, not {body.cache}")
    if body.previews < 0:
        raise InvalidRequestError(f"previews: must not be negative: {body.previews}")
    if body.previews and not media.previews:
        raise InvalidRequestError("previews: this model's latents cannot be shown while they are made")
    return Plan(
        body=body,
        kind="text" if image is None else ("image" if mask is None else "mask"),
        width=width,
        height=height,
        steps=steps,
        fps=body.fps or media.fps,
        image=image,
        mask=mask,
    )


def _picture(raster: Raster) -> npt.NDArray[np.uint8]:
    if raster.frames != 1 or raster.width < 1 or raster.height < 1 or len(raster.rgb) != 3 * raster.width * raster.height:
        raise InvalidRequestError(
            f"image: must be one picture; {len(raster.rgb)} bytes are not {raster.frames} of {raster.width}x{raster.height}"
        )
    return np.frombuffer(raster.rgb, np.uint8).reshape(raster.height, raster.width, 3)


def _mask(body: GenerateBody, image: npt.NDArray[np.uint8] | None) -> npt.NDArray[np.uint8] | None:
    if body.mask is None:
        return None
    if image is None:
        raise InvalidRequestError("mask: there is no image that it could belong to")
    height, width, _ = image.shape
    if len(body.mask) != height * width:
        raise InvalidRequestError(f"mask: must be as large as the image, {width}x{height} = {height * width} bytes, not {len(body.mask)}")
    return np.frombuffer(body.mask, np.uint8).reshape(height, width)


def _size(body: GenerateBody, media: MediaCapabilities, image: npt.NDArray[np.uint8] | None) -> tuple[int | None, int | None]:
    """The size to make; a pair of None: the pipeline's own."""
    for name, side in (("width", body.width), ("height", body.height)):
        if side is not None and side < 1:
            raise InvalidRequestError(f"{name}: must be at least 1, not {side}")
    if media.sizes:
        return _listed(body.width, body.height, media.sizes)
    if body.width is None and body.height is None:
        return (None, None) if image is None else _near(image, media)
    if body.width is None or body.height is None:
        name = "width" if body.width is None else "height"
        raise InvalidRequestError(f"{name}: must be given together with the other side")
    for name, side in (("width", body.width), ("height", body.height)):
        if side % media.multiple:
            raise InvalidRequestError(f"{name}: must be a multiple of {media.multiple}, not {side}")
        if side > media.max_side:
            raise InvalidRequestError(f"{name}: must be at most {media.max_side}, not {side}")
    return body.width, body.height


def _listed(width: int | None, height: int | None, sizes: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    for size in sizes:
        if width in (None, size[0]) and height in (None, size[1]):
            return size
    name, side = ("width", width) if all(size[0] != width for size in sizes) and width is not None else ("height", height)
    known = ", ".join(f"{width}x{height}" for width, height in sizes)
    raise InvalidRequestError(f"{name}: {side} is not a size that this model makes; it makes {known}")


def _near(image: npt.NDArray[np.uint8], media: MediaCapabilities) -> tuple[int, int]:
    """The size nearest to a picture's own that the model makes."""
    height, width, _ = image.shape
    scale = min(1.0, media.max_side / max(width, height))
    wide, high = (max(1, round(side * scale / media.multiple)) * media.multiple for side in (width, height))
    return wide, high


def _check_frames(frames: int, media: MediaCapabilities) -> None:
    if frames < 1 or frames > media.max_frames:
        raise InvalidRequestError(f"frames: must lie between 1 and {media.max_frames}, not {frames}")
    if frames == 1 and not media.pictures:
        raise InvalidRequestError("frames: this model makes clips only, not pictures")
    if (frames - 1) % media.frame_step:
        below = (frames - 1) // media.frame_step * media.frame_step + 1
        nearest = f"{below} or {below + media.frame_step}" if below + media.frame_step <= media.max_frames else str(below)
        raise InvalidRequestError(f"frames: a clip of this model has {media.frame_step}k + 1 frames, not {frames}; {nearest} would do")


@dataclass(frozen=True, slots=True)
class Call:
    """Builds the arguments for one pipeline object, whose call takes `parameters`; `fixed` are the configuration's."""

    name: str
    parameters: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    guidance: float | None = None

    def arguments(self, plan: Plan, default_size: tuple[int, int] | None, picture: Callable[[Any], Any]) -> dict[str, Any]:
        """The arguments for a request but its generator and callbacks.

        `default_size` is the pipeline's own size where the signature does not tell it; `picture` turns an array into what diffusers
        takes for a picture. Raises `InvalidRequestError`.
        """
        body = plan.body
        arguments: dict[str, Any] = {**self.fixed, "num_inference_steps": plan.steps, "output_type": "np"}
        self._put(arguments, "prompt", ("prompt",), body.prompt)
        if body.negative_prompt:
            self._put(arguments, "negative_prompt", ("negative_prompt",), body.negative_prompt)
        guidance = self.guidance if body.guidance is None else body.guidance
        if guidance is not None:
            self._put(arguments, "guidance", self._guidance(), guidance)
        self._put_frames(arguments, plan)
        size = self.size(plan, default_size)
        if plan.image is not None:
            self._put_image(arguments, plan, size, picture)
        if size is not None and self._sized:
            arguments |= {"width": size[0], "height": size[1]}
        return {name: value for name, value in arguments.items() if name in self.parameters}

    def size(self, plan: Plan, default_size: tuple[int, int] | None) -> tuple[int, int] | None:
        """(width, height) to make; None: the pipeline knows, and takes no other. Raises `InvalidRequestError`."""
        if plan.width is not None and plan.height is not None:
            if not self._sized and plan.image is None:
                raise InvalidRequestError(f"width: {self.name} makes pictures of its own size only")
            return plan.width, plan.height
        if not self._sized:
            return None
        sides = [getattr(self.parameters[name], "default", None) for name in ("width", "height")]
        if all(isinstance(side, int) for side in sides):
            return sides[0], sides[1]  # type: ignore[return-value]
        if default_size is None:
            raise InvalidRequestError(f"width: {self.name} has no size of its own; say width and height")
        return default_size

    @property
    def _sized(self) -> bool:
        return "width" in self.parameters and "height" in self.parameters

    def _put(self, arguments: dict[str, Any], field: str, names: tuple[str, ...], value: Any) -> None:
        """Add an argument under the first of `names` that the call takes, or refuse the request's `field`."""
        name = next((name for name in names if name in self.parameters), None)
        if name is None:
            if value == "":
                return
            raise InvalidRequestError(f"{field}: {self.name} takes none")
        arguments[name] = value

    def _guidance(self) -> tuple[str, ...]:
        # In Qwen-Image `guidance_scale` belongs to distilled models that do not exist yet; its guidance is the other one.
        return ("true_cfg_scale", "guidance_scale") if self.name.startswith("QwenImage") else ("guidance_scale", "true_cfg_scale")

    def _put_frames(self, arguments: dict[str, Any], plan: Plan) -> None:
        name = next((name for name in FRAMES if name in self.parameters), None)
        if name is None:
            if plan.body.frames != 1:
                raise InvalidRequestError(f"frames: {self.name} makes single pictures only")
            return
        arguments[name] = plan.body.frames
        rate = next((name for name in _RATES if name in self.parameters), None)
        if rate is not None and rate not in self.fixed:
            arguments[rate] = round(plan.fps) if rate == "fps" else plan.fps

    def _put_image(self, arguments: dict[str, Any], plan: Plan, size: tuple[int, int] | None, picture: Callable[[Any], Any]) -> None:
        """The picture to start from, resized here: not every pipeline does it."""
        if plan.image is None or size is None:
            return
        self._put(arguments, "image", ("image",), picture(plan.image).resize(size))
        if plan.mask is not None:
            self._put(arguments, "mask", ("mask_image",), picture(plan.mask).resize(size, 0))  # 0: nearest, a mask has no greys
        if "strength" in self.parameters:
            arguments["strength"] = plan.body.strength
        elif plan.body.strength != _DEFAULT_STRENGTH:
            raise InvalidRequestError(f"strength: {self.name} takes none")
