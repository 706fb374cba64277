"""What a policy must offer so that robots that stand at different integration steps share its forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..messages import ActBody

Actions = npt.NDArray[np.float32]


class Row(Protocol):
    """One robot's chunk in the making; the policy's own class, opaque but for these."""

    step: int
    """Steps done so far."""
    steps: int
    seed: int
    prefix_length: int


R = TypeVar("R", bound=Row)


class StepPolicy(Protocol[R]):
    """See the module's docstring. Everything here computes and is called on one thread only.

    A row's actions depend on its body and seed alone, whoever shares its steps (up to float rounding).
    """

    def prepare(self, body: ActBody, seed: int) -> R:
        """Read one observation and draw its noise. Raises `InvalidRequestError`."""

    def begin(self, rows: Sequence[R]) -> None:
        """Encode the observations of new rows, in one go."""

    def advance(self, rows: Sequence[R]) -> None:
        """Take each row one integration step further, in one forward pass. When it raises no row has changed."""

    def finish(self, row: R) -> Actions:
        """`[H, A]` float32 in the robot's units, its prefix first, of a row that has done its steps."""
