"""The step engine: requests at different denoising steps share every forward pass.

An asyncio front and one computing thread. Before each step the engine takes in who has come, lets go who has left, waits for the
realtime gate, chooses who steps together (`scheduling`), and computes. So a request joins at the next step, leaves at the next step, and
a more urgent one overtakes at the next step.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..cpu import available_cores, background_threads
from ..errors import EngineBusyError, EngineError, EngineTimeoutError, EngineUnavailableError, InvalidRequestError
from ..gate import GateReader
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..lane import Lane
from ..messages import DiffusionStep, EngineChunk, GenerateBody, Generated, Raster
from . import models, rasters
from .holding import Holding
from .passes import Passes
from .probe import Measured, measure
from .requests import Running
from .scheduling import Entry, Schedule
from .step_model import Frames, Sample, StepModel

log = logging.getLogger(__name__)

NEWCOMERS_A_STEP = 4
"""So many requests are prepared between two steps; more would make those that run wait."""
SLOWEST_STEP_S = 600.0
"""While a step takes no longer, waiting requests are told that they wait; after that the pool may take the engine for stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionOptions:
    """`model` is a folder in the diffusers layout that `models.load` can take apart.

    `max_rows`: rows of a step at most; 0: found out at the start, such that a step stays within `step_ms`. `threads` compute (0: as the
    machine allows). `cache`: the residual cache's threshold where a request sets none (0: off). `max_waiting`: requests in the engine,
    running, waiting and unread; one more is refused. A request rises by one class of work for each `ageing_s` that it has been there.

    `gate`: step aside for realtime work of any gateway on this machine, but for at most `hold_ms` a step; while there was any within the
    last `live_s`, steps have at most `live_rows` rows (0: no such cap). `gate_file` names another file than the machine's own.
    """

    model: Path
    max_rows: int = 0
    step_ms: float = 60.0
    threads: int = 0
    cache: float = 0.0
    max_waiting: int = 64
    ageing_s: float = 30.0
    gate: bool = True
    gate_file: str = ""
    hold_ms: float = 400.0
    live_rows: int = 4
    live_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("max_rows", "threads", "cache", "hold_ms", "live_rows", "live_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        for name in ("step_ms", "max_waiting", "ageing_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")


class StepDiffusion:
    """`GenerateBody` -> `DiffusionStep` for each step, then `RasterChunk`s and one `Generated`. See the module's docstring."""

    def __init__(self, options: DiffusionOptions, load: Callable[[], StepModel] | None = None) -> None:
        """`load` makes the model, on the computing thread; by default from the options' folder. Raises `WeightsError` for a folder
        that is none of a model."""
        self._options = options
        self._load = load or (lambda: models.load(options.model, options.threads or background_threads(available_cores())))
        self._lane: Lane | None = None
        self._model: StepModel | None = None
        self._schedule = Schedule(ageing=options.ageing_s)
        self._newcomers: list[Running] = []
        self._running: dict[Entry, Running] = {}
        self._requests: set[Running] = set()
        self._wake = asyncio.Event()
        self._rounds: asyncio.Task[None] | None = None
        self._gate: GateReader | None = None
        self._holding = self._hold_with(None)
        self._measured = Measured({}, max(1, options.max_rows))
        self._steps = 0
        self._rows = 0
        self._computed = 0.0
        known = models.media(options.model) if load is None else None
        self.capabilities = Capabilities(role=Role.DIFFUSION, models=(options.model.name,), slots=options.max_waiting, media=known)

    @property
    def folder(self) -> Path:
        """Where the model is."""
        return self._options.model

    def _hold_with(self, gate: GateReader | None) -> Holding:
        options = self._options
        return Holding(gate, hold_s=options.hold_ms / 1000, live_rows=options.live_rows, live_s=options.live_s, ageing_s=options.ageing_s)

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load the model, find the cap, begin. Raises `EngineError`."""
        options = self._options
        lane = Lane("diffusion", waiting_limit=1)
        try:
            model = await lane.run(self._load)
            if options.max_rows == 0:
                self._measured = await lane.run(measure, model, options.step_ms)
        except BaseException:
            await lane.close()
            raise
        if options.gate:
            try:
                self._gate = GateReader(Path(options.gate_file) if options.gate_file else None)
            except OSError as error:
                log.warning("no realtime gate: %s", error)
        self._holding = self._hold_with(self._gate)
        self._lane, self._model = lane, model
        self.capabilities = dataclasses.replace(self.capabilities, media=model.media)
        self._rounds = asyncio.create_task(self._run(lane, model), name="diffusion-steps")

    async def close(self) -> None:
        """Fail what runs, let the running step end, free everything."""
        if self._rounds is not None:
            self._rounds.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._rounds
        self._rounds = self._model = None
        for request in list(self._requests):
            request.outbox.fail(EngineUnavailableError("the diffusion engine is closing"))
            self._let_go(request)
        if self._lane is not None:
            await self._lane.close()
        if self._gate is not None:
            self._gate.close()
            self._gate = None

    async def health(self) -> EngineHealth:
        """`extra`: the cap, what steps of so many rows took at the start, what was done, and how often realtime work went first."""
        lane, holding = self._lane, self._holding
        last = lane.last_step if lane is not None else None
        return EngineHealth(
            ok=self._rounds is not None and not self._rounds.done(),
            running=len(self._running),
            waiting=len(self._newcomers),
            last_step_age=None if last is None else time.monotonic() - last,
            extra={
                "cap": float(self._measured.cap),
                "steps": float(self._steps),
                "rows": float(self._rows),
                "step_seconds": self._computed,
                "held": float(holding.held),
                "held_seconds": holding.held_seconds,
                "capped": float(holding.capped),
                "realtime_live": float(holding.live()),
                **{f"ms_{rows}_rows": took for rows, took in self._measured.milliseconds.items()},
            },
        )

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        """Closing leaves at the next step: the slot is free at once, the step that runs is not interrupted."""
        body = request.body
        if not isinstance(body, GenerateBody):
            raise InvalidRequestError(f"the diffusion engine makes pictures; it cannot serve a {type(body).__name__}")
        model = self._model
        if model is None:
            raise EngineUnavailableError("the diffusion engine is not open")
        if len(self._requests) >= self._options.max_waiting:
            raise EngineBusyError(f"the diffusion engine has {self._options.max_waiting} requests already")
        if body.cache is None and self._options.cache:
            body = msgspec.structs.replace(body, cache=self._options.cache)
        running = Running(body=body, work_class=request.work_class, arrived=time.monotonic(), deadline=request.deadline)
        if not self._requests:
            self._holding.ended(running.arrived)
        self._requests.add(running)
        self._newcomers.append(running)
        self._wake.set()
        try:
            async for chunk in running.outbox.read(lambda: self._sign(running, model)):
                yield chunk
        finally:
            self._let_go(running)

    def _sign(self, running: Running, model: StepModel) -> DiffusionStep | None:
        """What a request that waits is told; nothing when the engine itself seems stuck."""
        last = self._lane.last_step if self._lane is not None else None
        if last is None or time.monotonic() - last > SLOWEST_STEP_S:
            return None
        return running.progress(model.media.default_steps)

    def _let_go(self, running: Running) -> None:
        """Its reader has left. Harmless when called again."""
        self._requests.discard(running)
        self._retire(running)

    def _retire(self, running: Running) -> None:
        """It takes no more steps; it counts until its reader has what it made. Harmless when called again."""
        if running in self._newcomers:
            self._newcomers.remove(running)
        if running.entry is not None:
            self._schedule.remove(running.entry)
            self._running.pop(running.entry, None)

    def _fail(self, running: Running, error: Exception) -> None:
        if not isinstance(error, EngineError):
            log.error("a request failed in the diffusion engine", exc_info=error)
            error = EngineError(f"the diffusion engine failed: {type(error).__name__}: {error}")
        running.outbox.fail(error)
        self._retire(running)

    # ---- rounds -----------------------------------------------------------------------------------------------------

    async def _run(self, lane: Lane, model: StepModel) -> None:
        """Round after round while there is work, then sleep until some comes."""
        try:
            while True:
                self._wake.clear()
                await self._prepare(lane, model)
                if self._running:
                    await self._holding.wait(self._schedule.oldest(time.monotonic()))
                    await self._step(lane, model)
                elif not self._newcomers:
                    await self._wake.wait()
        except Exception as error:
            self._model = None  # `health` says so, and the pool opens the engine anew
            for running in list(self._requests):
                self._fail(running, error)
            raise

    async def _prepare(self, lane: Lane, model: StepModel) -> None:
        """Take in a few newcomers, the most urgent first; tell those who cannot be served."""
        self._newcomers.sort(key=lambda running: (running.work_class, running.arrived))
        for running in self._newcomers[:NEWCOMERS_A_STEP]:
            if running.deadline is not None and time.monotonic() > running.deadline:
                self._fail(running, EngineTimeoutError("the diffusion engine was not free before the deadline"))
                continue
            try:
                sample, key, rows = await lane.run(_prepared, model, running.body)
            except Exception as error:  # whatever it is, it is this request's alone
                self._fail(running, error)
                continue
            if running not in self._requests:
                continue  # its reader left meanwhile
            self._newcomers.remove(running)
            running.sample = sample
            running.entry = Entry(key=key, rows=rows, work_class=running.work_class, arrived=running.arrived)
            self._schedule.add(running.entry)
            self._running[running.entry] = running

    async def _step(self, lane: Lane, model: StepModel) -> None:
        """One step for those whose turn it is; then their news."""
        cap = self._holding.cap(self._measured.cap)
        chosen = self._schedule.choose(cap, time.monotonic())
        if cap < self._measured.cap and sum(entry.rows for entry in self._schedule.entries) > cap:
            self._holding.capped += 1
        stepping = [(self._running[entry], sample) for entry in chosen if (sample := self._running[entry].sample) is not None]
        if not stepping:
            return  # who had the turn left while the step was held
        began = time.monotonic()
        failures = await lane.run(_advance, model, [sample for _, sample in stepping], Passes(cap, self._holding.wait_here))
        ended = time.monotonic()
        self._holding.ended(ended)
        self._schedule.charge(chosen[0].key, ended - began)
        self._steps += 1
        self._rows += sum(entry.rows for entry in chosen)
        self._computed += ended - began
        for number, (running, sample) in enumerate(stepping):
            if running not in self._requests:
                continue
            try:
                if number in failures:
                    raise failures[number]
                await self._tell(lane, model, running, sample)
            except Exception as error:  # whatever it is, it is this request's alone
                self._fail(running, error)

    async def _tell(self, lane: Lane, model: StepModel, running: Running, sample: Sample) -> None:
        """The news after a step: progress, a preview when one is due, the picture when it was the last."""
        preview: Raster | None = None
        if rasters.preview_due(sample.step, sample.steps, running.body.previews):
            preview = await lane.run(_preview, model, sample)
        running.outbox.step(DiffusionStep(step=sample.step, steps=sample.steps, preview=preview))
        if sample.step < sample.steps:
            if running.entry is not None:
                running.entry.rows = model.rows(sample)
            return
        frames = await lane.run(model.decode, sample)
        running.outbox.finish(_results(frames, sample))
        self._retire(running)


def _prepared(model: StepModel, body: GenerateBody) -> tuple[Sample, Hashable, int]:
    sample = model.prepare(body)
    return sample, model.shape_key(sample), model.rows(sample)


def _preview(model: StepModel, sample: Sample) -> Raster:
    return rasters.preview(model.preview(sample))


def _advance(model: StepModel, samples: Sequence[Sample], passes: Passes) -> dict[int, Exception]:
    """One step for all. When it fails, each that has not moved tries alone, so that one bad request costs the others nothing; -> the
    failures by number."""
    before = [sample.step for sample in samples]
    try:
        model.advance(samples, passes)
        return {}
    except Exception as error:
        if len(samples) == 1:
            return {0: error}
    failures: dict[int, Exception] = {}
    for number, sample in enumerate(samples):
        if sample.step == before[number]:
            try:
                model.advance([sample], passes)
            except Exception as error:
                failures[number] = error
    return failures


def _results(frames: Frames, sample: Sample) -> Iterator[EngineChunk]:
    yield from rasters.chunks(frames)
    yield Generated(
        seed=sample.seed,
        steps=sample.steps,
        frames=len(frames),
        fps=sample.fps,
        revised_prompt=sample.revised_prompt,
        ignored=sample.ignored,
        rows=sample.rows_computed,
    )
