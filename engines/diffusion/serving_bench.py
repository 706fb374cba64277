"""Three ways to serve the same requests with the same weights, under the same load, in one run.

serial      the diffusers pipeline, one request after the other
static      batches: who waits when the last batch has ended steps together, and nobody joins
continuous  what the engine does: join and leave at every step

Arrivals are random (Poisson). The clock is the computing thread's CPU time: it runs only while something computes and jumps over
idle time, so other work on the machine does not count, and ratios hold.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..interface import WorkClass
from ..messages import GenerateBody
from .engine import NEWCOMERS_A_STEP
from .passes import Passes
from .scheduling import Entry, Schedule
from .step_model import Sample, StepModel

Clock = Callable[[], float]
POLICIES = ("serial", "static", "continuous")


@dataclass(eq=False, slots=True)
class Served:
    """A request and when things happened to it, in seconds of the virtual clock."""

    body: GenerateBody
    arrived: float
    first_step: float = 0.0
    ended: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One policy under one load. `load` is relative to what the serial policy can do; latencies are from arrival to the decoded picture."""

    load: float
    policy: str
    requests: int
    per_second: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    first_step_ms: float
    rows_a_step: float


@dataclass(slots=True)
class Stopwatch:
    """The virtual clock."""

    now: float = 0.0
    clock: Clock = time.thread_time

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call it; the clock goes on by what it computed."""
        began = self.clock()
        result = function(*arguments)
        self.now += self.clock() - began
        return result


def arrivals(bodies: Sequence[GenerateBody], per_second: float, seed: int) -> list[Served]:
    """The bodies at random times."""
    generator, at, made = random.Random(seed), 0.0, []
    for body in bodies:
        at += generator.expovariate(per_second)
        made.append(Served(body, at))
    return made


def serve_serially(call: Callable[[GenerateBody, Callable[[], None]], Any], requests: Sequence[Served]) -> list[int]:
    """`call` runs a whole request and calls back after its first step. -> rows of each step (unknown: none)."""
    watch = Stopwatch()
    for request in requests:
        watch.now = max(watch.now, request.arrived)
        began, start = watch.now, watch.clock()
        stepped: list[float] = []

        def first(start: float = start, stepped: list[float] = stepped) -> None:
            if not stepped:
                stepped.append(watch.clock() - start)

        watch.run(call, request.body, first)
        request.first_step, request.ended = began + stepped[0], watch.now
    return []


@dataclass(slots=True)
class _Batcher:
    """The engine's rounds on the virtual clock; `static`: nobody is let in before everybody has left."""

    model: StepModel
    cap: int
    static: bool
    watch: Stopwatch = field(default_factory=Stopwatch)
    schedule: Schedule = field(default_factory=Schedule)
    inside: dict[Entry, tuple[Served, Sample]] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)

    def serve(self, requests: Sequence[Served]) -> list[int]:
        waiting = list(requests)
        while waiting or self.inside:
            if not self.inside and waiting[0].arrived > self.watch.now:
                self.watch.now = waiting[0].arrived
            self._let_in(waiting)
            self._step()
        return self.rows

    def _let_in(self, waiting: list[Served]) -> None:
        if self.static and self.inside:
            return
        taken = 0
        room = self.cap
        while waiting and waiting[0].arrived <= self.watch.now:
            if not self.static and taken == NEWCOMERS_A_STEP:
                return
            sample = self.watch.run(self.model.prepare, waiting[0].body)
            entry = Entry(
                key=self.model.shape_key(sample), rows=self.model.rows(sample), work_class=WorkClass.BATCH, arrived=waiting[0].arrived
            )
            self.inside[entry] = (waiting.pop(0), sample)
            self.schedule.add(entry)
            taken += 1
            room -= entry.rows
            if self.static and room <= 0:
                return

    def _step(self) -> None:
        chosen = self.schedule.choose(self.cap, self.watch.now)
        self.rows.append(sum(entry.rows for entry in chosen))
        self.watch.run(self.model.advance, [self.inside[entry][1] for entry in chosen], Passes(self.cap))
        for entry in chosen:
            request, sample = self.inside[entry]
            if sample.step == 1:
                request.first_step = self.watch.now
            if sample.step == sample.steps:
                self.watch.run(self.model.decode, sample)
                request.ended = self.watch.now
                self.schedule.remove(entry)
                del self.inside[entry]


def measure(
    model: StepModel,
    call: Callable[[GenerateBody, Callable[[], None]], Any],
    bodies: Sequence[GenerateBody],
    loads: Sequence[float],
    cap: int,
    say: Callable[[str], None],
) -> tuple[float, list[Point]]:
    """-> what the serial policy can do in requests a second, and a point for each load and policy."""
    watch = Stopwatch()
    watch.run(call, bodies[0], lambda: None)  # the first call warms up
    watch.now = 0.0
    for body in bodies[:8]:
        watch.run(call, body, lambda: None)
    capacity = len(bodies[:8]) / watch.now
    say(f"serial capacity {capacity:.1f} requests/s")
    points: list[Point] = []
    for load in loads:
        for policy in POLICIES:
            requests = arrivals(bodies, load * capacity, seed=5)
            rows = serve_serially(call, requests) if policy == "serial" else _Batcher(model, cap, policy == "static").serve(requests)
            points.append(_point(load, policy, requests, rows))
            say(f"load {load:g} {policy}: {points[-1].per_second:.1f} requests/s, mean {points[-1].mean_ms:.0f} ms")
    return capacity, points


def _point(load: float, policy: str, requests: Sequence[Served], rows: Sequence[int]) -> Point:
    latencies = [1000 * (request.ended - request.arrived) for request in requests]
    return Point(
        load=load,
        policy=policy,
        requests=len(requests),
        per_second=len(requests) / max(request.ended for request in requests),
        mean_ms=float(np.mean(latencies)),
        p50_ms=float(np.percentile(latencies, 50)),
        p95_ms=float(np.percentile(latencies, 95)),
        first_step_ms=float(np.mean([1000 * (request.first_step - request.arrived) for request in requests])),
        rows_a_step=float(np.mean(rows)) if rows else 1.0,
    )
