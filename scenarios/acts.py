"""What a demo is made of: acts, each with its rows of the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .report import Figure


@dataclass(slots=True)
class Act:
    """What an act has to show. `failures` are sentences; without any it went well."""

    figures: list[Figure] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
