"""TinyFlow as a diffusers pipeline: the standard folder layout, `callback_on_step_end`, `interrupt`. One request after the other.

`TinyFlowPipeline.from_pretrained(folder)` loads what `save_pretrained` wrote; the package must be importable, since
`model_index.json` names its classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .prompt import Understood, understand
from .rasters import to_frames
from .sampling import SHIFT, guided
from .saved import Output, Pipeline
from .text import encode_captions
from .transformer import Condition


@dataclass
class TinyFlowOutput(Output):
    """`frames[i]` is the i-th prompt's list of pictures, `images` the first of each; the others say how the prompts were read."""

    frames: Any
    images: Any
    revised_prompts: list[str]
    ignored: list[tuple[str, ...]]


def make_scheduler() -> Any:
    """The stock flow-matching Euler scheduler, with the shift that the model was tuned for."""
    from diffusers import FlowMatchEulerDiscreteScheduler

    scheduler: Any = FlowMatchEulerDiscreteScheduler
    return scheduler(shift=SHIFT)


class TinyFlowPipeline(Pipeline):
    """Text to pictures (`num_frames` 1) and clips. One call at a time for one object, as with every diffusers pipeline."""

    model_cpu_offload_seq = "text_encoder->transformer->vae"
    _callback_tensor_inputs = ["latents"]  # noqa: RUF012 (diffusers' own name and kind)

    def __init__(self, tokenizer: Any, text_encoder: Any, transformer: Any, vae: Any, scheduler: Any) -> None:
        super().__init__()
        self.register_modules(tokenizer=tokenizer, text_encoder=text_encoder, transformer=transformer, vae=vae, scheduler=scheduler)
        self._interrupt = False
        self._num_timesteps = 0

    @property
    def interrupt(self) -> bool:
        return self._interrupt

    @property
    def num_timesteps(self) -> int:
        return self._num_timesteps

    def encode_prompt(self, captions: Sequence[str], moments: Tensor) -> Condition:
        """Canonical captions at their moments -> the network's condition."""
        words, mask = self.text_encoder(encode_captions(self.tokenizer, captions))
        condition: Condition = self.transformer.prepare(words, mask, moments)
        return condition

    def prepare_latents(self, rows: int, generator: torch.Generator | None) -> Tensor:
        """Noise for so many requests."""
        config = self.transformer.config
        return torch.randn(rows, config.grid**2, config.channels, generator=generator)

    @torch.no_grad()
    def __call__(
        self,
        prompt: str | list[str],
        num_frames: int = 1,
        num_inference_steps: int = 8,
        guidance_scale: float = 1.0,
        seed: int = 0,
        height: int = 256,
        width: int = 256,
        generator: torch.Generator | None = None,
        latents: Tensor | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: Callable[[Any, int, Tensor, dict[str, Any]], dict[str, Any] | None] | None = None,
        callback_on_step_end_tensor_inputs: Sequence[str] = ("latents",),
    ) -> Any:
        """`seed` fills what the prompts leave open and draws the noise, unless `generator` or `latents`
        (`[prompts * num_frames, 16, channels]`) does.

        `output_type` is "pil", "np" (`[prompts, frames, height, width, 3]` bytes) or "latent".
        """
        self._interrupt = False
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        read = [understand(text, seed, num_frames > 1) for text in prompts]
        captions = [item.caption for item in read for _ in range(num_frames)]
        moments = torch.linspace(0, 1, num_frames).repeat(len(prompts)) if num_frames > 1 else torch.zeros(len(prompts))
        condition = self.encode_prompt(captions, moments)
        null = self.encode_prompt([""] * len(captions), moments) if guidance_scale != 1 else None
        if latents is None:
            noise = self.prepare_latents(len(prompts), generator or torch.Generator().manual_seed(seed))
            latents = noise.repeat_interleave(num_frames, 0)
        latents = self._denoise(
            latents, condition, null, num_inference_steps, guidance_scale, callback_on_step_end, callback_on_step_end_tensor_inputs
        )
        result = self._output(latents, read, num_frames, (width, height), output_type)
        self.maybe_free_model_hooks()
        return result if return_dict else (result.frames,)

    def _denoise(
        self,
        latents: Tensor,
        condition: Condition,
        null: Condition | None,
        steps: int,
        guidance: float,
        callback: Any,
        tensors: Sequence[str],
    ) -> Tensor:
        self.scheduler.set_timesteps(sigmas=np.linspace(1.0, 1.0 / steps, steps))
        timesteps = self.scheduler.timesteps
        self._num_timesteps = len(timesteps)
        with self.progress_bar(total=len(timesteps)) as bar:
            for index, timestep in enumerate(timesteps):
                if self.interrupt:
                    continue
                level = self.scheduler.sigmas[index]
                levels = level.expand(len(latents))
                clean = self.transformer(latents, levels, condition)
                if null is not None:
                    clean = guided(clean, self.transformer(latents, levels, null), guidance)
                latents = self.scheduler.step((latents - clean) / level, timestep, latents, return_dict=False)[0]
                if callback is not None:
                    given = {"latents": latents} if "latents" in tensors else {}
                    latents = (callback(self, index, timestep, given) or {}).pop("latents", latents)
                bar.update()
        return latents

    def _output(
        self, latents: Tensor, read: Sequence[Understood], num_frames: int, size: tuple[int, int], output_type: str
    ) -> TinyFlowOutput:
        frames: Any
        if output_type == "latent":
            frames = latents.view(len(read), num_frames, *latents.shape[1:])
        else:
            frames = to_frames(self.vae.decode(latents), *size)
            frames = frames.reshape(len(read), num_frames, *frames.shape[1:])
        if output_type == "pil":
            from PIL import Image

            frames = [[Image.fromarray(frame) for frame in clip] for clip in frames]
        images = [clip[0] for clip in frames]
        return TinyFlowOutput(frames=frames, images=images, revised_prompts=[r.caption for r in read], ignored=[r.ignored for r in read])
