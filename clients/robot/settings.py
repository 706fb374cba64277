"""How a robot is controlled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

Handover = Literal["wait", "switch", "rtc", "ensemble"]
HANDOVERS: tuple[Handover, ...] = ("wait", "switch", "rtc", "ensemble")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """All times in seconds. Raises `ValueError` for what makes no sense."""

    handover: Handover = "rtc"
    """See `handover`. Without a server that takes a prefix, "rtc" is "switch"."""
    rate: float | None = None
    """Control steps a second; None: the policy's own, if its metadata says."""
    execute: int | None = None
    """Actions of a chunk to be played before the next one takes over; None: half of the horizon. A chunk that is late is bridged with the
    rest of the one before (not with "wait")."""
    hold_limit_s: float = 1.0
    """After so long without an action the robot is stopped, until its next episode."""
    startup_s: float = 120.0
    """The same until an episode's first action: a policy may have to be compiled."""
    reply_timeout_s: float = 2.0
    """A reply that takes longer is given up, and the connection with it."""
    first_timeout_s: float = 120.0
    """The same for a connection's first reply."""
    connect_timeout_s: float = 10.0
    finish_plan: bool = False
    """When the connection is lost: play what is left of the chunk, instead of holding at once."""
    ensemble_decay: float = 0.01
    """m of the weights exp(-m i) of overlapping chunks, i = 0 the oldest (Zhao et al. 2023, "ACT"); negative: the newest weighs most."""
    ensemble_chunks: int = 8
    """Chunks that may overlap; policy: the oldest is forgotten."""
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    """Bounds of the actions, `[A]`; what lies beyond them is clipped and counted. None: those of the policy's metadata, if it has any."""
    jump_dims: int | None = None
    """How many of an action's first numbers count for the jumps at chunk borders (a gripper's may jump); None: all."""

    def __post_init__(self) -> None:
        if self.handover not in HANDOVERS:
            raise ValueError(f"handover must be one of {', '.join(HANDOVERS)}, not {self.handover!r}")
        for name in ("rate", "hold_limit_s", "startup_s", "reply_timeout_s", "first_timeout_s", "connect_timeout_s"):
            value = getattr(self, name)
            if not (value is None and name == "rate") and not (_is_number(value) and 0 < value < math.inf):
                raise ValueError(f"{name} must be a positive number, not {value!r}")
        for name in ("execute", "ensemble_chunks", "jump_dims"):
            value = getattr(self, name)
            if not (value is None and name != "ensemble_chunks") and not (type(value) is int and value >= 1):
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        for name in ("low", "high"):
            bounds = getattr(self, name)
            if bounds is not None and not _are_numbers(bounds):
                raise ValueError(f"{name} must be a tuple of finite numbers, not {bounds!r}")
        if self.low is not None and self.high is not None and not _are_ordered(self.low, self.high):
            raise ValueError(f"low must have as many numbers as high, and none above its: {self.low!r}, {self.high!r}")
        if not (_is_number(self.ensemble_decay) and math.isfinite(self.ensemble_decay)):
            raise ValueError(f"ensemble_decay must be a finite number, not {self.ensemble_decay!r}")

    def record(self) -> dict[str, Any]:
        """As an episode log keeps it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self._fields()}

    @classmethod
    def of(cls, record: dict[str, Any]) -> ControlSettings:
        """The settings of a log."""
        fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
        return cls(**fields)

    def _fields(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__dataclass_fields__]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(_is_number(one) and math.isfinite(one) for one in value)


def _are_ordered(low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    return len(low) == len(high) and all(one <= other for one, other in zip(low, high, strict=True))
