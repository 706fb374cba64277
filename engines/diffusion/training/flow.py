"""The main stage: training the transformer on pictures and clip frames alike. Resumable, and reproducible by seed.

Weights are kept in float32 and computed with in bfloat16; Muon moves the blocks' matrices, AdamW the rest; the exported weights are a
moving average. The learning rate is constant and falls to nothing in the last part (warm-up, stable, decay), so a run can be lengthened.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..tinyflow.text import TinyFlowTextEncoder, encode_captions
from ..tinyflow.transformer import TinyFlowTransformer
from ..tinyflow.vae import TinyFlowVAE
from .compose import Composer
from .objective import Losses, TileHead, losses
from .world import draw_moment, draw_training


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """How long and how fast; `decay` is the last share of the steps, in which the learning rate falls."""

    steps: int = 4400
    batch: int = 128
    seed: int = 0
    rate: float = 1.5e-3
    muon_rate: float = 4e-3
    warmup: int = 60
    decay: float = 0.5
    caption_dropout: float = 0.07
    tile_weight: float = 0.1
    average: float = 0.998
    dim: int = 256
    heads: int = 4
    layers: int = 6
    hidden: int = 640

    def rate_at(self, step: int) -> float:
        """The share of the full learning rate."""
        left = (self.steps - step) / max(self.decay * self.steps, 1)
        return min(1.0, (step + 1) / self.warmup) * max(0.0, min(1.0, left))


class FlowTrainer:
    """One training run. `step()` until `done`; `save` and `load` keep everything that the next step depends on."""

    def __init__(self, settings: FlowSettings, vae: TinyFlowVAE, text: TinyFlowTextEncoder, tokenizer: Any) -> None:
        torch.manual_seed(settings.seed)
        self.settings = settings
        self.done_steps = 0
        self.seconds = 0.0
        self._tokenizer = tokenizer
        self._composer = Composer(vae)
        self._text = text.eval().requires_grad_(False)
        model = TinyFlowTransformer(
            channels=vae.config.channels,
            dim=settings.dim,
            heads=settings.heads,
            layers=settings.layers,
            hidden=settings.hidden,
            text_dim=text.config.dim,
        )
        model.set_deviation(vae.deviation)
        self.model, self.head = model, TileHead(settings.dim)
        self._rng = random.Random(settings.seed + 1)
        self._generator = torch.Generator().manual_seed(settings.seed + 2)
        named = [*model.named_parameters(), *((f"head.{name}", value) for name, value in self.head.named_parameters())]
        self._names = [name for name, _ in named]
        self.compute = [value for _, value in named]
        self._masters = [nn.Parameter(value.detach().clone()) for value in self.compute]
        self._average = [value.detach().clone() for value in self._masters]
        matrices = [name.startswith("blocks.") and value.ndim == 2 and name.endswith("weight") for name, value in named]
        self._muon: Any = torch.optim.Muon(
            [value for value, is_matrix in zip(self._masters, matrices, strict=True) if is_matrix],
            lr=settings.muon_rate, weight_decay=0.01, momentum=0.95, ns_steps=4, adjust_lr_fn="match_rms_adamw",
        )  # fmt: skip
        rest = [value for value, is_matrix in zip(self._masters, matrices, strict=True) if not is_matrix]
        self._adam = torch.optim.AdamW(rest, lr=settings.rate, betas=(0.9, 0.98), weight_decay=0.0)
        self._to_bfloat16()

    def _to_bfloat16(self) -> None:
        variance = self.model.variance.clone()
        self.model.bfloat16()
        self.head.bfloat16()
        self.model.variance = variance
        self._copy_to_compute(self._masters)

    def _copy_to_compute(self, values: Sequence[Tensor]) -> None:
        with torch.no_grad():
            torch._foreach_copy_([value.data for value in self.compute], list(values))

    @property
    def done(self) -> bool:
        return self.done_steps >= self.settings.steps

    def gradients(self) -> Losses:
        """Draw a batch and leave its gradients in the bfloat16 weights."""
        n, rng = self.settings.batch, self._rng
        scenes = [draw_training(rng) for _ in range(n)]
        moments = [draw_moment(rng, scene) for scene in scenes]
        known = torch.tensor([rng.random() >= self.settings.caption_dropout for _ in range(n)])
        captions = [scene.caption() if keep else "" for scene, keep in zip(scenes, known.tolist(), strict=True)]
        with torch.no_grad():
            words, mask = self._text(encode_captions(self._tokenizer, captions))
        found = losses(
            self.model, self.head, self._composer(scenes, moments, rng), (words.bfloat16(), mask), torch.tensor(moments), known,
            self._generator, self.settings.tile_weight,
        )  # fmt: skip
        torch.autograd.backward(found.total)
        return found

    def take_gradients(self) -> Tensor:
        """All gradients in one row, float32; they are gone from the weights then."""
        flat = torch.cat([(torch.zeros_like(value) if value.grad is None else value.grad).float().flatten() for value in self.compute])
        for value in self.compute:
            value.grad = None
        return flat

    def step(self, exchange: Callable[[Tensor], Tensor] | None = None) -> Losses:
        """One update; `exchange` may mix the gradients with another process's."""
        started = time.process_time()
        found = self.gradients()
        flat = self.take_gradients()
        self.apply(exchange(flat) if exchange else flat)
        self.seconds += time.process_time() - started
        return found

    def apply(self, flat: Tensor) -> None:
        """Move the weights by these gradients, all in one row."""
        flat = flat * min(1.0, 1.0 / (float(flat.norm()) + 1e-6))
        for master, piece in zip(self._masters, torch.split(flat, [value.numel() for value in self._masters]), strict=True):
            master.grad = piece.view_as(master)
        share = self.settings.rate_at(self.done_steps)
        for optimizer, rate in ((self._muon, self.settings.muon_rate), (self._adam, self.settings.rate)):
            for group in optimizer.param_groups:
                group["lr"] = rate * share
            optimizer.step()
        self.done_steps += 1
        self._copy_to_compute(self._masters)
        keep = min(self.settings.average, (1 + self.done_steps) / (50 + self.done_steps))
        with torch.no_grad():
            torch._foreach_lerp_(self._average, [value.data for value in self._masters], 1 - keep)

    def averaged(self) -> TinyFlowTransformer:
        """A float32 model with the averaged weights."""
        model = TinyFlowTransformer(**{key: value for key, value in self.model.config.items() if not key.startswith("_")})
        model.variance.copy_(self.model.variance)
        values = dict(zip(self._names, self._average, strict=True))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(values[name])
        return model.eval().requires_grad_(False)

    def save(self, path: Path) -> None:
        """Everything that the next step depends on; written beside and moved into place."""
        state = {
            "settings": asdict(self.settings), "steps": self.done_steps, "seconds": self.seconds,
            "masters": [value.data for value in self._masters], "average": self._average,
            "muon": self._muon.state_dict(), "adam": self._adam.state_dict(),
            "rng": self._rng.getstate(), "generator": self._generator.get_state(),
        }  # fmt: skip
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint (of the same shape of network)."""
        state = torch.load(path, weights_only=False)
        for own, saved in ((self._masters, state["masters"]), (self._average, state["average"])):
            with torch.no_grad():
                torch._foreach_copy_([value.data for value in own], saved)
        self._muon.load_state_dict(state["muon"])
        self._adam.load_state_dict(state["adam"])
        self._rng.setstate(state["rng"])
        self._generator.set_state(state["generator"])
        self.done_steps, self.seconds = state["steps"], state["seconds"]
        self._copy_to_compute(self._masters)
