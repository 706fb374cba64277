"""The bodies of the media routes, as pydantic checks them, and what they become in a job's row.

Everything of OpenAI's bodies is accepted; what has no meaning here is listed as such. Beyond them there are `seed`, `num_inference_steps`,
`guidance_scale`, `negative_prompt` and a few more.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..errors import ApiError
from .forms import unknown_parameters
from .requests import MediaRequest, Output
from .sizes import IMAGE_SIZES, VIDEO_SIZES, plan_length, plan_size
from .target import Target

LONGEST_PROMPT = 32_000
SEEDS = 2**31
QUALITY_STEPS = {"low": 0.5, "high": 1.5, "hd": 1.5, "xhigh": 2.0, "max": 2.0}
"""`quality` as a share of the model's usual number of steps; others: 1."""
FORMAT_QUALITY = 90
"""Of JPEG and WebP, unless the client says otherwise."""


def _storable(text: str) -> str:
    """Text that every database and file takes: no NUL, no half of a surrogate pair."""
    if "\x00" in text:
        raise ValueError("must not contain the character U+0000")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("is no valid Unicode text") from None
    return text


Text = Annotated[str, AfterValidator(_storable)]
Prompt = Annotated[Text, Field(min_length=1, max_length=LONGEST_PROMPT)]
ModelName = Annotated[Text, Field(max_length=200)]


class Sampling(BaseModel):
    """What both kinds may say about how it is made; all of it is ours. None takes the model's own value."""

    model_config = ConfigDict(extra="allow")

    seed: Annotated[int, Field(ge=0, lt=SEEDS)] | None = None
    """The same seed and body give the same picture; none: one is drawn."""
    num_inference_steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    guidance_scale: Annotated[float, Field(ge=0, le=50)] | None = None
    negative_prompt: Annotated[Text, Field(max_length=LONGEST_PROMPT)] | None = None
    cache_threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    """Of the residual cache: 0 is off."""
    strength: Annotated[float, Field(gt=0, le=1)] = 0.6
    """How much of a given picture may change."""
    priority: Annotated[int, Field(ge=-10, le=10)] = 0
    webhook_url: Annotated[Text, Field(max_length=2048)] | None = None
    """Told when the job has ended."""


class Reference(BaseModel):
    """A picture that is not in the body itself: a data URL or the id of an upload."""

    model_config = ConfigDict(extra="ignore")

    image_url: Annotated[Text, Field(max_length=32 * 1024 * 1024)] | None = None
    file_id: Annotated[Text, Field(max_length=200)] | None = None


class VideoBody(Sampling):
    """`POST /v1/videos`. The file `input_reference` of a form is not among the fields."""

    prompt: Prompt
    model: ModelName = ""
    seconds: Annotated[Text, Field(max_length=20)] | int | float | None = None
    size: Annotated[Text, Field(max_length=40)] | None = None
    input_reference: Reference | None = None
    num_frames: Annotated[int, Field(ge=1, le=10_000)] | None = None
    fps: Annotated[float, Field(ge=1, le=60)] | None = None
    previews: Annotated[int, Field(ge=0, le=50)] = 8
    """How often a preview is made while it works."""


class RemixBody(BaseModel):
    """`POST /v1/videos/{id}/remix`."""

    model_config = ConfigDict(extra="ignore")

    prompt: Prompt


class ImageBody(Sampling):
    """`POST /v1/images/generations`."""

    prompt: Prompt
    model: ModelName | None = None
    n: Annotated[int, Field(ge=1, le=10)] | None = None
    size: Annotated[Text, Field(max_length=40)] | None = None
    quality: Literal["low", "medium", "high", "xhigh", "max", "auto", "standard", "hd"] | None = None
    background: Literal["transparent", "opaque", "auto"] | None = None
    output_format: Literal["png", "webp", "jpeg", "gif", "svg"] | None = None
    output_compression: Annotated[int, Field(ge=0, le=100)] | None = None
    response_format: Literal["b64_json", "url"] | None = None
    stream: bool | None = None
    partial_images: Annotated[int, Field(ge=0, le=3)] | None = None
    # Accepted for the sake of stock clients; they have no meaning for models without a moderation or a style of their own.
    style: Literal["vivid", "natural"] | None = None
    moderation: Literal["low", "auto"] | None = None
    user: Annotated[Text, Field(max_length=500)] | None = None
    safety_identifier: Annotated[Text, Field(max_length=500)] | None = None

    @property
    def count(self) -> int:
        return self.n or 1


class EditBody(ImageBody):
    """`POST /v1/images/edits`. The files `image` and `mask` of the form are not among the fields."""

    input_fidelity: Literal["high", "low"] | None = None


