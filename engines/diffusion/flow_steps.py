"""Stock rectified-flow pipelines of diffusers, taken apart at their steps (`flow_parts` says which)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline, FlowMatchEulerDiscreteScheduler
from torch import Tensor

from ..errors import EngineError, InvalidRequestError, WeightsError
from ..messages import GenerateBody
from .flow_parts import GUIDANCE, PARTS, Condition, Parts, Size
from .invariant import SIZES, make_rows_independent
from .passes import ALL, Passes
from .pipelines.facts import read_facts
from .pipelines.options import DiffusersOptions
from .pipelines.source import Source
from .step_model import Frames

_OTHER_SCHEDULES = ("stochastic_sampling", "invert_sigmas")


@dataclass(eq=False, slots=True, kw_only=True)
class FlowSample:
    """A picture on its way. `levels` are the noise levels before and after each step."""

    latents: Tensor
    halves: list[Condition]
    levels: list[float]
    guidance: float
    size: Size
    seed: int
    revised_prompt: str
    clean: Tensor | None = None
    step: int = 0
    rows_computed: int = 0
    ignored: tuple[str, ...] = ()
    frames: int = 1
    fps: float = 8.0
    steps: int = field(init=False)

    def __post_init__(self) -> None:
        self.steps = len(self.levels) - 1


class FlowSteps:
    """A `StepModel` of one of the pipelines in `flow_parts.PARTS`, in float32. It makes pictures from text; it has no residual cache."""

    def __init__(self, folder: Path) -> None:
        """Load and check it. Raises `WeightsError`, and `EngineError` for a scheduler that is not plain rectified flow."""
        loader: Any = DiffusionPipeline
        facts = read_facts(Source(str(folder), folder, None, True), DiffusersOptions(model=str(folder), edits=False))
        try:
            pipe = loader.from_pretrained(str(folder), dtype=torch.float32, local_files_only=True, **dict.fromkeys(facts.missing))
        except (OSError, ValueError) as error:
            raise WeightsError(f"{folder} cannot be loaded: {error}") from error
        self._scheduler = pipe.scheduler
        config = pipe.scheduler.config
        if not isinstance(pipe.scheduler, FlowMatchEulerDiscreteScheduler) or any(config.get(name) for name in _OTHER_SCHEDULES):
            raise EngineError(f"{folder}: its scheduler ({type(pipe.scheduler).__name__}) is not plain rectified flow")
        name = type(pipe).__name__
        self._parts: Parts = PARTS[name](pipe)
        self._guidance = GUIDANCE[name]
        self.media = facts.media
        self.row_bytes = make_rows_independent(pipe.transformer, self._rows_to_try())
        """How it is kept that a row's bits do not depend on its batch."""

    def _rows_to_try(self) -> Callable[[Sequence[int]], Tensor]:
        """The network on rows of a fixed set."""
        size = Size(4 * self.media.multiple, 4 * self.media.multiple)
        with torch.inference_mode():
            noise = self._parts.noise(size, torch.Generator().manual_seed(0))
            half = self._parts.conditions(GenerateBody(prompt="a red circle"), 1.0)[0]

        def forward(rows: Sequence[int]) -> Tensor:
            latents = torch.cat([noise.roll(row) for row in rows])
            levels = torch.tensor([(1 + row) / (1 + max(SIZES)) for row in rows])
            return self._parts.velocity(latents, levels, _stacked([half] * len(rows)), size)

        return forward

    # ---- one request ------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def prepare(self, body: GenerateBody) -> FlowSample:
        """Raises `InvalidRequestError` for what these pipelines cannot do."""
        size = self._size(body)
        if body.frames != 1:
            raise InvalidRequestError("this model makes pictures, no clips")
        if body.image is not None or body.mask is not None:
            raise InvalidRequestError("this model cannot start from a picture")
        if body.cache:
            raise InvalidRequestError("this model has no residual cache")
        steps = body.steps or self.media.default_steps
        if not 1 <= steps <= self.media.max_steps:
            raise InvalidRequestError(f"steps must lie between 1 and {self.media.max_steps}, not {steps}")
        guidance = self._guidance if body.guidance is None else body.guidance
        latents = self._parts.noise(size, torch.Generator().manual_seed(body.seed))
        return FlowSample(
            latents=latents,
            halves=self._parts.conditions(body, guidance),
            levels=self._levels(steps, self._parts.tokens(latents)),
            guidance=guidance,
            size=size,
            seed=body.seed,
            revised_prompt=body.prompt,
        )

    def _size(self, body: GenerateBody) -> Size:
        multiple, largest = self.media.multiple, self.media.max_side
        width = body.width or min(512, largest) // multiple * multiple
        height = body.height or width
        if any(side % multiple or not 0 < side <= largest for side in (width, height)):
            raise InvalidRequestError(f"width and height must be multiples of {multiple} up to {largest}, not {width} and {height}")
        return Size(width, height)

    def _levels(self, steps: int, tokens: int) -> list[float]:
        """The scheduler's own levels, ending at 0."""
        scheduler = copy.copy(self._scheduler)
        config = scheduler.config
        shift = None
        if config.get("use_dynamic_shifting"):
            few, many = config.get("base_image_seq_len", 256), config.get("max_image_seq_len", 4096)
            low, high = config.get("base_shift", 0.5), config.get("max_shift", 1.15)
            shift = low + (tokens - few) * (high - low) / (many - few)
        even = np.linspace(1.0, 1.0 / steps, steps) if self._parts.even_levels else None
        scheduler.set_timesteps(steps, sigmas=even, mu=shift)
        return [float(level) for level in scheduler.sigmas]

    def shape_key(self, sample: FlowSample) -> Hashable:
        return (*sample.latents.shape, *((name, value.shape) for name, value in sample.halves[0].items()))

    def rows(self, sample: FlowSample) -> int:
        return len(sample.halves)

    # ---- steps ------------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def advance(self, samples: Sequence[FlowSample], passes: Passes = ALL) -> None:
        rows = [(sample, half) for sample in samples for half in sample.halves]
        velocities: list[Tensor] = []
        for part in passes.split(len(rows)):
            latents = torch.cat([sample.latents for sample, _ in rows[part]])
            levels = torch.tensor([sample.levels[sample.step] for sample, _ in rows[part]])
            answers = self._parts.velocity(latents, levels, _stacked([half for _, half in rows[part]]), samples[0].size)
            velocities += torch.split(answers, 1)
        for sample in samples:
            velocity = velocities.pop(0)
            if len(sample.halves) > 1:
                other = velocities.pop(0)
                velocity = other + sample.guidance * (velocity - other)
            now, then = sample.levels[sample.step : sample.step + 2]
            sample.clean = sample.latents - now * velocity
            sample.latents = sample.latents + (then - now) * velocity
            sample.rows_computed += len(sample.halves)
            sample.step += 1

    def preview(self, sample: FlowSample) -> Frames:
        return self._pixels(sample.latents if sample.clean is None else sample.clean, sample.size)

    def decode(self, sample: FlowSample) -> Frames:
        return self._pixels(sample.latents, sample.size)

    @torch.inference_mode()
    def _pixels(self, latents: Tensor, size: Size) -> Frames:
        pixels = (self._parts.decode(latents, size) / 2 + 0.5).clamp(0, 1)
        frames: Frames = (pixels * 255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
        return frames


def _stacked(halves: Sequence[Condition]) -> Condition:
    return {name: torch.cat([half[name] for half in halves]) for name in halves[0]}
