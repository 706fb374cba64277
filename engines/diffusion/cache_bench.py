"""What the residual cache saves and what it costs: against the same pictures without it, and by the adherence checker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..messages import GenerateBody
from .step_model import Frames, StepModel

Judge = Callable[[int, Frames], bool]
"""Is the picture of the trial with this number what was asked for, in every attribute?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePoint:
    """So many steps with one threshold (0: no cache). `psnr` in dB against the pictures with as many steps and no cache; None for those
    themselves. `strict` is the share of pictures that are right in every attribute, None where nobody can tell."""

    steps: int
    threshold: float
    rows_computed: float
    ms_a_picture: float
    psnr_mean: float | None
    psnr_worst: float | None
    strict: float | None


def measure(
    model: StepModel,
    prompts: Sequence[tuple[str, int]],
    step_counts: Sequence[int],
    thresholds: Sequence[float],
    judge: Judge | None,
    rows: int,
    say: Callable[[str], None],
) -> list[CachePoint]:
    """A point for each number of steps with each threshold; the first threshold must be 0. `prompts` are (text, seed)."""
    points: list[CachePoint] = []
    reference: list[Frames] = []
    for steps, threshold in itertools.product(step_counts, thresholds):
        began = time.thread_time()
        samples: list[Any] = []
        for first in range(0, len(prompts), rows):
            bodies = [GenerateBody(prompt=text, seed=seed, steps=steps, cache=threshold) for text, seed in prompts[first : first + rows]]
            batch = [model.prepare(body) for body in bodies]
            while batch[0].step < steps:
                model.advance(batch)
            samples += batch
        pictures = [model.decode(sample) for sample in samples]
        spent = time.thread_time() - began
        possible = sum(model.rows(sample) * sample.steps for sample in samples)
        reference = reference if threshold else pictures
        errors = [psnr(picture, wanted) for picture, wanted in zip(pictures, reference, strict=True)] if threshold else []
        points.append(
            CachePoint(
                steps=steps,
                threshold=threshold,
                rows_computed=sum(sample.rows_computed for sample in samples) / possible,
                ms_a_picture=1000 * spent / len(samples),
                psnr_mean=float(np.mean(errors)) if errors else None,
                psnr_worst=float(np.min(errors)) if errors else None,
                strict=float(np.mean([judge(number, picture) for number, picture in enumerate(pictures)])) if judge else None,
            )
        )
        say(f"{steps} steps, cache {threshold:g}: {points[-1].ms_a_picture:.0f} ms a picture")
    return points


def psnr(picture: Frames, wanted: Frames) -> float:
    """Peak signal-to-noise ratio in dB; 99 for equal pictures."""
    error = float(np.mean((picture.astype(np.float64) - wanted.astype(np.float64)) ** 2))
    return min(99.0, 10 * float(np.log10(255.0**2 / error))) if error else 99.0
