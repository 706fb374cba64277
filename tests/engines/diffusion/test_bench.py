"""The measurements: their clock, their policies, their figures."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from antiphon.engines.diffusion import bench, cache_bench, serving_bench
from antiphon.engines.diffusion.serving_bench import Served, Stopwatch
from antiphon.engines.messages import GenerateBody

from .toy import BurningModel, burn


def serially(body: GenerateBody, first_step: Callable[[], None]) -> None:
    for _ in range(body.steps or 1):
        burn(0.0024)
        first_step()


def test_batching_at_each_step_beats_both_others_under_load() -> None:
    bodies = [GenerateBody(prompt=f"{number}", seed=number, steps=(4, 6, 8)[number % 3]) for number in range(24)]
    capacity, points = serving_bench.measure(BurningModel(), serially, bodies, [2.0], cap=16, say=lambda text: None)
    serial, static, continuous = points
    assert capacity > 0
    assert [point.policy for point in points] == ["serial", "static", "continuous"]
    assert continuous.per_second > 1.3 * serial.per_second
    assert continuous.mean_ms < static.mean_ms < serial.mean_ms
    assert continuous.first_step_ms < static.first_step_ms
    assert continuous.rows_a_step > 2.0


def test_the_clock_stands_still_while_nothing_computes() -> None:
    watch = Stopwatch()
    watch.run(time.sleep, 0.1)
    assert watch.now < 0.05
    watch.run(burn, 0.02)
    assert 0.02 <= watch.now < 0.1


def test_arrivals_have_the_wanted_rate() -> None:
    served = serving_bench.arrivals([GenerateBody(prompt="x")] * 2000, 10.0, seed=1)
    assert 180 < served[-1].arrived < 220
    assert [request.arrived for request in served] == sorted(request.arrived for request in served)
    assert isinstance(served[0], Served)


def test_psnr() -> None:
    black, nearly = np.zeros((1, 8, 8, 3), np.uint8), np.full((1, 8, 8, 3), 1, np.uint8)
    assert cache_bench.psnr(black, black) == 99.0
    assert cache_bench.psnr(nearly, black) == pytest.approx(48.13, abs=0.01)


def test_the_whole_of_it_on_the_model_that_ships() -> None:
    from antiphon.engines import diffusion

    assert diffusion.__file__ is not None
    folder = Path(diffusion.__file__).parent / "weights" / "tinyflow"
    found = bench.run(folder, argparse.Namespace(requests=3, pictures=1, loads="1", seed=1), lambda text: None)
    assert [point["policy"] for point in found["serving"]] == list(serving_bench.POLICIES)
    assert len(found["cache"]) == 2 * len(bench.THRESHOLDS)
    assert found["step_ms"][str(found["cap"])] > 0
    uncached, *cached = found["cache"][-4:]
    assert uncached["rows_computed"] == 1.0
    assert cached[-1]["rows_computed"] < 0.6
    assert all(point["strict"] is not None for point in found["cache"])
