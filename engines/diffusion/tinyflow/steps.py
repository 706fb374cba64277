"""TinyFlow taken apart at its denoising steps, for the step scheduler.

A picture is one row of the network, a clip one row a frame; guidance doubles them. A clip's frames share their noise and differ in the
moment they are shown only, so pictures and clips mix freely in one forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from torch import Tensor

from ...errors import InvalidRequestError, WeightsError
from ...interface import MediaCapabilities
from ...messages import GenerateBody
from ..cache import RowCache, through_blocks
from ..invariant import SIZES, make_rows_independent
from ..passes import ALL, Passes
from .media import MEDIA
from .prompt import understand
from .rasters import border_colour, from_frames, resize, to_frames
from .sampling import euler, guided, noise_levels
from .text import TinyFlowTextEncoder, encode_captions
from .transformer import Condition, TinyFlowTransformer
from .vae import TinyFlowVAE

GUIDANCE = 1.0
"""The default. Captions leave nothing open, so guidance adds cost but no adherence (measured: docs/diffusion-model.md)."""
PREVIEW_SIDE = 128


@dataclass(slots=True)
class _Original:
    """The picture that an edit starts from: its latents, what of each tile may change, and itself for what must stay."""

    latents: Tensor
    tiles: Tensor
    """`[16, 1]` in 0..1."""
    picture: Tensor
    """`[1, 3, 256, 256]`."""
    mask: Tensor | None
    """`[1, 1, 256, 256]`, 1 where it may change; None: everywhere."""


@dataclass(slots=True, kw_only=True)
class TinyFlowSample:
    """One request between its steps; see `step_model.Sample`."""

    steps: int
    seed: int
    frames: int
    fps: float
    size: tuple[int, int]
    revised_prompt: str
    ignored: tuple[str, ...]
    guidance: float
    levels: list[float]
    condition: Condition
    """The rows of `latents`, then, with guidance, the empty caption's."""
    noise: Tensor
    latents: Tensor
    """`[frames, 16, channels]`."""
    clean: Tensor
    """What the last step took for the clean latents."""
    caches: list[RowCache | None]
    original: _Original | None
    step: int = 0
    rows_computed: int = 0
    halves: int = field(init=False)

    def __post_init__(self) -> None:
        self.halves = 1 if self.guidance == 1 else 2


