"""What a pipeline can make, told by its JSON files alone: the gateway has to know it without loading torch, or a single weight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import EngineError
from ...interface import MediaCapabilities
from .options import DiffusersOptions
from .source import INDEX, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What the makers of a family of models made them for. `frames` 1: pictures."""

    steps: int
    side: int
    frames: int = 1
    fps: float = 8.0
    edits: bool = False


# The first name that the pipeline's class begins with. Frames, rates and steps are the defaults of the published pipelines.
FAMILIES: dict[str, Family] = {
    "Wan": Family(steps=50, side=1280, frames=81, fps=16),
    "SkyReels": Family(steps=50, side=1280, frames=97, fps=24),
    "LTX": Family(steps=50, side=1280, frames=121, fps=25),
    "CogVideoX": Family(steps=50, side=1360, frames=49, fps=8),
    "HunyuanVideo": Family(steps=50, side=1280, frames=121, fps=24),
    "Mochi": Family(steps=64, side=848, frames=85, fps=30),
    "Allegro": Family(steps=100, side=1280, frames=88, fps=15),
    "AnimateDiff": Family(steps=50, side=1024, frames=16, fps=8),
    "Latte": Family(steps=50, side=512, frames=16, fps=8),
    "EasyAnimate": Family(steps=50, side=1280, frames=49, fps=8),
    "StableVideoDiffusion": Family(steps=25, side=1024, frames=25, fps=7),
    "TextToVideo": Family(steps=50, side=1024, frames=16, fps=8),
    "Cosmos2TextToImage": Family(steps=35, side=1360),
    "Cosmos": Family(steps=36, side=1280, frames=121, fps=30),
    "SanaVideo": Family(steps=50, side=1280, frames=81, fps=16),
    "Kandinsky5T2V": Family(steps=50, side=1280, frames=121, fps=24),
    "Kandinsky5I2V": Family(steps=50, side=1280, frames=121, fps=24),
    "FluxKontext": Family(steps=28, side=2048, edits=True),
    "Flux2": Family(steps=50, side=2048),
    "Flux": Family(steps=28, side=2048, edits=True),
    "StableDiffusion3": Family(steps=28, side=2048, edits=True),
    "StableDiffusionXL": Family(steps=50, side=2048, edits=True),
    "StableDiffusion": Family(steps=50, side=1024, edits=True),
    "QwenImage": Family(steps=50, side=2048, edits=True),
    "Chroma": Family(steps=35, side=2048, edits=True),
    "PixArt": Family(steps=20, side=2048),
    "Sana": Family(steps=20, side=4096),
}
_PICTURES = Family(steps=30, side=2048)
_CLIPS = Family(steps=50, side=1280, frames=49)
_START_FROM_A_PICTURE = ("Img2Img", "Inpaint", "Edit", "Kontext", "Fill", "ImageToVideo", "Image2Video", "I2V")

FRAMES = ("num_frames", "video_length")
"""What pipelines call the number of frames."""
_PREVIEWED = (
    "AutoencoderKL",
    "AutoencoderTiny",
    "AutoencoderKLWan",
    "AutoencoderKLQwenImage",
    "AutoencoderKLLTXVideo",
    "AutoencoderKLCogVideoX",
)
"""Latent codecs whose latents `previews` can turn into a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`pipeline` is its class's name; `missing` are parts that the folder leaves out on purpose."""

    pipeline: str
    parts: tuple[str, ...]
    missing: tuple[str, ...]
    media: MediaCapabilities


def read_facts(source: Source, options: DiffusersOptions) -> Facts:
    """The facts of a pipeline, corrected by the options. Raises `EngineError`."""
    index = source.read(INDEX) or {}
    name = index.get("_class_name")
    pipeline = str(name[1] if isinstance(name, list) and len(name) > 1 else name or "DiffusionPipeline")
    parts = {part: entry for part, entry in index.items() if not part.startswith("_") and isinstance(entry, list) and len(entry) == 2}
    missing = tuple(part for part, entry in parts.items() if entry == [None, None])
    present = tuple(part for part in parts if part not in missing)
    vae = source.config("vae") if "vae" in present else {}
    denoiser = next((source.config(part) for part in ("transformer", "unet") if part in present), {})
    return Facts(pipeline=pipeline, parts=present, missing=missing, media=_media(family_of(pipeline), pipeline, vae, denoiser, options))