def new_seed(chosen: int | None, tenant: str, idempotency_key: str | None) -> int:
    """The seed that was asked for, else one drawn; always the same with an idempotency key, since the request must not change."""
    if chosen is not None:
        return chosen
    if idempotency_key is None:
        return secrets.randbelow(SEEDS)
    return int.from_bytes(hashlib.sha256(f"{tenant}\n{idempotency_key}".encode()).digest()[:4]) % SEEDS


def video_request(body: VideoBody, target: Target, seed: int, *, image: str | None = None) -> MediaRequest:
    """The row's request for a clip. `image` is the id of an upload. Raises a 400 `ApiError`."""
    media = target.media
    plan = plan_size(body.size, media, VIDEO_SIZES)
    seconds = body.seconds if isinstance(body.seconds, str) or body.seconds is None else f"{body.seconds:g}"
    length = plan_length(media, seconds=seconds, frames=body.num_frames, fps=body.fps)
    warnings = unknown_parameters(body)
    if length.slowed:
        rate = f"{length.fps:.3g} instead of {body.fps or media.fps:g} a second"
        warnings.append(f"The model makes at most {media.max_frames} frames: they are shown at {rate}.")
    if image is not None and not media.edits:
        raise ApiError(400, "not_supported", f"The model '{target.lane}' cannot start from a picture.", param="input_reference")
    return MediaRequest(
        prompt=body.prompt,
        negative_prompt=body.negative_prompt or "",
        width=plan.drawn_width,
        height=plan.drawn_height,
        frames=length.frames,
        fps=None,
        steps=_steps(body, target),
        guidance=body.guidance_scale,
        seed=seed,
        cache=body.cache_threshold,
        previews=body.previews if media.previews else 0,
        strength=body.strength,
        image=image,
        mask=None,
        n=1,
        output=Output(format="mp4", width=plan.width, height=plan.height, fps=length.fps, quality=FORMAT_QUALITY),
        size=plan.size,
        seconds=length.seconds,
        warnings=warnings,
        extra={},
    )


def image_request(body: ImageBody, target: Target, seed: int, *, image: str | None = None, mask: str | None = None) -> MediaRequest:
    """The row's request for pictures. `image` and `mask` are ids of uploads. Raises a 400 `ApiError`."""
    media = target.media
    if body.background == "transparent":
        raise ApiError(400, "not_supported", f"The model '{target.lane}' draws no transparency.", param="background")
    output_format = body.output_format or "png"
    if output_format == "gif" or output_format == "svg":
        raise ApiError(400, "not_supported", f"Pictures are made as png, webp or jpeg, not {output_format}.", param="output_format")
    if image is not None and not media.edits:
        raise ApiError(400, "not_supported", f"The model '{target.lane}' cannot start from a picture.", param="image")
    plan = plan_size(body.size, media, IMAGE_SIZES)
    warnings = unknown_parameters(body)
    if (body.partial_images or 0) > 0 and not media.previews:
        warnings.append(f"The model '{target.lane}' shows no partial images.")
    quality = {None: "medium", "auto": "medium", "standard": "medium", "hd": "high"}.get(body.quality, body.quality)
    extra: dict[str, Any] = {"quality": quality, "response_format": body.response_format or "b64_json"}
    if body.safety_identifier or body.user:
        extra["safety_identifier"] = body.safety_identifier or body.user
    return MediaRequest(
        prompt=body.prompt,
        negative_prompt=body.negative_prompt or "",
        width=plan.drawn_width,
        height=plan.drawn_height,
        frames=1,
        fps=None,
        steps=_steps(body, target, QUALITY_STEPS.get(body.quality or "", 1.0)),
        guidance=body.guidance_scale,
        seed=seed,
        cache=body.cache_threshold,
        previews=body.partial_images or 0 if media.previews else 0,
        strength=body.strength,
        image=image,
        mask=mask,
        n=body.count,
        output=Output(
            format=output_format,
            width=plan.width,
            height=plan.height,
            fps=media.fps,
            quality=FORMAT_QUALITY if body.output_compression is None else max(1, body.output_compression),
        ),
        size=plan.size,
        seconds="",
        warnings=warnings,
        extra=extra,
    )


def _steps(body: Sampling, target: Target, share: float = 1.0) -> int | None:
    """The number of steps; None is the model's own. Raises a 400 `ApiError` for more than it takes."""
    media = target.media
    if body.num_inference_steps is None:
        return None if share == 1.0 else max(1, min(media.max_steps, round(media.default_steps * share)))
    if body.num_inference_steps > media.max_steps:
        message = f"The model '{target.lane}' takes at most {media.max_steps} steps."
        raise ApiError(400, "invalid_value", message, param="num_inference_steps")
    return body.num_inference_steps