class TinyFlowSteps:
    """A `StepModel` over a folder in the diffusers layout."""

    def __init__(self, folder: Path) -> None:
        """Raises `WeightsError`."""
        from transformers import PreTrainedTokenizerFast

        try:
            self._tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")
            self._text: Any = _ready(TinyFlowTextEncoder.from_pretrained(folder / "text_encoder", dtype=torch.float32))
            self._model: Any = _ready(TinyFlowTransformer.from_pretrained(folder / "transformer", dtype=torch.float32))
            self._vae: Any = _ready(TinyFlowVAE.from_pretrained(folder / "vae", dtype=torch.float32))
        except (OSError, ValueError, SafetensorError) as error:
            raise WeightsError(f"the weights in {folder} cannot be loaded: {error}") from error
        self._tiles, self._channels = self._model.config.grid**2, self._model.config.channels
        self.row_bytes = make_rows_independent(self._model, self._probe())
        """How it is kept that a row's bits do not depend on its batch."""

    def _probe(self) -> Any:
        """The network on a fixed set of rows, for `make_rows_independent`."""
        generator = torch.Generator().manual_seed(0)
        latents = torch.randn(max(SIZES), self._tiles, self._channels, generator=generator)
        condition = self._condition(["a red circle on a white background"] * len(latents), torch.linspace(0, 1, len(latents)))
        levels = torch.linspace(1, 0.1, len(latents))

        def forward(rows: Sequence[int]) -> Tensor:
            index = torch.tensor(list(rows))
            found: Tensor = self._model(latents[index], levels[index], _select(condition, index))
            return found

        return forward

    @property
    def media(self) -> MediaCapabilities:
        return MEDIA

    @torch.inference_mode()
    def _condition(self, captions: Sequence[str], moments: Tensor) -> Condition:
        words, mask = self._text(encode_captions(self._tokenizer, captions))
        condition: Condition = self._model.prepare(words, mask, moments)
        return condition

    @torch.inference_mode()
    def prepare(self, body: GenerateBody) -> TinyFlowSample:
        """See `StepModel`. A negative prompt has no meaning for captions that say everything: it is reported as ignored."""
        _validate(body)
        frames, guidance = body.frames, GUIDANCE if body.guidance is None else body.guidance
        original = self._original(body)
        background = "" if original is None else border_colour(original.picture[0])
        understood = understand(body.prompt, body.seed, frames > 1, background)
        noise = torch.randn(1, self._tiles, self._channels, generator=torch.Generator().manual_seed(body.seed % 2**63))
        noise = noise.expand(frames, -1, -1).clone()
        levels, latents = noise_levels(body.steps or MEDIA.default_steps), noise
        if original is not None:
            left = max(1, round(body.strength * (len(levels) - 1)))
            levels = levels[-left - 1 :]
            latents = (1 - levels[0]) * original.latents + levels[0] * noise
        moments = torch.linspace(0, 1, frames) if frames > 1 else torch.zeros(1)
        captions = [understood.caption] * frames
        if guidance != 1:
            captions, moments = captions + [""] * frames, torch.cat([moments, moments])
        return TinyFlowSample(
            steps=len(levels) - 1,
            seed=body.seed,
            frames=frames,
            fps=MEDIA.fps if body.fps is None else body.fps,
            size=(body.width or MEDIA.sizes[0][0], body.height or MEDIA.sizes[0][1]),
            revised_prompt=understood.caption,
            ignored=understood.ignored + ((body.negative_prompt,) if body.negative_prompt else ()),
            guidance=guidance,
            levels=levels,
            condition=self._condition(captions, moments),
            noise=noise,
            latents=latents,
            clean=torch.zeros_like(latents) if original is None else original.latents.expand_as(latents),
            caches=[RowCache(body.cache) if body.cache else None for _ in captions],
            original=original,
        )

    def _original(self, body: GenerateBody) -> _Original | None:
        if body.image is None:
            return None
        raster = body.image
        frame = np.frombuffer(raster.rgb, np.uint8).reshape(raster.frames, raster.height, raster.width, 3)[:1]
        side = 64 * self._vae.config.upscale
        picture, mask, tiles = from_frames(frame, side, side), None, torch.ones(self._tiles, 1)
        if body.mask is not None:
            bits = np.frombuffer(body.mask, np.uint8).reshape(1, 1, raster.height, raster.width)
            mask = resize(torch.from_numpy(bits.astype(np.float32)) / 255, side, side).clamp(0, 1)
            grid = self._model.config.grid
            tiles = torch.nn.functional.adaptive_max_pool2d(mask, grid).view(-1, 1)
        return _Original(self._vae.encode(resize(picture, 64, 64)), tiles, picture, mask)

    def shape_key(self, sample: TinyFlowSample) -> Hashable:
        """All rows are alike."""
        return "tinyflow"

    def rows(self, sample: TinyFlowSample) -> int:
        return sample.frames * sample.halves

    @torch.inference_mode()
    def advance(self, samples: Sequence[TinyFlowSample], passes: Passes = ALL) -> None:
        """See `StepModel`."""
        latents = torch.cat([sample.latents for sample in samples for _ in range(sample.halves)])
        counts = [self.rows(sample) for sample in samples]
        levels = torch.cat([torch.full((n,), sample.levels[sample.step]) for sample, n in zip(samples, counts, strict=True)])
        condition = _join([sample.condition for sample in samples])
        caches = [cache for sample in samples for cache in sample.caches]
        last = [sample.step + 1 == sample.steps for sample, n in zip(samples, counts, strict=True) for _ in range(n)]
        clean = torch.empty_like(latents)
        computed = torch.zeros(len(latents), dtype=torch.long)
        for part in passes.split(len(latents)):
            rows = torch.arange(part.start, part.stop)
            clean[part], done = self._predict(latents[part], levels[part], _select(condition, rows), caches[part], last[part])
            computed[part.start + torch.tensor(done, dtype=torch.long)] = 1
        results = [self._moved(sample, found) for sample, found in zip(samples, torch.split(clean, counts), strict=True)]
        for sample, (moved, predicted), done_rows in zip(samples, results, torch.split(computed, counts), strict=True):
            sample.latents, sample.clean = moved, predicted
            sample.rows_computed += int(done_rows.sum())
            sample.step += 1

    def _predict(
        self, latents: Tensor, levels: Tensor, condition: Condition, caches: Sequence[RowCache | None], last: Sequence[bool]
    ) -> tuple[Tensor, list[int]]:
        """The predicted clean latents, and the rows that were computed for them."""
        model = self._model
        if not any(caches):
            return model(latents, levels, condition), list(range(len(latents)))
        scaled, skip, scale = model.precondition(latents, levels)
        x, vector, modulation = model.embed(scaled, levels, condition.summary)

        def blocks(part: Tensor, rows: Tensor) -> Tensor:
            chosen = _select(condition, rows)
            for block, keys_values in zip(model.blocks, chosen.keys_values, strict=True):
                part = block(part, modulation[rows], keys_values, chosen.mask)
            return part

        x, computed = through_blocks(x, model.blocks[0].probe(x, modulation), caches, last, blocks)
        return skip + scale * model.head(x, vector), computed

    @staticmethod
    def _moved(sample: TinyFlowSample, found: Tensor) -> tuple[Tensor, Tensor]:
        """One Euler step: the next latents and the clean ones it went towards."""
        clean = found
        if sample.halves == 2:
            conditional, unconditional = found.chunk(2)
            clean = guided(conditional, unconditional, sample.guidance)
        now, then = sample.levels[sample.step], sample.levels[sample.step + 1]
        moved = euler(sample.latents, clean, now, then)
        if sample.original is not None:
            kept = (1 - then) * sample.original.latents + then * sample.noise
            moved = kept + sample.original.tiles * (moved - kept)
        return moved, clean

    @torch.inference_mode()
    def preview(self, sample: TinyFlowSample) -> npt.NDArray[np.uint8]:
        """See `StepModel`; the codec's linear part only."""
        return to_frames(self._vae.decode_linear(sample.clean), PREVIEW_SIDE, PREVIEW_SIDE)

    @torch.inference_mode()
    def decode(self, sample: TinyFlowSample) -> npt.NDArray[np.uint8]:
        """See `StepModel`."""
        pictures = torch.cat([self._vae.decode(latents[None]) for latents in sample.latents])
        if sample.original is not None and sample.original.mask is not None:
            pictures = sample.original.picture + sample.original.mask * (pictures - sample.original.picture)
        return to_frames(pictures, *sample.size)


