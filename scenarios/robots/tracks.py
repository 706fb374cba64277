"""What a robot's episode log tells: its requests, what became of each chunk, and what was executed when."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...clients.robot import Mode, read_log
from ...robot.sim.simulation import Action

LONGEST = 2.0
"""Periods that a step may last in a picture; beyond, steps were missed."""
FENCED, LOST = "fenced", "lost"
"""Why a request has no chunk of which the log says nothing more: its episode ended first, or its connection."""


@dataclass(slots=True, eq=False)
class Request:
    """A request. Times in seconds on the robot's clock; `used` are the steps in which an action of its chunk was executed, from when to
    when."""

    sequence: int
    asked: float
    prefix: int
    episode: int
    answered: float | None = None
    why_not: str = ""
    """Why its chunk was not taken; "": it was."""
    horizon: int = 0
    used: list[tuple[float, float]] = field(default_factory=list)

    @property
    def round_trip(self) -> float | None:
        """Seconds until its reply came."""
        return None if self.answered is None else self.answered - self.asked


@dataclass(slots=True, eq=False)
class Step:
    """A control step and what it executed until the next; `sequence` is the request's whose chunk that came from."""

    at: float
    until: float
    mode: Mode
    action: Action
    sequence: int | None


@dataclass(slots=True, eq=False)
class Track:
    """A robot's run. `episodes`: when each began; `offline`: when there was no connection."""

    rate: float
    requests: list[Request] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    episodes: list[float] = field(default_factory=list)
    offline: list[tuple[float, float]] = field(default_factory=list)
    end: float = 0.0

    @property
    def begin(self) -> float:
        return self.episodes[0] if self.episodes else self.end

    def begins(self) -> list[float]:
        """The first control step of each episode: it was made ready a moment before, in the last step of the one before it."""
        at = [step.at for step in self.steps]
        return [at[found] if (found := bisect_left(at, begun)) < len(at) else begun for begun in self.episodes]

    def round_trips(self) -> list[float]:
        """Of all requests that were answered, in seconds."""
        return [request.answered - request.asked for request in self.requests if request.answered is not None]

    def jumps(self, dims: int) -> list[float]:
        """Where a chunk takes over from another of the same episode: the largest change of an action's first `dims` numbers from what was
        executed before (holding included)."""
        found = []
        begins = set(self.begins())
        sequence: int | None = None
        for before, after in zip([None, *self.steps], self.steps, strict=False):
            if after.at in begins:
                sequence = None
            if after.sequence is None or after.sequence == sequence:
                continue
            if sequence is not None and before is not None:
                found.append(float(np.abs(after.action - before.action)[:dims].max()))
            sequence = after.sequence
        return found


def read_track(path: Path) -> Track:
    """The track of a log. Raises `BadLog`, OSError."""
    header, *records = read_log(path)
    rate = header["settings"].get("rate") or header["policy"].get("rate") or 20.0
    return track_of(records, rate)


def track_of(records: Iterable[dict[str, Any]], rate: float) -> Track:
    """The track of a log's records, its header left out."""
    track = Track(rate)
    asked: dict[int, Request] = {}
    offline: float | None = None
    for record in records:
        now, kind = record["now"], record["kind"]
        track.end = now
        if kind == "begin":
            _give_up(track, FENCED)
            track.episodes.append(now)
        elif kind == "end":
            _give_up(track, FENCED)
        elif kind == "online" and offline is not None:
            track.offline.append((offline, now))
            offline = None
        elif kind == "offline":
            _give_up(track, LOST)
            offline = now
        elif kind == "ask":
            request = Request(record["sequence"], now, record["prefix"], len(track.episodes) - 1)
            asked[request.sequence] = request
            track.requests.append(request)
        elif kind in ("take", "fail") and record["sequence"] in asked:
            request = asked[record["sequence"]]
            request.answered, request.why_not = now, record["reason"]
            request.horizon = len(record.get("actions", ()))
        elif kind == "step":
            step = Step(now, now + 1 / rate, Mode(record["mode"]), record["action"], record["sequence"])
            if track.steps:
                track.steps[-1].until = min(now, track.steps[-1].at + LONGEST / rate)
            track.steps.append(step)
    _give_up(track, FENCED)
    for step in track.steps:
        if step.sequence in asked:
            asked[step.sequence].used.append((step.at, step.until))
    if offline is not None:
        track.offline.append((offline, track.end))
    return track


def _give_up(track: Track, why: str) -> None:
    """The request that is on its way will not be answered."""
    if track.requests and track.requests[-1].answered is None:
        track.requests[-1].why_not = track.requests[-1].why_not or why
