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
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be a positive number, not {value!r}")
        for name in ("execute", "ensemble_chunks", "jump_dims"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")
        for name in ("low", "high"):
            if not all(math.isfinite(bound) for bound in getattr(self, name) or ()):
                raise ValueError(f"{name} must hold finite numbers")
        if not math.isfinite(self.ensemble_decay):
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
