"""Chunks, checked, and what ties each to the observation that it was made from.

Steps are counted in *executed actions* of the policy: while a robot holds still, this count stands still with it. An observation made
when n actions had been executed gives a chunk whose action i belongs to the count n + i. So a late chunk skips just the actions
that were really executed since its observation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Action = npt.NDArray[np.float32]
Chunk = npt.NDArray[np.float32]
"""`[H, A]`"""

MAX_CHUNK = 1 << 20
"""Numbers of a chunk at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A request on its way: what its reply must fit."""

    sequence: int
    epoch: int
    base: int
    """Actions executed when its observation was made."""
    asked_at: float
    step: int = 0
    """Control steps taken when it was made, holding included."""
    prefix: int = 0
    """Actions that the chunk was told to continue."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A chunk that may be executed."""

    ticket: Ticket
    actions: Chunk
    first: int
    """Index of the first action that was still ahead when the chunk came."""
    until: float
    """When its actions are too old for any use."""

    def action(self, executed: int) -> Action | None:
        """The action for the count `executed`."""
        index = executed - self.ticket.base
        return self.actions[index] if 0 <= index < len(self.actions) else None

    def decides(self, executed: int) -> bool:
        """Is this the count at which the chunk begins to decide by itself? Before it was there, and as far as it was told what to begin
        with, its actions are the former chunk's."""
        return executed - self.ticket.base == max(self.first, self.ticket.prefix)


def check_chunk(value: Any, action_dim: int | None) -> Chunk | str:
    """The actions of a reply as float32 `[H, A]`, or what is wrong with them: "not_actions", "wrong_shape", "not_finite". A copy: what
    comes from the wire is a view of its message."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu":
        return "not_actions"
    if value.ndim != 2 or not value.size or value.size > MAX_CHUNK or (action_dim is not None and value.shape[1] != action_dim):
        return "wrong_shape"
    with np.errstate(over="ignore", invalid="ignore"):
        actions = np.array(value, np.float32)
    return actions if bool(np.isfinite(actions).all()) else "not_finite"