def family_of(pipeline: str) -> Family:
    """The family that a pipeline's class belongs to, by its name."""
    for beginning, family in FAMILIES.items():
        if pipeline.startswith(beginning):
            return family
    return _CLIPS if any(sign in pipeline for sign in ("Video", "T2V", "I2V")) else _PICTURES


def _media(family: Family, pipeline: str, vae: dict[str, Any], denoiser: dict[str, Any], options: DiffusersOptions) -> MediaCapabilities:
    clips = family.frames > 1 or options.max_frames > 1 or options.default_frames > 1
    step = options.frame_step or (frame_step(vae) if clips else 1)
    frames = options.default_frames or (family.frames - 1) // step * step + 1
    if (frames - 1) % step:
        raise EngineError(
            f"default_frames: clips of {pipeline} have a multiple of {step} plus one frames, not {frames}", code="invalid_configuration"
        )
    edits = family.edits or any(sign in pipeline for sign in _START_FROM_A_PICTURE)
    return MediaCapabilities(
        sizes=options.sizes,
        multiple=options.multiple or size_multiple(vae, denoiser),
        max_side=options.max_side or max((side for size in options.sizes for side in size), default=family.side),
        pictures=not clips or options.pictures,
        max_frames=options.max_frames or 2 * (frames - 1) + 1,
        frame_step=step,
        fps=float(options.fps or family.fps),
        default_frames=frames,
        default_steps=min(options.steps or family.steps, options.max_steps),
        max_steps=options.max_steps,
        edits=edits if options.edits is None else options.edits,
        previews=vae.get("_class_name") in _PREVIEWED and not vae.get("timestep_conditioning"),
    )


def refined(media: MediaCapabilities, options: DiffusersOptions, parameters: Mapping[str, Any], scale: int | None) -> MediaCapabilities:
    """The capabilities with what the loaded pipeline adds: the defaults of its call, and `scale`, frames to a latent. The options stay."""
    steps = getattr(parameters.get("num_inference_steps"), "default", None)
    if not options.steps and isinstance(steps, int):
        media = replace(media, default_steps=min(steps, media.max_steps))
    if not any(name in parameters for name in FRAMES):
        return replace(media, max_frames=1, default_frames=1, frame_step=1, pictures=True)
    step = options.frame_step or scale or media.frame_step
    frames = options.default_frames or (media.default_frames - 1) // step * step + 1
    return replace(media, frame_step=step, default_frames=frames, max_frames=max(frames, media.max_frames))


def spatial_scale(vae: dict[str, Any]) -> int:
    """Pixels to a latent, along a side, from the configuration of the latent codec."""
    for key in ("scale_factor_spatial", "spatial_compression_ratio"):
        if vae.get(key):
            return int(vae[key])
    if vae.get("spatio_temporal_scaling"):
        return int(vae.get("patch_size") or 1) * int(2 ** sum(bool(scaled) for scaled in vae["spatio_temporal_scaling"]))
    if vae.get("spatial_expansions"):
        return math.prod(int(factor) for factor in vae["spatial_expansions"])
    for key in ("dim_mult", "encoder_block_out_channels", "block_out_channels"):
        if vae.get(key):
            return int(2 ** (len(vae[key]) - 1))
    return 8


def frame_step(vae: dict[str, Any]) -> int:
    """Frames to a latent, after the first, from the configuration of the latent codec: 4 for Wan's, 8 for LTX's."""
    for key in ("scale_factor_temporal", "temporal_compression_ratio"):
        if vae.get(key):
            return int(vae[key])
    if vae.get("temperal_downsample"):
        return int(2 ** sum(bool(halved) for halved in vae["temperal_downsample"]))
    if vae.get("spatio_temporal_scaling"):
        return int(vae.get("patch_size_t") or 1) * int(2 ** sum(bool(scaled) for scaled in vae["spatio_temporal_scaling"]))
    if vae.get("temporal_expansions"):
        return math.prod(int(factor) for factor in vae["temporal_expansions"])
    return 1


def size_multiple(vae: dict[str, Any], denoiser: dict[str, Any]) -> int:
    """What widths and heights must be multiples of: the codec's scale times the patch that the denoiser takes, or that its latents are
    packed in (Flux and its kin: two by two)."""
    patch = denoiser.get("patch_size") or 1
    patch = max(int(side) for side in (patch[-2:] if isinstance(patch, list) else [patch]))
    latent_channels = vae.get("latent_channels") or vae.get("z_dim") or 0
    packed = 2 if latent_channels and denoiser.get("in_channels") == 4 * latent_channels else 1
    return spatial_scale(vae) * max(patch, packed)
