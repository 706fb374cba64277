"""The whole training, stage by stage, in a folder that it can be resumed from.

`vae/` and `text_encoder/` appear when their stages are done, `flow.pt` is the main stage's checkpoint, `log.jsonl` has a line for every
fifty steps, `weights/` is the finished pipeline.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..tinyflow.text import TinyFlowTextEncoder, build_tokenizer
from ..tinyflow.vae import TinyFlowVAE
from .assistant import Assistant
from .codec import fit_codec, train_decoder
from .export import export
from .flow import FlowSettings, FlowTrainer
from .parsing import train_text

Log = Callable[..., Any]
_LOG_EVERY = 50


@dataclass(frozen=True, slots=True)
class Recipe:
    """The sizes of the stages. The defaults are a full training."""

    text_steps: int = 700
    decoder_steps: int = 10_000
    codec_scenes: int = 6000
    flow: FlowSettings = field(default_factory=FlowSettings)
    checkpoint_s: float = 240.0


class Logger:
    """Prints events, and keeps them as JSON lines with the CPU seconds of this process."""

    def __init__(self, path: Path, show: Callable[[str], None]) -> None:
        self._path = path
        self._show = show

    def __call__(self, **event: Any) -> None:
        line = json.dumps({**event, "cpu_s": round(time.process_time(), 1)})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self._show(line)


def train(folder: Path, recipe: Recipe, assistant: bool = False, show: Callable[[str], None] = print) -> Path:
    """Run what is not done yet of a training in `folder`; returns the folder of the finished weights."""
    folder.mkdir(parents=True, exist_ok=True)
    log = Logger(folder / "log.jsonl", show)
    seed = recipe.flow.seed
    vae = _codec(folder / "vae", recipe, seed, log)
    text = _text(folder / "text_encoder", recipe, seed, log)
    build = functools.partial(build_trainer, folder, recipe.flow)
    trainer = build(seed)
    checkpoint = folder / "flow.pt"
    if checkpoint.exists():
        trainer.load(checkpoint)
        log(stage="flow", resumed=trainer.done_steps)
    if assistant and not trainer.done:
        with Assistant(build, trainer) as helper:
            _flow(trainer, checkpoint, recipe.checkpoint_s, log, helper)
    else:
        _flow(trainer, checkpoint, recipe.checkpoint_s, log, None)
    export(folder / "weights", build_tokenizer(), text, trainer.averaged(), vae)
    return folder / "weights"


def _codec(folder: Path, recipe: Recipe, seed: int, log: Log) -> TinyFlowVAE:
    if not (folder / "config.json").exists():
        torch.manual_seed(seed)
        vae = TinyFlowVAE()
        fit_codec(vae, seed, recipe.codec_scenes)
        train_decoder(vae, recipe.decoder_steps, seed, log)
        vae.save_pretrained(folder)
    return TinyFlowVAE.from_pretrained(folder).eval().requires_grad_(False)


def _text(folder: Path, recipe: Recipe, seed: int, log: Log) -> TinyFlowTextEncoder:
    if not (folder / "config.json").exists():
        train_text(build_tokenizer(), recipe.text_steps, seed, log).save_pretrained(folder)
    return TinyFlowTextEncoder.from_pretrained(folder).eval().requires_grad_(False)


def build_trainer(folder: Path, settings: FlowSettings, seed: int) -> FlowTrainer:
    """A trainer with its own stream of scenes and noise (an assistant has another than the trainer)."""
    vae, text = TinyFlowVAE.from_pretrained(folder / "vae"), TinyFlowTextEncoder.from_pretrained(folder / "text_encoder")
    return FlowTrainer(dataclasses.replace(settings, seed=seed), vae, text, build_tokenizer())


def _flow(trainer: FlowTrainer, checkpoint: Path, every_s: float, log: Log, helper: Assistant | None) -> None:
    saved, recent = time.monotonic(), []
    if helper:
        helper.publish(trainer)
    while not trainer.done:
        found = trainer.step(helper.exchange if helper else None)
        if helper:
            helper.publish(trainer)
        recent.append((found.flow, found.noisy, found.tiles))
        if len(recent) == _LOG_EVERY or trainer.done:
            flow, noisy, tiles = (round(sum(column) / len(recent), 4) for column in zip(*recent, strict=True))
            log(stage="flow", step=trainer.done_steps, flow=flow, noisy=noisy, tiles=tiles, assisted=helper.taken if helper else 0)
            recent.clear()
        if trainer.done or time.monotonic() - saved > every_s:
            trainer.save(checkpoint)
            saved = time.monotonic()
