"""How states and actions are scaled for the network; part of a policy's card."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .dataset import Floats, Windows

SMALL = 1e-4
"""A number of the state that varies less than this never varied: it is left as it is."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Means and deviations, `[S]` and `[A]`."""

    state_mean: Floats
    state_std: Floats
    action_mean: Floats
    action_std: Floats

    @classmethod
    def of(cls, windows: Windows, least: float = 0.005) -> Scaling:
        """Measured. Deviations of the state count as at least `least`, so that what hardly moves does not shout."""
        spread = windows.states.std(0)
        actions = windows.chunks.reshape(-1, windows.chunks.shape[-1])
        return cls(
            windows.states.mean(0).astype(np.float32),
            np.where(spread < SMALL, 1.0, np.maximum(spread, least)).astype(np.float32),
            actions.mean(0).astype(np.float32),
            (actions.std(0) + 1e-3).astype(np.float32),
        )

    def states(self, raw: Floats, clip: float) -> Floats:
        """Normalised, as the served policy does it."""
        scaled: Floats = np.clip((raw - self.state_mean) / self.state_std, -clip, clip).astype(np.float32)
        return scaled

    def actions(self, raw: Floats) -> Floats:
        """Normalised."""
        return ((raw - self.action_mean) / self.action_std).astype(np.float32)
