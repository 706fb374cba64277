"""The runner that calls the pipeline on a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...cpu import worker
from ...errors import EngineError, EngineUnavailableError, InvalidRequestError
from ...gate import GateReader
from ...interface import EngineHealth, MediaCapabilities
from ...messages import Raster
from .. import rasters
from ..step_model import Frames
from .arguments import Call, Plan
from .facts import Facts, refined
from .loading import Loaded, load, parameters, temporal_scale
from .options import DiffusersOptions
from .output import composed, frames_of
from .previews import Previewer
from .run import Result, ThreadRun
from .source import Source
from .steps import Stopped, Way, follow, steps_of, way_of

log = logging.getLogger(__name__)

CLOSE_S = 5.0
_LOOK_S = 0.002


class ThreadedRunner:
    """A loaded pipeline and its thread."""

    def __init__(self, source: Source, facts: Facts, options: DiffusersOptions) -> None:
        self._source = source
        self._facts = facts
        self._options = options
        self._executor = worker("diffusers")
        self._loaded: Loaded | None = None
        self._gate: GateReader | None = None
        self._run: ThreadRun | None = None
        self._broken = ""
        self._held = 0
        self._held_s = 0.0

    async def open(self) -> MediaCapabilities:
        """Load the pipeline, and read from it what its files did not tell. Raises `EngineError`."""
        if self._options.gate:
            try:
                self._gate = GateReader(Path(self._options.gate_file) if self._options.gate_file else None)
            except OSError as error:
                log.warning("no realtime gate: %s", error)
        loop = asyncio.get_running_loop()
        self._loaded = await loop.run_in_executor(self._executor, load, self._source, self._facts, self._options)
        pipeline = self._loaded.pipeline
        return refined(self._facts.media, self._options, parameters(pipeline), temporal_scale(pipeline))

    def start(self, plan: Plan) -> ThreadRun:
        """Begin a request. Raises `EngineUnavailableError`."""
        loaded = self._loaded
        if loaded is None or self._broken:
            raise EngineUnavailableError(f"{self._facts.pipeline} is not usable: {self._broken or 'it is closed'}")
        self._run = ThreadRun(plan, partial(self._compute, loaded), self._executor, self._options.step_s)
        return self._run

    async def health(self) -> EngineHealth:
        """Not ok when the GPU has failed, or a step takes for ever."""
        run = self._run
        overdue = run is not None and run.overdue
        age = None if run is None else time.monotonic() - (run.last_step or run.began)
        detail = self._broken or (f"a step has taken more than {self._options.step_s:.0f} s" if overdue else "")
        return EngineHealth(
            ok=self._loaded is not None and not detail,
            running=int(run is not None and not run.done),
            last_step_age=age,
            memory=_gpu_memory(self._loaded),
            detail=detail or ("" if self._loaded is not None else "not open"),
            extra={"held": float(self._held), "held_seconds": self._held_s},
        )

    async def close(self) -> None:
        """Stop the run at its next step and free the pipeline. A run that does not stop in `CLOSE_S` keeps its thread and its memory."""
        loaded, self._loaded = self._loaded, None
        self._executor.submit(self._free, loaded)  # after the run
        self._executor.shutdown(wait=False)
        if self._run is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._run.stop(lambda: None)

    def _free(self, loaded: Loaded | None) -> None:
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        if loaded is not None and loaded.device.startswith("cuda"):
            loaded.pipeline = None
            loaded.variants.clear()
            _free_gpu_memory()

    # ---- on the thread ----------------------------------------------------------------------------------------------

    def _compute(self, loaded: Loaded, run: ThreadRun) -> Result:
        """Call the pipeline. Raises `Stopped`, `EngineError`."""
        import torch

        run.check()
        plan, body = run.plan, run.plan.body
        pipeline = loaded.for_(plan.kind)
        call = Call(type(pipeline).__name__, parameters(pipeline), self._options.arguments, self._options.guidance)
        arguments = call.arguments(plan, _default_size(pipeline), _picture)
        size = call.size(plan, _default_size(pipeline))
        if body.cache:
            _check_cache(pipeline)
        torch.manual_seed(body.seed)  # for the pipelines that draw without the generator
        if "generator" in call.parameters:
            arguments["generator"] = torch.Generator("cpu").manual_seed(body.seed)
        with self._translated(call.name, run), loaded.fresh(pipeline), _cached(pipeline, body.cache):
            follow(pipeline, arguments, call.parameters, self._after_step(pipeline, size, run))
            self._step_aside(run)
            frames = frames_of(pipeline(**arguments), call.name)
        run.check()
        _check_made(frames, size, body.frames, call.name)
        if plan.mask is not None:
            frames = composed(frames, np.asarray(arguments["image"]), np.asarray(arguments["mask_image"]))
        steps = _steps(pipeline, call, plan)
        if run.last_step is None:
            run.report(steps, steps, None)  # nobody told: all at once
        return Result(frames, steps)

    def _after_step(self, pipeline: Any, size: tuple[int, int] | None, run: ThreadRun) -> Any:
        previews = run.plan.body.previews
        previewer = Previewer(pipeline, size or (0, 0), run.plan.body.frames) if previews else None

        def after_step(step: int, steps: int, latents: Any) -> None:
            run.check()
            preview = None
            if previewer is not None and latents is not None:
                previewer.saw(latents)
                if rasters.preview_due(step, steps, previews):
                    preview = _shown(previewer, step)
            run.report(min(step, steps), steps, preview)
            if step < steps:
                self._step_aside(run)
            run.check()

        return after_step

    def _step_aside(self, run: ThreadRun) -> None:
        """Wait while realtime work is being computed on this machine, but at most `hold_ms` at each step: a job must not starve."""
        gate, limit = self._gate, self._options.hold_ms / 1000
        if gate is None or limit <= 0 or not gate.busy():
            return
        began = time.monotonic()
        while gate.busy() and time.monotonic() - began < limit and not run.stopping.wait(_LOOK_S):
            pass
        self._held += 1
        self._held_s += time.monotonic() - began

    @contextmanager
    def _translated(self, name: str, run: ThreadRun) -> Iterator[None]:
        """What the pipeline raises, as what the engine raises."""
        try:
            yield
        except (Stopped, EngineError):
            raise
        except ValueError as error:
            if run.last_step is None:  # the pipelines check their arguments before the first step
                raise InvalidRequestError(f"{name} refuses this request: {error}") from error
            raise EngineError(f"{name} failed: {error}") from error
        except Exception as error:  # whatever it is, the stream must be told, and the engine must know whether it can go on
            if type(error).__name__ == "OutOfMemoryError":
                _free_gpu_memory()
                raise EngineError(
                    f"{name} ran out of memory: ask for a smaller size or fewer frames, or set offload or tiling", code="out_of_memory"
                ) from error
            if "CUDA error" in str(error):
                self._broken = f"the GPU has failed: {str(error).splitlines()[0]}"
            raise EngineError(f"{name} failed: {type(error).__name__}: {error}") from error


def _shown(previewer: Previewer, step: int) -> Raster | None:
    """A preview. It is an extra: when it cannot be made (an unusual codec, no memory for it), the picture is made all the same."""
    try:
        return rasters.raster(previewer.frame(step))
    except Exception:
        log.exception("a preview could not be made")
        return None


def _default_size(pipeline: Any) -> tuple[int, int] | None:
    """(width, height) that a pipeline makes when it is not told one, from where diffusers keeps it."""
    scale = getattr(pipeline, "vae_scale_factor", None) or getattr(pipeline, "vae_scale_factor_spatial", None) or 1
    sides = getattr(pipeline, "default_sample_size", None)
    if sides is None:
        denoiser = getattr(pipeline, "transformer", None) or getattr(pipeline, "unet", None)
        config = getattr(denoiser, "config", {})
        if config.get("sample_width") and config.get("sample_height"):
            return config["sample_width"] * scale, config["sample_height"] * scale
        sides = config.get("sample_size")
    return (sides * scale, sides * scale) if isinstance(sides, int) else None


def _steps(pipeline: Any, call: Call, plan: Plan) -> int:
    if way_of(call.parameters, hasattr(getattr(pipeline, "scheduler", None), "timesteps")) is Way.NONE:
        return plan.steps
    return steps_of(pipeline)


def _check_made(frames: Frames, size: tuple[int, int] | None, count: int, name: str) -> None:
    """The pipelines round what they are asked for with a word in the log; nobody should get another size or length than they asked for."""
    made = (frames.shape[2], frames.shape[1])
    if size is not None and made != size:
        sizes = "{}x{} instead of {}x{}".format(*made, *size)
        raise EngineError(f"{name} made {sizes}: set multiple in the engine's options", code="bad_output")
    if len(frames) != count:
        raise EngineError(f"{name} made {len(frames)} frames instead of {count}: set frame_step in the engine's options", code="bad_output")


def _picture(array: Any) -> Any:
    from PIL import Image

    return Image.fromarray(array)


def _check_cache(pipeline: Any) -> None:
    denoiser = getattr(pipeline, "transformer", None)
    if not hasattr(denoiser, "enable_cache"):
        raise InvalidRequestError(f"cache: {type(pipeline).__name__} cannot reuse what it computed in earlier steps")


@contextmanager
def _cached(pipeline: Any, threshold: float | None) -> Iterator[None]:
    """The first-block cache around a run: while the first block's output moves less than `threshold`, the others' is used again."""
    if not threshold:
        yield
        return
    import diffusers

    config: Any = diffusers.FirstBlockCacheConfig
    pipeline.transformer.enable_cache(config(threshold=threshold))
    try:
        yield
    finally:
        pipeline.transformer.disable_cache()


def _gpu_memory(loaded: Loaded | None) -> int | None:
    if loaded is None or not loaded.device.startswith("cuda"):
        return None
    import torch

    return int(torch.cuda.memory_reserved())


def _free_gpu_memory() -> None:
    import torch

    with contextlib.suppress(RuntimeError):
        torch.cuda.empty_cache()
