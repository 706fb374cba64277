"""The action engine: flow-matching policies behind the `Engine` interface."""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import EngineError, EngineUnavailableError, InvalidRequestError
from ..interface import Capabilities, EngineHealth, EngineRequest, Role
from ..messages import ActBody, ActionChunk, Array, EngineChunk, StageMark
from .card import Card, load_card
from .compute import Compute, Work
from .step_policy import Actions

if TYPE_CHECKING:
    from .flow_model import FlowModel, FlowRow

CLOSE_SECONDS = 5.0
STAGE = "policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPolicyOptions:
    """`model` is the policy's folder (card and weights). `seats` robots at most share a step, `slots` wait or run at once.
    `threads` compute threads on a CPU; `device` as torch names it."""

    model: Path
    seats: int = 32
    slots: int = 128
    threads: int = 1
    device: str = "cpu"


class FlowPolicy:
    """`ActBody` -> a `StageMark` ("start", at the first integration step), then the `ActionChunk`.

    A request's deadline is kept: what cannot be done by then is refused with `EngineBusyError` ("deadline_missed"), as early as that is
    sure. Closing the stream aborts at the next integration step.
    """

    def __init__(self, options: FlowPolicyOptions) -> None:
        self._options = options
        self.card: Card = load_card(options.model)
        self.capabilities = Capabilities(
            role=Role.ACTION, models=(self.card.policy,), slots=options.slots, action=self.card.capabilities(), streaming=False
        )
        self._compute: Compute[FlowRow] | None = None

    async def open(self) -> None:
        """Load and warm up on the compute thread. Raises `WeightsError`, `EngineError`."""
        if self._compute is not None:
            return
        compute = Compute(f"policy {self.card.policy}", self._load, seats=self._options.seats, max_works=2 * self._options.slots)
        await asyncio.to_thread(compute.open)
        self._compute = compute

    def _load(self) -> FlowModel:
        """On the compute thread: the model, and one chunk for nobody."""
        try:
            import torch

            from .flow_model import FlowModel
        except ModuleNotFoundError as error:
            raise EngineError(
                f"policy {self.card.policy!r} needs the Python package {error.name!r}: pip install 'antiphon[robot]'",
                code="missing_package",
            ) from error
        torch.set_num_threads(self._options.threads)
        model = FlowModel.load(self._options.model, self.card, self._options.device)
        for count in (1, 2):
            rows = [model.prepare(_blank(self.card), seed) for seed in range(count)]
            model.begin(rows)
            for _ in range(rows[0].steps):
                model.advance(rows)
            model.finish(rows[0])
        return model

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        body = request.body
        if not isinstance(body, ActBody):
            raise InvalidRequestError(f"policy {self.card.policy!r} makes action chunks; it cannot serve a {type(body).__name__}")
        compute = self._compute
        if compute is None:
            raise EngineUnavailableError(f"policy {self.card.policy!r} is not open")
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[None] = loop.create_future()
        ended: asyncio.Future[Actions] = loop.create_future()
        work: Work[FlowRow] = Work(
            body=body,
            seed=secrets.randbits(31) if body.seed is None else body.seed,
            on_begun=lambda: _post(loop, _settle, begun, None),
            on_ended=lambda outcome: _post(loop, _settle, ended, outcome),
            deadline=math.inf if request.deadline is None else request.deadline,
        )
        compute.put(work)
        try:
            await asyncio.wait((begun, ended), return_when=asyncio.FIRST_COMPLETED)
            if begun.done():
                yield StageMark(STAGE, "start", work.begun)
            actions = await ended
            assert work.row is not None
            yield ActionChunk(
                actions=Array.of(actions),
                seed=work.seed,
                steps=work.row.steps,
                prefix=work.row.prefix_length,
                wait_ms=(work.begun - work.arrived) * 1000,
                infer_ms=(work.ended - work.begun) * 1000,
                batch=work.batch,
            )
        finally:
            compute.abort(work)
            begun.cancel()
            if not ended.cancel() and not ended.cancelled():
                ended.exception()  # nobody else will ask

    async def health(self) -> EngineHealth:
        compute = self._compute
        if compute is None or not compute.alive:
            return EngineHealth(ok=False, detail="the policy is not open")
        age = None if compute.last_step is None else time.monotonic() - compute.last_step
        batch = compute.rows / compute.steps if compute.steps else 0.0
        return EngineHealth(ok=True, running=len(compute), last_step_age=age, extra={"mean_rows_per_step": batch})

    async def close(self) -> None:
        compute, self._compute = self._compute, None
        if compute is not None and not await asyncio.to_thread(compute.close, CLOSE_SECONDS):
            raise EngineError(f"policy {self.card.policy!r} is still in a step after {CLOSE_SECONDS:.0f} s")


def _blank(card: Card) -> ActBody:
    """An observation of zeros."""
    import numpy as np

    return ActBody(observation={entry.key: Array.of(np.zeros(entry.shape, entry.dtype)) for entry in card.observation})


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, EngineError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    """From the compute thread to the loop; who waited on a loop that is closed waits no more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *args)
