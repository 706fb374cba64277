"""Who makes what was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from ...engines.interface import MediaCapabilities


@dataclass(frozen=True, slots=True)
class Target:
    """The engine that will do a job, and what it can make. `model` is the name that was asked for."""

    lane: str
    model: str
    media: MediaCapabilities