def _ready(module: Any) -> Any:
    return module.eval().requires_grad_(False)


def _select(condition: Condition, rows: Tensor) -> Condition:
    kept = [(keys[rows], values[rows]) for keys, values in condition.keys_values]
    return Condition(kept, condition.mask[rows], condition.summary[rows])


def _join(conditions: Sequence[Condition]) -> Condition:
    if len(conditions) == 1:
        return conditions[0]
    blocks = zip(*(condition.keys_values for condition in conditions), strict=True)
    joined = [(torch.cat([keys for keys, _ in block]), torch.cat([values for _, values in block])) for block in blocks]
    return Condition(joined, torch.cat([c.mask for c in conditions]), torch.cat([c.summary for c in conditions]))


def _validate(body: GenerateBody) -> None:
    """Raises `InvalidRequestError`."""
    size = (body.width or MEDIA.sizes[0][0], body.height or MEDIA.sizes[0][1])
    if size not in MEDIA.sizes:
        offered = ", ".join(f"{width}x{height}" for width, height in MEDIA.sizes)
        raise InvalidRequestError(f"size {size[0]}x{size[1]} is not offered; this model makes {offered}")
    if not 1 <= body.frames <= MEDIA.max_frames:
        raise InvalidRequestError(f"{body.frames} frames: this model makes 1 to {MEDIA.max_frames}")
    if body.steps is not None and not 1 <= body.steps <= MEDIA.max_steps:
        raise InvalidRequestError(f"{body.steps} steps: this model takes 1 to {MEDIA.max_steps}")
    for name, value, low, high in (
        ("guidance", body.guidance, 1.0, 20.0),
        ("fps", body.fps, 0.1, 120.0),
        ("cache", body.cache, 0.0, 10.0),
        ("strength", body.strength, 1e-3, 1.0),
    ):
        if value is not None and not (math.isfinite(value) and low <= value <= high):
            raise InvalidRequestError(f"{name} is {value}; it must be between {low:g} and {high:g}")
    if body.mask is not None and body.image is None:
        raise InvalidRequestError("a mask without a picture: send the picture that it belongs to")
    if body.image is not None:
        raster = body.image
        pixels = raster.width * raster.height
        if pixels < 1 or raster.frames < 1 or len(raster.rgb) != 3 * pixels * raster.frames:
            raise InvalidRequestError(f"the picture has {len(raster.rgb)} bytes; {raster.width}x{raster.height} needs {3 * pixels}")
        if body.mask is not None and len(body.mask) != pixels:
            raise InvalidRequestError(f"the mask has {len(body.mask)} bytes; {raster.width}x{raster.height} needs {pixels}")
