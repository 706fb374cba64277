"""The engine of lerobot's checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import EngineError
from ..step_engine import StepEngine, missing_package, warm_up
from .checkpoint import Checkpoint, History, Layout

if TYPE_CHECKING:
    from .policies import LerobotModel

SHARING = ("act", "diffusion", "smolvla")
"""Policy types whose robots share forward passes. Each robot has one to itself with the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LerobotPolicyOptions:
    """`model` is the checkpoint's folder. `rate` is the robot's, in actions a second: checkpoints do not say.

    `keys` renames arrays of the observation: the robots' own key -> lerobot's ("observation.state"). `layout` is that of pictures on the
    wire. `history`, for policies that see several moments: "sent" (each array has them in its first dimension, the oldest first, one
    control step apart) or "repeated" (the robot sends one moment, which stands for those before it). `steps` are the usual denoising
    or integration steps (Diffusion Policy, SmolVLA; 0: the checkpoint's own). `policy` is the name it is served by ("": the folder's).
    `tokenizer` a folder with the tokenizer that the checkpoint names, where there is no hub. `sha256` of `model.safetensors`, where it
    is to be checked. `seats` robots at most share a step, `slots` wait or run at once; `threads` compute threads on a CPU; `device` as
    torch names it.
    """

    model: Path
    rate: float
    keys: Mapping[str, str] = field(default_factory=dict)
    layout: Layout = "HWC"
    history: History = "sent"
    steps: int = 0
    policy: str = ""
    tokenizer: str = ""
    sha256: str = ""
    seats: int = 32
    slots: int = 128
    threads: int = 1
    device: str = "cpu"


class LerobotPolicy(StepEngine[Any]):
    """See `StepEngine`. A step is one of denoising (Diffusion Policy) or of integration (SmolVLA), or the whole chunk (all others).

    Unopened, its capabilities are what the checkpoint's files say; open, their horizon is what the policy does.
    """

    def __init__(self, options: LerobotPolicyOptions) -> None:
        self._options = options
        self._checkpoint = Checkpoint.read(options.model)
        if not 0 < options.rate < 10_000:
            raise EngineError("option rate must be the robot's actions a second, above 0", code="invalid_configuration")
        self._wired = self._checkpoint.wired(options.keys, options.layout, options.history)
        steps, most = _steps(self._checkpoint, options.steps)
        name = options.policy or options.model.resolve().name
        self._action = self._checkpoint.capabilities(name, options.rate, self._wired, steps, most)
        super().__init__(self._action, seats=options.seats if self._checkpoint.config.type in SHARING else 1, slots=options.slots)

    async def open(self) -> None:
        await super().open()
        self.capabilities = dataclasses.replace(self.capabilities, action=self._action)

    def _load(self) -> LerobotModel:
        options, name = self._options, self._action.policy
        try:
            import torch

            from .loading import load
        except ModuleNotFoundError as error:
            raise missing_package(name, error) from error
        torch.set_num_threads(options.threads)
        loaded = load(self._checkpoint, device=options.device, tokenizer=options.tokenizer, sha256=options.sha256)
        kind = self._checkpoint.config.type
        model = _model_class(self._checkpoint)(loaded, self._checkpoint, self._wired, options.layout, self._action.steps)
        try:
            actions = warm_up(model, self._action)
        except EngineError:
            raise
        except Exception as error:  # whatever a policy that makes no chunks raises
            raise EngineError(f"the {kind!r} policy {name!r} of lerobot makes no chunks: {type(error).__name__}: {error}") from error
        if not np.isfinite(actions).all():
            raise EngineError(f"the {kind!r} policy {name!r} of lerobot makes actions that are not finite numbers", code="not_finite")
        self._action = dataclasses.replace(self._action, horizon=len(actions), action_dim=actions.shape[1])
        return model


def _model_class(checkpoint: Checkpoint) -> type[LerobotModel]:
    from .policies import BATCHED, BatchedModel, DiffusionModel, LerobotModel

    if checkpoint.flows:
        from .smolvla import SmolvlaModel

        return SmolvlaModel
    if checkpoint.config.type == "diffusion":
        return DiffusionModel
    return BatchedModel if checkpoint.config.type in BATCHED else LerobotModel


def _steps(checkpoint: Checkpoint, wanted: int) -> tuple[int, int]:
    """The usual and the most integration steps. Raises `EngineError`."""
    usual, most = checkpoint.steps
    if wanted not in (0, 1) and most == 1:
        kind = checkpoint.config.type
        raise EngineError(f"a {kind!r} policy of lerobot has no steps to choose: leave option steps out", code="invalid_configuration")
    if not 0 <= wanted <= most:
        raise EngineError(f"option steps must lie between 1 and {most}", code="invalid_configuration")
    return wanted or usual, most
