"""What a simulated robot saw and did, and what passed over its wire, in one order, in a file that may be read while it grows.

Times are those of `time.monotonic`, which all processes of a machine share.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Began:
    """The simulator begins an episode."""

    at: float
    number: int
    task: str


@dataclass(frozen=True, slots=True)
class Ended:
    at: float
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection is there."""

    at: float


@dataclass(frozen=True, slots=True)
class Lost:
    """It was lost, and not by the robot's own wish."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Observed:
    at: float
    state: Any


@dataclass(frozen=True, slots=True)
class Asked:
    """A request leaves."""

    at: float
    sequence: int
    episode: str
    deadline_s: float
    state: Any


@dataclass(frozen=True, slots=True)
class Replied:
    """A reply is there. `actions` as they came; None: it is no chunk, and `status` says which answer it is."""

    at: float
    echo: dict[str, Any]
    status: str
    actions: Any


@dataclass(frozen=True, slots=True)
class Acted:
    """The simulator executes an action. `held`: the owner's own, made by the simulator."""

    at: float
    action: Any
    held: bool


Record = Began | Ended | Opened | Lost | Observed | Asked | Replied | Acted


class Journal:
    """Appends records to a file that may be read while it grows."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, record: Record) -> None:
        self._file.write(pickle.dumps(record))
        self._file.flush()


def read_journal(path: Path) -> list[Record]:
    """The records so far; a last one that is being written is left out."""
    records: list[Record] = []
    with path.open("rb") as file:
        while True:
            try:
                records.append(pickle.load(file))
            except (EOFError, pickle.UnpicklingError):
                return records
