"""Being called after each denoising step of a pipeline, in whichever way it allows: to tell, to step aside, to stop.

A run is stopped by an exception out of that call. The pipelines' own `_interrupt` flag is not used: it lets the loop run empty and then
still decodes a picture, and not every pipeline has it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Protocol


class Stopped(BaseException):
    """Ends a run whose request was closed. Like a cancellation, it is no `Exception`: no handler in a pipeline may swallow it."""


class Way(enum.Enum):
    """How a pipeline lets itself be followed, the best first."""

    CALLBACK_ON_STEP_END = enum.auto()
    CALLBACK = enum.auto()
    SCHEDULER = enum.auto()
    """It calls nobody, but has a scheduler whose `step` it calls once in each step."""
    NONE = enum.auto()


class AfterStep(Protocol):
    """Called on the run's thread: `step` of `steps` are done; the latents where the pipeline tells them. May raise `Stopped`."""

    def __call__(self, step: int, steps: int, latents: Any) -> None: ...


def way_of(parameters: Mapping[str, Any], scheduler: bool) -> Way:
    """The way for a pipeline whose call has these parameters."""
    if "callback_on_step_end" in parameters:
        return Way.CALLBACK_ON_STEP_END
    if "callback" in parameters:
        return Way.CALLBACK
    return Way.SCHEDULER if scheduler else Way.NONE


def follow(pipeline: Any, arguments: dict[str, Any], parameters: Mapping[str, Any], after_step: AfterStep) -> None:
    """Arrange that `after_step` is called: by adding to the arguments of the call, or on the run's own scheduler."""
    match way_of(parameters, hasattr(getattr(pipeline, "scheduler", None), "step")):
        case Way.CALLBACK_ON_STEP_END:
            arguments["callback_on_step_end"] = _on_step_end(after_step)
            if "callback_on_step_end_tensor_inputs" in parameters and "latents" in getattr(pipeline, "_callback_tensor_inputs", ()):
                arguments["callback_on_step_end_tensor_inputs"] = ["latents"]
        case Way.CALLBACK:
            arguments["callback"] = lambda index, _, latents: after_step(index + 1, steps_of(pipeline), latents)
            if "callback_steps" in parameters:
                arguments["callback_steps"] = 1
        case Way.SCHEDULER:
            _watch_scheduler(pipeline, after_step)


def steps_of(pipeline: Any) -> int:
    """How many steps the run really takes: fewer than asked for when it starts from a picture."""
    counted = getattr(pipeline, "_num_timesteps", None)
    return counted if isinstance(counted, int) else len(pipeline.scheduler.timesteps)


def _on_step_end(after_step: AfterStep) -> Callable[[Any, int, Any, dict[str, Any]], dict[str, Any]]:
    def called(pipeline: Any, index: int, _: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        after_step(index + 1, steps_of(pipeline), tensors.get("latents"))
        return tensors

    return called


def _watch_scheduler(pipeline: Any, after_step: AfterStep) -> None:
    """Count the calls of the scheduler's `step`. The scheduler is this run's own copy, so the watch goes away with it."""
    scheduler = pipeline.scheduler
    original = scheduler.step
    done = 0

    def step(*args: Any, **options: Any) -> Any:
        nonlocal done
        result = original(*args, **options)
        done += 1
        after_step(done, len(scheduler.timesteps), result[0])
        return result

    scheduler.step = step
