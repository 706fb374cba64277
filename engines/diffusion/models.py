"""From a folder in the diffusers layout to the `StepModel` that takes it apart, by the class that its `model_index.json` names."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from ..errors import EngineError, WeightsError
from ..interface import MediaCapabilities
from .step_model import StepModel
from .tinyflow.media import MEDIA as TINYFLOW

_STEP_MODELS = {
    "TinyFlowPipeline": (".tinyflow.steps", "TinyFlowSteps"),
    "FluxPipeline": (".flow_steps", "FlowSteps"),
    "StableDiffusion3Pipeline": (".flow_steps", "FlowSteps"),
}
_KNOWN = {"TinyFlowPipeline": TINYFLOW}
"""What a class makes, where that is known before its weights are loaded."""


def class_name(folder: Path) -> str:
    """The pipeline class that a folder was saved from. Raises `WeightsError`."""
    index = folder / "model_index.json"
    try:
        name = json.loads(index.read_text(encoding="utf-8"))["_class_name"]
    except FileNotFoundError:
        raise WeightsError(f"{folder} is no folder in the diffusers layout: there is no model_index.json in it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{index} cannot be read: {error}") from error
    if not isinstance(name, str):
        raise WeightsError(f"{index}: _class_name is not a string")
    return name


def media(folder: Path) -> MediaCapabilities | None:
    """What a folder's model makes; None when only the loaded model can tell. Needs no torch. Raises `WeightsError`."""
    return _KNOWN.get(class_name(folder))


def load(folder: Path, threads: int) -> StepModel:
    """Load a folder's model for `threads` threads; on the thread that will compute. Raises `EngineError`."""
    name = class_name(folder)
    if name not in _STEP_MODELS:
        raise EngineError(
            f"{folder} holds a {name}, which cannot be taken apart at its steps (what can: {', '.join(sorted(_STEP_MODELS))}); "
            'an engine of kind "diffusers" runs it whole',
            code="invalid_configuration",
        )
    import diffusers
    import torch
    import transformers

    for library in (diffusers, transformers):
        library.utils.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    module, steps = _STEP_MODELS[name]
    model: StepModel = getattr(importlib.import_module(module, __package__), steps)(folder)
    return model
