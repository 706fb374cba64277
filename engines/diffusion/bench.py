"""`python -m antiphon.engines.diffusion.bench`: what step-level batching and the residual cache are worth, as JSON on standard output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..messages import GenerateBody
from ..registry import build_engine
from . import cache_bench, models, serving_bench
from .probe import measure as probe
from .step_model import Frames, StepModel

MANY_STEPS = 20
THRESHOLDS = (0.0, 0.1, 0.2, 0.4)
CACHED = "TinyFlowPipeline"
"""The pipeline that has a residual cache, and a checker for its pictures."""


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m antiphon.engines.diffusion.bench", description=__doc__)
    parser.add_argument("--model", default="", help="a folder in the diffusers layout; default: the model that comes with the package")
    parser.add_argument("--requests", type=int, default=48, help="requests of each point")
    parser.add_argument("--loads", default="0.7,1.3,2", help="offered load, relative to what one request at a time can do")
    parser.add_argument("--pictures", type=int, default=64, help="pictures for the cache's error; 0: leave the cache out")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    engine: Any = build_engine("diffusion", "bench", {"model": arguments.model or None})
    print(json.dumps(run(engine.folder, arguments, _say), indent=1))


def run(folder: Path, arguments: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything measured."""
    model = models.load(folder, threads=1)
    measured = probe(model, 60.0)
    say(f"cap {measured.cap} rows; ms a step: {measured.milliseconds}")
    trials, judge = _trials(folder, max(arguments.requests, arguments.pictures), arguments.seed)
    bodies = [_body(model, text, seed, number) for number, (text, seed) in enumerate(trials[: arguments.requests])]
    loads = [float(load) for load in arguments.loads.split(",")]
    capacity, points = serving_bench.measure(model, _pipeline(folder), bodies, loads, measured.cap, say)
    cache: list[cache_bench.CachePoint] = []
    if arguments.pictures and models.class_name(folder) == CACHED:
        counts = sorted({model.media.default_steps, MANY_STEPS})
        cache = cache_bench.measure(model, trials[: arguments.pictures], counts, THRESHOLDS, judge, measured.cap, say)
    return {
        "model": folder.name,
        "cap": measured.cap,
        "step_ms": {str(rows): took for rows, took in measured.milliseconds.items()},
        "serial_per_second": capacity,
        "serving": [asdict(point) for point in points],
        "cache": [asdict(point) for point in cache],
    }


def _body(model: StepModel, text: str, seed: int, number: int) -> GenerateBody:
    """Requests of different lengths: two thirds, once, and one and a half times the model's own number of steps."""
    steps = model.media.default_steps
    return GenerateBody(prompt=text, seed=seed, steps=(max(1, 2 * steps // 3), steps, 3 * steps // 2)[number % 3])


def _pipeline(folder: Path) -> Callable[[GenerateBody, Callable[[], None]], Any]:
    """The stock way: the whole pipeline, one request at a time."""
    import diffusers
    import torch

    pipe: Any
    if models.class_name(folder) == CACHED:
        from .tinyflow.pipeline import TinyFlowPipeline as pipe
    else:
        pipe = diffusers.DiffusionPipeline
    loaded = pipe.from_pretrained(str(folder), local_files_only=True)
    loaded.set_progress_bar_config(disable=True)

    def call(body: GenerateBody, first_step: Callable[[], None]) -> Any:
        def stepped(*_: Any) -> dict[str, Any]:
            first_step()
            return {}

        generator = torch.Generator().manual_seed(body.seed)
        return loaded(body.prompt, num_inference_steps=body.steps, generator=generator, output_type="np", callback_on_step_end=stepped)

    return call


def _trials(folder: Path, count: int, seed: int) -> tuple[list[tuple[str, int]], cache_bench.Judge | None]:
    """Prompts with seeds, and who judges their pictures."""
    if models.class_name(folder) != CACHED:
        return [(f"picture {number}", number) for number in range(count)], None
    from .training.evaluation import draw_trials, judge
    from .training.world import PICTURE_KINDS

    each = -(-count // len(PICTURE_KINDS))
    by_kind = [draw_trials(kind, each, seed) for kind in PICTURE_KINDS]
    trials = [trial for several in zip(*by_kind, strict=True) for trial in several][:count]

    def strict(number: int, frames: Frames) -> bool:
        return judge(trials[number], frames).verdict["strict"]

    return [(trial.prompt, trial.seed) for trial in trials], strict


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
