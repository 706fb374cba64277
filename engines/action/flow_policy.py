"""The action engine of the policies that come with the package: a card and weights, flow matching."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .card import Card, load_card
from .device import check_device
from .step_engine import StepEngine, missing_package, warm_up

if TYPE_CHECKING:
    from .flow_model import FlowModel


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPolicyOptions:
    """`model` is the policy's folder (card and weights). `seats` robots at most share a step, `slots` wait or run at once.
    `threads` compute threads on a CPU; `device` as torch names it."""

    model: Path
    seats: int = 32
    slots: int = 128
    threads: int = 1
    device: str = "cpu"


class FlowPolicy(StepEngine[Any]):
    """See `StepEngine`."""

    def __init__(self, options: FlowPolicyOptions) -> None:
        self._options = options
        self.card: Card = load_card(options.model)
        super().__init__(self.card.capabilities(), seats=options.seats, slots=options.slots)

    def _load(self) -> FlowModel:
        try:
            import torch

            from .flow_model import FlowModel
        except ModuleNotFoundError as error:
            raise missing_package(self.card.policy, error) from error
        check_device(self._options.device)
        torch.set_num_threads(self._options.threads)
        model = FlowModel.load(self._options.model, self.card, self._options.device)
        warm_up(model, self.card.capabilities())
        return model
