"""One simulated robot under chunks that come late, three ways: wait for them, switch to them, or have them continue what is running.

Without I/O and without a clock but the control step, so that a delay is exactly so many steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..sim.simulation import Action, Simulation
from .dataset import Floats

Handover = Literal["wait", "switch", "rtc"]


@dataclass(slots=True, eq=False)
class Rollout:
    """An episode under evaluation. `execute` actions of a chunk are played; a chunk asked for at step s is there at step s + `delay`.

    wait: ask when nothing is left, hold meanwhile. switch: ask `delay` steps before that, and skip what was really executed meanwhile. rtc:
    the same, but the chunk is told what will be executed meanwhile (its prefix), and continues it.
    """

    simulation: Simulation
    task: str
    prompt: str
    handover: Handover = "rtc"
    delay: int = 0
    execute: int = 8
    limit: int = 160
    step: int = 0
    succeeded: bool = False
    stalled: int = 0
    jumps: list[float] = field(default_factory=list)
    """At each border between chunks, the largest change of an action's number but the gripper's."""
    _queue: list[Action] = field(default_factory=list)
    _coming: tuple[int, Floats, int] | None = None
    """(step at which it is there, chunk, actions to skip)."""
    _border: bool = False
    _last: Action | None = None

    @property
    def over(self) -> bool:
        return self.succeeded or self.step >= self.limit

    def asks(self) -> list[Action] | None:
        """Is a chunk to be asked for now? With which prefix? None: no."""
        ahead = 0 if self.handover == "wait" else self.delay
        if self._coming is not None or len(self._queue) > ahead:
            return None
        return self._committed() if self.handover == "rtc" else []

    def _committed(self) -> list[Action]:
        """What will be executed until the chunk is there."""
        hold = self.simulation.hold()
        return [*self._queue[: self.delay], *[hold] * (self.delay - len(self._queue))]

    def take(self, chunk: Floats) -> None:
        """The chunk that was asked for; it will be there after the delay."""
        skip = {"wait": 0, "switch": min(self.delay, len(self._queue)), "rtc": self.delay}[self.handover]
        self._coming = (self.step + self.delay, chunk, skip)

    def tick(self) -> None:
        """One control step."""
        if self._coming is not None and self.step >= self._coming[0]:
            _, chunk, skip = self._coming
            self._queue = list(chunk[skip : skip + self.execute])
            self._coming = None
            self._border = True
        if self._queue:
            action = self._queue.pop(0)
        else:
            action = self.simulation.hold()
            self.stalled += 1
        if self._border and self._last is not None:
            self.jumps.append(float(np.abs(action[:-1] - self._last[:-1]).max()))
        self._border = False
        self._last = action
        self.simulation.step(action)
        self.step += 1
        self.succeeded = self.simulation.succeeded()
