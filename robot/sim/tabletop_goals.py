"""What can be asked for in the table-top scene."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CUBES = ("red", "green", "blue")
PADS = ("white", "yellow")


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be done with which cube; `pad` when it is to be placed."""

    kind: Literal["place", "lift"]
    cube: str
    pad: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.cube}" + (f"-{self.pad}" if self.pad else "")


GOALS = {goal.name: goal for goal in (*(Goal("place", c, p) for c in CUBES for p in PADS), *(Goal("lift", c) for c in CUBES))}
"""By name."""
