"""What the picture would be now: the clean latents guessed from the last two steps, through the pipeline's own latent codec.

Runs inside the pipeline's loop, between two steps, on the run's thread. It changes nothing of the run: no scheduler, no generator. Of a
clip only the first latent frame is decoded, so a preview costs a small part of the final decoding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..step_model import Frames


class Previewer:
    """Makes the previews of one run. Tell it every step's latents; ask for a picture when one is due."""

    def __init__(self, pipeline: Any, size: tuple[int, int], frames: int) -> None:
        self._pipeline = pipeline
        self._size = size
        self._frames = frames
        self._before: Any = None
        self._now: Any = None

    def saw(self, latents: Any) -> None:
        """The latents after a step. Two steps' are kept; pipelines make new ones at each step."""
        self._before, self._now = self._now, latents

    def frame(self, step: int) -> Frames:
        """The picture after `step` steps, `[1, height, width, 3]`; of a clip, its beginning."""
        clean = self._clean(step)
        vae = self._pipeline.vae
        latents = self._unpacked(clean).to(vae.dtype)
        decoded = vae.decode(_scaled(vae, latents), return_dict=False)[0]
        if decoded.ndim == 5:
            decoded = decoded[:, :, 0]
        picture = decoded[0].float().permute(1, 2, 0).mul(127.5).add(127.5).nan_to_num(0.0).clamp(0, 255)
        frame: Frames = picture.round().byte().cpu().numpy()[None]
        return np.ascontiguousarray(frame)

    def _clean(self, step: int) -> Any:
        """The clean sample on the straight line (flow matching) or circle (diffusion) through the last two latents.

        With x = a * clean + s * noise at both, clean = (x1 * s0 - x0 * s1) / (a1 * s0 - a0 * s1). Exact for a deterministic first-order
        step, near enough for the others. With schedulers whose levels are not known: the noisy latents as they are.
        """
        if self._before is None:
            return self._now
        before, now = _level(self._pipeline.scheduler, step - 1), _level(self._pipeline.scheduler, step)
        if before is None or now is None:
            return self._now
        (a0, s0), (a1, s1) = before, now
        determinant = a1 * s0 - a0 * s1
        return self._now if abs(determinant) < 1e-6 else (self._now.float() * s0 - self._before.float() * s1) / determinant

    def _unpacked(self, latents: Any) -> Any:
        """Latents as the codec knows them, `[1, C, h, w]` or `[1, C, 1, h, w]`, whatever way the pipeline packs them."""
        pipeline, (width, height) = self._pipeline, self._size
        latents = latents[:1]
        if latents.ndim == 3 and hasattr(pipeline, "vae_temporal_compression_ratio"):  # LTX: patches of a clip in a row
            frames = (self._frames - 1) // pipeline.vae_temporal_compression_ratio + 1
            scale = pipeline.vae_spatial_compression_ratio
            patches = (pipeline.transformer_spatial_patch_size, pipeline.transformer_temporal_patch_size)
            latents = pipeline._unpack_latents(latents, frames, height // scale, width // scale, *patches)
        elif latents.ndim == 3:  # Flux and its kin: two by two latents in a row
            latents = pipeline._unpack_latents(latents, height, width, pipeline.vae_scale_factor)
        elif latents.ndim == 5 and type(pipeline.vae).__name__ == "AutoencoderKLCogVideoX":
            latents = latents.permute(0, 2, 1, 3, 4)
        return latents[:, :, :1] if latents.ndim == 5 else latents


def _level(scheduler: Any, step: int) -> tuple[float, float] | None:
    """(share of the clean sample, share of the noise) after `step` steps of the run; None where the scheduler keeps other books."""
    sigmas = getattr(scheduler, "sigmas", None)
    config = scheduler.config
    flows = config.get("prediction_type") == "flow_prediction" or type(scheduler).__name__.startswith("FlowMatch")
    if flows and sigmas is not None and step < len(sigmas):
        # A run that starts from a picture skips the first levels.
        start = getattr(scheduler, "begin_index", None) or 0
        sigma = float(sigmas[min(start + step, len(sigmas) - 1)])
        return 1.0 - sigma, sigma
    if type(scheduler).__name__ in ("DDIMScheduler", "CogVideoXDDIMScheduler"):
        timesteps = scheduler.timesteps
        share = float(scheduler.alphas_cumprod[int(timesteps[step])]) if step < len(timesteps) else 1.0
        return share**0.5, (1 - share) ** 0.5
    return None


def _scaled(vae: Any, latents: Any) -> Any:
    """Latents as the codec's decoder wants them: the pipelines' last step before it."""
    import torch

    config = vae.config
    mean, deviation = config.get("latents_mean"), config.get("latents_std")
    if mean is None:  # LTX keeps them beside its weights
        buffers = dict(vae.named_buffers(recurse=False))
        mean, deviation = buffers.get("latents_mean"), buffers.get("latents_std")
    if mean is not None and deviation is not None:
        shape = (1, -1, *(1,) * (latents.ndim - 2))
        mean, deviation = (torch.as_tensor(each).to(latents).view(shape) for each in (mean, deviation))
        return latents * deviation / (config.get("scaling_factor") or 1.0) + mean
    return latents / (config.get("scaling_factor") or 1.0) + (config.get("shift_factor") or 0.0)
