"""The pipeline itself: found, loaded, put on its device, and freed. Everything here runs on the engine's own thread."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...errors import EngineError, InvalidRequestError, WeightsError
from .facts import Facts
from .options import DiffusersOptions
from .source import Source
from .steps import Way, way_of

log = logging.getLogger(__name__)

# What a pipeline must be given but takes from elsewhere than the request's own fields.
_GIVEN = {"prompt", "image", "mask_image", "num_frames", "video_length", "width", "height"}


@dataclass(slots=True)
class Loaded:
    """A pipeline that is ready. `schedulers` are untouched copies: each run gets fresh ones, so no run sees another's steps."""

    pipeline: Any
    device: str
    offload: str
    schedulers: dict[str, Any]
    variants: dict[str, Any] = field(default_factory=dict)

    def for_(self, kind: str) -> Any:
        """The pipeline for a kind of request: "text", "image" (it starts from a picture), "mask" (only a part may change).

        The variants share the weights. Raises `InvalidRequestError` when diffusers has none.
        """
        taken = parameters(self.pipeline)
        if kind == "text" or (kind == "image" and "image" in taken) or (kind == "mask" and "mask_image" in taken):
            return self.pipeline
        if kind not in self.variants:
            from diffusers import AutoPipelineForImage2Image, AutoPipelineForInpainting

            auto, name = (AutoPipelineForImage2Image, "image") if kind == "image" else (AutoPipelineForInpainting, "mask")
            try:
                variant = auto.from_pipe(self.pipeline)
            except ValueError:
                raise InvalidRequestError(f"{name}: {type(self.pipeline).__name__} makes nothing from a {name}") from None
            self.variants[kind] = _quiet(variant)
        return self.variants[kind]

    @contextmanager
    def fresh(self, pipeline: Any) -> Iterator[None]:
        """Fresh schedulers before a run; after it, whatever way it ended, the state that a run leaves behind is cleared."""
        for name, scheduler in self.schedulers.items():
            setattr(pipeline, name, copy.deepcopy(scheduler))
        pipeline._interrupt = False
        try:
            yield
        except BaseException:
            if self.offload != "sequential":  # with "sequential" each layer has gone back by itself
                self.pipeline.maybe_free_model_hooks()
            raise


def pipeline_class(source: Source, options: DiffusersOptions) -> Any:
    """The pipeline's class, without its weights. Raises `EngineError`."""
    import diffusers

    index = source.read("model_index.json") or {}
    name = index.get("_class_name")
    if isinstance(name, str):
        found = getattr(diffusers, name, None)
        if found is None:
            raise EngineError(
                f"diffusers {diffusers.__version__} has no {name}; the model was saved with {index.get('_diffusers_version')}: update it",
                code="invalid_configuration",
            )
        return found
    if not options.trust_code:
        raise EngineError(
            f"{source.name} brings Python code of its own. Read it, and set trust_code = true if you want it to run.",
            code="invalid_configuration",
        )
    from diffusers.utils.dynamic_modules_utils import get_class_from_dynamic_module

    module, class_name = list(name or [])[:2]
    return get_class_from_dynamic_module(
        source.name,
        f"{module}.py",
        class_name=class_name,
        revision=source.revision,
        local_files_only=source.offline,
        trust_remote_code=True,
    )


def load(source: Source, facts: Facts, options: DiffusersOptions) -> Loaded:
    """Load everything and put it on its device. Raises `WeightsError` for what is missing, `EngineError` for what cannot be."""
    import diffusers
    import torch
    import transformers

    for library in (diffusers, transformers):
        library.utils.logging.disable_progress_bar()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = _device(options)
    dtype = getattr(torch, options.dtype) if options.dtype != "auto" else (torch.float32 if device == "cpu" else torch.bfloat16)
    try:
        loader: Any = diffusers.DiffusionPipeline
        pipeline = loader.from_pretrained(
            source.name,
            dtype=dtype,
            variant=options.variant or None,
            revision=source.revision,
            local_files_only=source.offline,
            trust_remote_code=options.trust_code,
            **dict.fromkeys(facts.missing),  # else diffusers asks for the parts that the folder leaves out
        )
    except ImportError as error:
        raise EngineError(f"{source.name} needs a Python package: {error}", code="missing_package") from error
    except (OSError, KeyError) as error:
        raise WeightsError(f"{source.name} cannot be loaded: {error}. Bring the model's files here again.") from error
    except ValueError as error:
        raise EngineError(f"{source.name} cannot be loaded: {error}", code="invalid_configuration") from error
    _check_arguments(pipeline, options.arguments)
    _quiet(pipeline)
    _place(pipeline, device, options)
    schedulers = {name: copy.deepcopy(part) for name, part in pipeline.components.items() if isinstance(part, diffusers.SchedulerMixin)}
    log.info("%s is loaded on %s in %s", type(pipeline).__name__, device, str(dtype).removeprefix("torch."))
    return Loaded(pipeline, device, options.offload, schedulers)


def parameters(pipeline: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of the pipeline's call, by name."""
    return {
        name: parameter
        for name, parameter in inspect.signature(pipeline.__call__).parameters.items()
        if name != "self" and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def temporal_scale(pipeline: Any) -> int | None:
    """Frames to a latent, where the pipeline says so itself."""
    for name in ("vae_scale_factor_temporal", "vae_temporal_compression_ratio", "vae_temporal_scale_factor"):
        if isinstance(scale := getattr(pipeline, name, None), int):
            return scale
    return None


def way_to_stop(source: Source, options: DiffusersOptions) -> Way:
    """How a run of the pipeline can be followed and stopped. Raises `EngineError`."""
    kind = pipeline_class(source, options)
    return way_of(inspect.signature(kind.__call__).parameters, "scheduler" in inspect.signature(kind.__init__).parameters)


def _device(options: DiffusersOptions) -> str:
    import torch

    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise EngineError(f"device = {device!r}, but torch sees no GPU here", code="invalid_configuration")
    if device == "cpu" and options.offload != "none":
        raise EngineError(f"offload = {options.offload!r} spares a GPU's memory, but there is no GPU here", code="invalid_configuration")
    return device


def _place(pipeline: Any, device: str, options: DiffusersOptions) -> None:
    if options.offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    elif options.offload == "sequential":
        pipeline.enable_sequential_cpu_offload(device=device)
    else:
        try:
            pipeline.to(device)
        except RuntimeError as error:
            raise EngineError(
                f'{type(pipeline).__name__} does not fit on {device}: {error}. Try offload = "model".', code="out_of_memory"
            ) from error
    if options.tiling and hasattr(getattr(pipeline, "vae", None), "enable_tiling"):
        pipeline.vae.enable_tiling()


def _quiet(pipeline: Any) -> Any:
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _check_arguments(pipeline: Any, given: Mapping[str, Any]) -> None:
    """The arguments of the configuration exist, and with them nothing is missing that no request could give."""
    taken = parameters(pipeline)
    unknown = sorted(set(given) - set(taken))
    if unknown:
        raise EngineError(
            f"arguments: {type(pipeline).__name__} takes no {', '.join(unknown)}; it takes {', '.join(taken)}", code="invalid_configuration"
        )
    needed = {name for name, parameter in taken.items() if parameter.default is parameter.empty}
    lacking = sorted(needed - set(given) - _GIVEN)
    if lacking:
        raise EngineError(
            f"{type(pipeline).__name__} cannot be called without {', '.join(lacking)}, which no request gives: set arguments.{lacking[0]}",
            code="invalid_configuration",
        )
