"""The codec's training: components from rendered tiles, then the decoder's network against the same scenes drawn at full resolution."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..tinyflow.scene import Scene
from ..tinyflow.vae import TinyFlowVAE
from .render import CANVAS, placed, render
from .world import draw_moment, draw_training

_PIECE = 36
"""The side, in canvas pixels, of the pieces that the decoder's network is trained on."""


def _draw(rng: random.Random, n: int) -> tuple[list[Scene], list[float]]:
    scenes = [draw_training(rng) for _ in range(n)]
    return scenes, [draw_moment(rng, scene) for scene in scenes]


def fit_codec(vae: TinyFlowVAE, seed: int, scenes: int = 6000) -> None:
    """Set the linear part."""
    rng = random.Random(seed)
    vae.fit(vae.tiles(render(*_draw(rng, scenes))).flatten(0, 1))


def psnr(vae: TinyFlowVAE, scenes: list[Scene], moments: list[float]) -> float:
    """The peak signal-to-noise ratio of decoded pictures, in dB, at full resolution."""
    truth = render(scenes, moments, CANVAS * vae.config.upscale)
    with torch.no_grad():
        error = (vae.decode(vae.encode(render(scenes, moments))) - truth).square().mean()
    return float(10 * torch.log10(4 / error))


def train_decoder(
    vae: TinyFlowVAE, steps: int, seed: int, log: Callable[..., Any], batch: int = 24, rate: float = 2e-3, noise: float = 0.1
) -> None:
    """Train the network on latents with up to `noise` of their deviation added, as robust as the transformer's errors ask for."""
    torch.manual_seed(seed)
    rng = random.Random(seed + 1)
    vae.requires_grad_(True)
    optimizer = torch.optim.AdamW(vae.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 50) * min(1.0, 2 * (1 - step / steps))
        loss, error = _decoder_loss(vae, *_draw(rng, batch), rng, noise)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if step % 100 == 99 or step == steps - 1:
            log(stage="decoder", step=step + 1, loss=round(float(loss.detach()), 4), psnr=round(float(10 * torch.log10(4 / error)), 2))
    vae.requires_grad_(False)


def _decoder_loss(vae: TinyFlowVAE, scenes: list[Scene], moments: list[float], rng: random.Random, noise: float) -> tuple[Tensor, Tensor]:
    """On a piece of each picture around one of its things: the rest is plain background."""
    latents = vae.encode(render(scenes, moments))
    latents = latents + torch.randn_like(latents) * vae.deviation * noise * torch.rand(len(latents), 1, 1)
    coarse = vae.decode_linear(latents)
    corners = []
    for scene, moment in zip(scenes, moments, strict=True):
        item = rng.choice(placed(scene, moment))
        corners.append([2 * round(min(max(at - _PIECE / 2 + rng.uniform(-6, 6), 0), CANVAS - _PIECE) / 2) for at in (item.x, item.y)])
    pieces = torch.stack([coarse[i, :, y : y + _PIECE, x : x + _PIECE] for i, (x, y) in enumerate(corners)])
    scale = vae.config.upscale
    truth = render(scenes, moments, CANVAS * scale, [(x * scale, y * scale, _PIECE * scale) for x, y in corners])
    difference = vae.refine(pieces) - truth
    squared = difference.square().mean()
    return difference.abs().mean() + 2 * squared, squared.detach()
