"""A lerobot policy with its processors, made by lerobot from the files of a checkpoint."""

from __future__ import annotations

import contextlib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model

from ...errors import EngineError, WeightsError
from ..digest import check_digest
from .checkpoint import TOKENIZER, WEIGHTS, Checkpoint, Processor

DEVICE_STEP = "device_processor"
UNTRAINED = {"pretrained_backbone_weights": None, "load_vlm_weights": False, "compile_model": False}
"""Settings of training that would have lerobot download weights, which the checkpoint then replaces; and no compiling, since the number of
rows changes with each step."""


@dataclass(slots=True)
class Loaded:
    """`policy` is lerobot's (a `PreTrainedPolicy`), `preprocess` maps a batch of lerobot's names to what it takes, `postprocess` its
    actions `[n, A]` to the robot's units."""

    policy: Any
    preprocess: Any
    postprocess: Any
    device: torch.device


def load(checkpoint: Checkpoint, *, device: str, tokenizer: str = "", sha256: str = "") -> Loaded:
    """Read the weights. Raises `WeightsError` when they do not fit or are not those of `sha256`, `EngineError` for the rest.

    lerobot's own `from_pretrained` lets weights that do not fit pass with a line in the log (and some policies then run untrained), so
    the weights are read here, strictly.
    """
    file = checkpoint.folder / WEIGHTS
    check_weights(file, sha256)
    configs = _module("lerobot.configs.policies")
    factory = _module("lerobot.policies.factory")
    with _clear(checkpoint), contextlib.redirect_stdout(sys.stderr):
        config = configs.PreTrainedConfig.from_pretrained(checkpoint.folder, cli_overrides=[f"--device={device}"])
        if str(config.device) != device:
            raise EngineError(
                f"there is no device {device!r} here for the lerobot checkpoint {checkpoint.folder}", code="invalid_configuration"
            )
        for name in UNTRAINED.keys() & vars(config).keys():
            setattr(config, name, UNTRAINED[name])
        policy = factory.get_policy_class(config.type)(config)
        try:
            load_model(policy, file, strict=True, device=device)
        except RuntimeError as error:
            raise WeightsError(f"the weights {file} do not fit their {config.type!r} policy: {error}") from error
        preprocess, postprocess = factory.make_pre_post_processors(
            config,
            pretrained_path=str(checkpoint.folder),
            preprocessor_overrides=_overrides(checkpoint.preprocessor, device, tokenizer),
            postprocessor_overrides=_overrides(checkpoint.postprocessor, "cpu", ""),
        )
    policy.to(device).eval().requires_grad_(False)
    return Loaded(policy, preprocess, postprocess, torch.device(device))


def check_weights(file: Path, sha256: str) -> None:
    """Raise `WeightsError` when the file is cut short or, where a digest is given, another one."""
    check_digest(file, sha256)
    try:
        with safe_open(file, framework="pt"):
            pass
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"the weights {file} cannot be read: {error}") from error


def populate_queues(queues: Any, moment: dict[str, torch.Tensor]) -> None:
    """Have a policy that keeps the last observations see one more."""
    _module("lerobot.policies.utils").populate_queues(queues, moment)


def _overrides(processor: Processor, device: str, tokenizer: str) -> dict[str, Any]:
    wanted: dict[str, dict[str, Any]] = {DEVICE_STEP: {"device": device}}
    if tokenizer:
        wanted[TOKENIZER] = {"tokenizer_name": tokenizer}
    return {name: values for name, values in wanted.items() if processor.find(name)}


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        what = "lerobot" if error.name in ("lerobot", name) else error.name
        raise EngineError(
            f"policies of lerobot need the Python package {what!r}, which {sys.executable} does not have: "
            "install lerobot 0.4 in an environment of its own and name its interpreter as the engine's 'python'",
            code="missing_package",
        ) from error
    except (ImportError, TypeError, AttributeError, RuntimeError) as error:  # a package beside it is of a version that it was not made for
        raise EngineError(
            f"lerobot cannot be imported by {sys.executable}: {type(error).__name__}: {error}", code="missing_package"
        ) from error


@contextlib.contextmanager
def _clear(checkpoint: Checkpoint) -> Any:
    """lerobot, draccus and transformers raise what they like about files that they cannot use."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:
        raise EngineError(
            f"lerobot cannot open the checkpoint {checkpoint.folder}: {type(error).__name__}: {error}", code="invalid_configuration"
        ) from error
