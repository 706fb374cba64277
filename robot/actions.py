"""Actions, checked on the way out: whatever the policy does, nothing malformed, infinite or out of bounds reaches a motor."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..engines.interface import ActionCapabilities
from .errors import BadActions

SLACK = 1e-4
"""Of rounding at the bounds."""


def check_actions(actions: npt.NDArray[Any], capabilities: ActionCapabilities) -> npt.NDArray[np.float32]:
    """`[H, A]` float32 as it is. Raises `BadActions`."""
    expected = (capabilities.horizon, capabilities.action_dim)
    if actions.shape != expected or actions.dtype != np.float32:
        raise BadActions(
            f"policy {capabilities.policy!r} made actions {actions.dtype} {list(actions.shape)}; expected float32 {list(expected)}"
        )
    if not np.isfinite(actions).all():
        raise BadActions(f"policy {capabilities.policy!r} made actions that are not finite numbers")
    if capabilities.low and (actions < np.asarray(capabilities.low, np.float32) - SLACK).any():
        raise BadActions(f"policy {capabilities.policy!r} made actions below their bounds")
    if capabilities.high and (actions > np.asarray(capabilities.high, np.float32) + SLACK).any():
        raise BadActions(f"policy {capabilities.policy!r} made actions above their bounds")
    return actions
