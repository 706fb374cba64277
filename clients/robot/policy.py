"""What a server says of its policy before anything else. openpi's own says little: what it leaves out is learnt, or set by the owner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """A policy as a control loop sees it; None: the server does not say."""

    name: str = ""
    rate: float | None = None
    horizon: int | None = None
    action_dim: int | None = None
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    max_prefix: int = 0
    """Actions that a chunk can be told to continue."""
    marks: bool = False
    """Does the server take the optional fields (sequence, deadline, episode ...)?"""

    @classmethod
    def of(cls, metadata: Any) -> PolicyInfo:
        """Read the metadata; whatever is not as expected counts as not said."""
        told = metadata if isinstance(metadata, dict) else {}
        marks = isinstance(told.get("session"), dict) and "action_horizon" in told
        return cls(
            name=told["policy"] if isinstance(told.get("policy"), str) else "",
            rate=_positive(told.get("control_hz")),
            horizon=_count(told.get("action_horizon")),
            action_dim=_count(told.get("action_dim")),
            low=_bounds(told.get("action_low")),
            high=_bounds(told.get("action_high")),
            max_prefix=(_count(told.get("max_prefix")) or 0) if marks else 0,
            marks=marks,
        )

    def record(self) -> dict[str, Any]:
        """As an episode log keeps it."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> PolicyInfo:
        """The policy of a log."""
        fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
        return cls(**fields)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _positive(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf") else None


def _bounds(value: Any) -> tuple[float, ...] | None:
    try:
        found = tuple(float(one) for one in value)
    except (TypeError, ValueError):
        return None
    return found if found and all(math.isfinite(one) for one in found) else None
