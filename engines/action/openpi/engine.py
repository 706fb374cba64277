"""The engine of openpi's checkpoints for PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...errors import EngineError
from ..device import check_device
from ..digest import check_digest
from ..step_engine import StepEngine, missing_package, warm_up
from .checkpoint import PRESETS, WEIGHTS, Checkpoint, Wiring
from .tokens import Tokenizer

if TYPE_CHECKING:
    from .model import Pi0Model

MAX_STEPS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenpiPolicyOptions:
    """`model` is the checkpoint's folder, `tokenizer` the file `paligemma_tokenizer.model` or a `tokenizer.json` of the same vocabulary.
    `rate` is the robot's, in actions a second.

    How the robot names things: a `preset` ("libero", "droid"), or `state` (key -> length, in order), `cameras` (the model's camera -> the
    robot's key), `action_dim` and `delta` (see `checkpoint.Wiring`), each of which replaces the preset's. `horizon`: the actions of a
    chunk, where `config.json` does not say. `asset` names the data set whose statistics count, where there are several. `quantiles`:
    scale by quantiles (pi0.5's way, the default there) or by mean and deviation (pi0's). `steps`: the usual integration steps. `policy`
    is the name it is served by ("": the folder's). `sha256` of `model.safetensors`, where it is to be checked. `seats` robots at most
    share a step, `slots` wait or run at once; `threads` compute threads on a CPU; `device` and `dtype` as torch names them.
    """

    model: Path
    tokenizer: Path
    rate: float
    preset: str = ""
    state: Mapping[str, int] = field(default_factory=dict)
    cameras: Mapping[str, str] = field(default_factory=dict)
    action_dim: int = 0
    delta: tuple[bool, ...] = ()
    horizon: int = 0
    asset: str = ""
    quantiles: bool | None = None
    steps: int = 10
    policy: str = ""
    sha256: str = ""
    seats: int = 8
    slots: int = 64
    threads: int = 1
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"


class OpenpiPolicy(StepEngine[Any]):
    """See `StepEngine`. A step is an integration step of the flow; what was seen and told is read once a chunk, before the first."""

    def __init__(self, options: OpenpiPolicyOptions) -> None:
        self._options = options
        if not 0 < options.rate < 10_000:
            raise EngineError("option rate must be the robot's actions a second, above 0", code="invalid_configuration")
        if not 1 <= options.steps <= MAX_STEPS:
            raise EngineError(f"option steps must lie between 1 and {MAX_STEPS}", code="invalid_configuration")
        self._checkpoint = Checkpoint.read(
            options.model, _wiring(options), horizon=options.horizon, asset=options.asset, quantiles=options.quantiles
        )
        name = options.policy or options.model.resolve().name
        self._action = self._checkpoint.capabilities(name, options.rate, options.steps, MAX_STEPS)
        super().__init__(self._action, seats=options.seats, slots=options.slots)

    def _load(self) -> Pi0Model:
        options, name = self._options, self._action.policy
        try:
            import torch

            from .model import Pi0Model
        except ModuleNotFoundError as error:
            raise missing_package(name, error) from error
        check_device(options.device)
        torch.set_num_threads(options.threads)
        tokenizer = Tokenizer(options.tokenizer)
        check_digest(self._checkpoint.folder / WEIGHTS, options.sha256)
        model = Pi0Model.load(
            self._checkpoint,
            tokenizer,
            device=options.device,
            dtype=getattr(torch, options.dtype),
            steps=options.steps,
            max_steps=MAX_STEPS,
        )
        if not np.isfinite(warm_up(model, self._action)).all():
            raise EngineError(f"policy {name!r} makes actions that are not finite numbers", code="not_finite")
        return model


def _wiring(options: OpenpiPolicyOptions) -> Wiring:
    """The preset, with what the options say instead. Raises `EngineError`."""
    if options.preset and options.preset not in PRESETS:
        raise EngineError(
            f"there is no preset {options.preset!r} for openpi's policies; there are: {', '.join(PRESETS)}", code="invalid_configuration"
        )
    wiring = PRESETS.get(options.preset, Wiring(state={}, cameras={}, action_dim=0))
    said: dict[str, Any] = {name: value for name in ("state", "cameras", "action_dim", "delta") if (value := getattr(options, name))}
    wiring = replace(wiring, **said)
    if not (wiring.state and wiring.cameras and wiring.action_dim):
        raise EngineError(
            "openpi's checkpoints do not say how a robot names things: give option preset "
            f"({', '.join(PRESETS)}), or state, cameras and action_dim",
            code="invalid_configuration",
        )
    return wiring
