"""How well the model follows held-out prompts, by the checker, on the very path that serves users."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ...messages import GenerateBody
from ..tinyflow.prompt import understand
from ..tinyflow.rasters import from_frames
from ..tinyflow.scene import Scene
from ..tinyflow.steps import TinyFlowSample, TinyFlowSteps
from ..tinyflow.words import SHAPES
from .checker import check_clip, check_picture
from .render import CANVAS
from .rephrase import agrees, rephrase
from .world import PICTURE_KINDS, draw_held_out, held_out

_ROWS = 32
"""Rows that are computed together."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A prompt to try: what a user says, the seed, and the scene that must come of it."""

    prompt: str
    seed: int
    scene: Scene
    understood: bool
    """Whether the scene has everything that the prompt names."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trial's verdict, attribute by attribute, and its frames `[frames, height, width, 3]` (uint8)."""

    trial: Trial
    verdict: dict[str, bool]
    frames: Any


def draw_trials(kind: str, count: int, seed: int) -> list[Trial]:
    """Rephrased held-out scenes; what the prompt leaves open is filled so that the scene stays held out."""
    rng = random.Random(f"{seed}/{kind}")
    trials: list[Trial] = []
    while len(trials) < count:
        wanted = draw_held_out(rng, kind)
        prompt, named = rephrase(wanted, rng)
        for trial_seed in (rng.randrange(1 << 31) for _ in range(64)):
            scene = understand(prompt, trial_seed, bool(wanted.motion)).scene
            if held_out(scene):
                trials.append(Trial(prompt, trial_seed, scene, agrees(named, wanted, scene)))
                break
    return trials


def run(
    model: TinyFlowSteps, trials: Iterable[Trial], frames: int, steps: int | None = None, guidance: float | None = None
) -> list[Outcome]:
    """Generate and judge; clips when `frames` is more than 1."""
    outcomes: list[Outcome] = []
    waiting: list[tuple[Trial, TinyFlowSample]] = []
    for trial in trials:
        body = GenerateBody(prompt=trial.prompt, seed=trial.seed, frames=frames, steps=steps, guidance=guidance)
        waiting.append((trial, model.prepare(body)))
        if sum(model.rows(sample) for _, sample in waiting) >= _ROWS:
            outcomes += _finish(model, waiting)
            waiting = []
    return outcomes + (_finish(model, waiting) if waiting else [])


def _finish(model: TinyFlowSteps, waiting: list[tuple[Trial, TinyFlowSample]]) -> list[Outcome]:
    samples = [sample for _, sample in waiting]
    while samples[0].step < samples[0].steps:
        model.advance(samples)
    return [judge(trial, model.decode(sample)) for trial, sample in waiting]


def judge(trial: Trial, frames: Any) -> Outcome:
    """Look at finished frames."""
    small = from_frames(frames, CANVAS, CANVAS)
    verdict = check_clip(small, trial.scene) if len(frames) > 1 else check_picture(small[0], trial.scene)
    verdict["prompt"] = trial.understood
    verdict["strict"] = verdict["strict"] and trial.understood
    return Outcome(trial, verdict, frames)


def evaluate(
    model: TinyFlowSteps,
    pictures: int,
    clips: int,
    seed: int = 1,
    frames: int = 16,
    steps: int | None = None,
    guidance: float | None = None,
    log: Callable[..., Any] = lambda **_: None,
) -> dict[str, list[Outcome]]:
    """By kind: so many pictures, spread evenly over their kinds, and so many clips."""
    outcomes: dict[str, list[Outcome]] = {}
    with torch.inference_mode():
        for index, kind in enumerate(PICTURE_KINDS):
            count = pictures * (index + 1) // len(PICTURE_KINDS) - pictures * index // len(PICTURE_KINDS)
            outcomes[kind] = run(model, draw_trials(kind, count, seed), 1, steps, guidance)
            log(stage="evaluate", kind=kind, strict=share(outcomes[kind], "strict"))
        outcomes["clip"] = run(model, draw_trials("clip", clips, seed), frames, steps, guidance)
        log(stage="evaluate", kind="clip", strict=share(outcomes["clip"], "strict"))
    return outcomes


def share(outcomes: list[Outcome], attribute: str) -> float | None:
    """How many of those that have this attribute have it right; None if none has it."""
    values = [outcome.verdict[attribute] for outcome in outcomes if attribute in outcome.verdict]
    return round(sum(values) / len(values), 4) if values else None


def by_shape(outcomes: list[Outcome]) -> dict[str, float]:
    """The strict share of outcomes that show each shape."""
    found = {}
    for shape in SHAPES:
        those = [outcome for outcome in outcomes if any(thing.shape == shape for thing in outcome.trial.scene.things)]
        if those:
            found[shape] = share(those, "strict") or 0.0
    return found
