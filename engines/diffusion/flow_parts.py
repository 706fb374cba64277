"""What differs between the rectified-flow pipelines of diffusers that can be taken apart: encoding, packing, the network's call, decoding.

Everything is done by the pipeline's own methods, so a picture is what the pipeline would have made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..messages import GenerateBody

Condition = dict[str, Tensor]
"""What the network is told of one half of one request, each `[1, ...]`."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a picture, in pixels."""

    width: int
    height: int


class Parts(Protocol):
    """One pipeline, in pieces. A row is one half (with or without the prompt) of one picture."""

    even_levels: bool
    """It hands the scheduler evenly spaced noise levels; else the scheduler takes its own."""

    def conditions(self, body: GenerateBody, guidance: float) -> list[Condition]:
        """The halves: with guidance the prompt's and the negative prompt's, else the prompt's alone."""

    def noise(self, size: Size, generator: torch.Generator) -> Tensor:
        """Latents `[1, ...]` of pure noise."""

    def tokens(self, latents: Tensor) -> int:
        """How long the picture is as a sequence; schedules that depend on the resolution are shifted by it."""

    def velocity(self, latents: Tensor, levels: Tensor, condition: Condition, size: Size) -> Tensor:
        """The network: latents `[n, ...]` at noise levels `[n]` between 0 and 1 -> their velocities."""

    def decode(self, latents: Tensor, size: Size) -> Tensor:
        """Latents `[1, ...]` -> pixels `[1, 3, height, width]` between -1 and 1."""


class FluxParts:
    """FLUX.1: guidance is an input of the network (one row a picture), unless there is a negative prompt."""

    even_levels = True

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def conditions(self, body: GenerateBody, guidance: float) -> list[Condition]:
        halves = [self._condition(body.prompt, guidance)]
        if body.negative_prompt and guidance != 1:
            halves.append(self._condition(body.negative_prompt, guidance))
        return halves

    def _condition(self, prompt: str, guidance: float) -> Condition:
        words, pooled, _ = self._pipe.encode_prompt(prompt=prompt, prompt_2=None)
        condition = {"encoder_hidden_states": words, "pooled_projections": pooled}
        if self._pipe.transformer.config.guidance_embeds:
            condition["guidance"] = torch.full((1,), guidance)
        return condition

    def noise(self, size: Size, generator: torch.Generator) -> Tensor:
        channels = self._pipe.transformer.config.in_channels // 4
        latents, _ = self._pipe.prepare_latents(1, channels, size.height, size.width, torch.float32, torch.device("cpu"), generator)
        packed: Tensor = latents
        return packed

    def tokens(self, latents: Tensor) -> int:
        return latents.shape[1]

    def velocity(self, latents: Tensor, levels: Tensor, condition: Condition, size: Size) -> Tensor:
        scale = 2 * self._pipe.vae_scale_factor
        places = self._pipe._prepare_latent_image_ids(1, size.height // scale, size.width // scale, latents.device, latents.dtype)
        words = latents.new_zeros(condition["encoder_hidden_states"].shape[1], 3)
        out: Tensor = self._pipe.transformer(
            hidden_states=latents, timestep=levels, txt_ids=words, img_ids=places, return_dict=False, **condition
        )[0]
        return out

    def decode(self, latents: Tensor, size: Size) -> Tensor:
        vae = self._pipe.vae
        unpacked = self._pipe._unpack_latents(latents, size.height, size.width, self._pipe.vae_scale_factor)
        pixels: Tensor = vae.decode(unpacked / vae.config.scaling_factor + vae.config.shift_factor, return_dict=False)[0]
        return pixels


class StableDiffusion3Parts:
    """Stable Diffusion 3: two rows a picture with guidance."""

    even_levels = False

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def conditions(self, body: GenerateBody, guidance: float) -> list[Condition]:
        guided = guidance != 1
        words, other_words, pooled, other_pooled = self._pipe.encode_prompt(
            prompt=body.prompt,
            prompt_2=None,
            prompt_3=None,
            negative_prompt=body.negative_prompt,
            do_classifier_free_guidance=guided,
        )
        halves = [{"encoder_hidden_states": words, "pooled_projections": pooled}]
        if guided:
            halves.append({"encoder_hidden_states": other_words, "pooled_projections": other_pooled})
        return halves

    def noise(self, size: Size, generator: torch.Generator) -> Tensor:
        channels = self._pipe.transformer.config.in_channels
        latents: Tensor = self._pipe.prepare_latents(1, channels, size.height, size.width, torch.float32, torch.device("cpu"), generator)
        return latents

    def tokens(self, latents: Tensor) -> int:
        patch = int(self._pipe.transformer.config.patch_size)
        return (latents.shape[-2] // patch) * (latents.shape[-1] // patch)

    def velocity(self, latents: Tensor, levels: Tensor, condition: Condition, size: Size) -> Tensor:
        timesteps = levels * self._pipe.scheduler.config.num_train_timesteps
        out: Tensor = self._pipe.transformer(hidden_states=latents, timestep=timesteps, return_dict=False, **condition)[0]
        return out

    def decode(self, latents: Tensor, size: Size) -> Tensor:
        vae = self._pipe.vae
        pixels: Tensor = vae.decode(latents / vae.config.scaling_factor + vae.config.shift_factor, return_dict=False)[0]
        return pixels


PARTS: dict[str, type[FluxParts] | type[StableDiffusion3Parts]] = {
    "FluxPipeline": FluxParts,
    "StableDiffusion3Pipeline": StableDiffusion3Parts,
}
"""By the pipeline's class."""
GUIDANCE = {"FluxPipeline": 3.5, "StableDiffusion3Pipeline": 7.0}
"""The pipelines' own guidance scales."""
