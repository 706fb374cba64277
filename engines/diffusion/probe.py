"""How many rows a step should have at most: measured when the engine opens."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..messages import GenerateBody
from .step_model import StepModel

MOST_ROWS = 64
WORTH = 0.05
"""A doubling of the rows must make a row so much cheaper, else the smaller step is better: it is a finer step boundary."""


@dataclass(frozen=True, slots=True)
class Measured:
    """`milliseconds` of a step by its number of rows, and the cap that follows."""

    milliseconds: dict[int, float]
    cap: int


def find_cap(milliseconds: dict[int, float], step_ms: float) -> int:
    """The cap from what steps cost: double the rows while a row gets cheaper and a step stays within `step_ms`; the smallest
    number measured at least."""
    sizes = sorted(milliseconds)
    cap = sizes[0]
    for size in sizes[1:]:
        cheaper = milliseconds[size] / size <= (1.0 - WORTH) * milliseconds[cap] / cap
        if not cheaper or milliseconds[size] > step_ms:
            break
        cap = size
    return cap


def measure(model: StepModel, step_ms: float) -> Measured:
    """Time steps of 1, 2, 4 ... samples, until one takes longer than `step_ms` or has `MOST_ROWS` rows.

    The clock is the thread's own computing time: other work on the machine must not make the steps look long, and the cap small.
    """
    body = GenerateBody(prompt="", frames=1 if model.media.pictures else model.media.default_frames, steps=4)
    results: dict[int, float] = {}
    count = 1
    while True:
        samples = [model.prepare(body) for _ in range(count)]
        rows = sum(model.rows(sample) for sample in samples)
        if results and rows > MOST_ROWS:
            break
        times: list[float] = []
        for _ in range(3):
            began = time.thread_time()
            model.advance(samples)
            times.append(1000 * (time.thread_time() - began))
            if times[-1] > 4 * step_ms:
                break
        results[rows] = min(times)
        if results[rows] > step_ms:
            break
        count *= 2
    return Measured(results, find_cap(results, step_ms))
