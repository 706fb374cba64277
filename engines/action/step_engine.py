"""A step policy behind the `Engine` interface: what the engines of this folder have in common, whoever made the weights."""

from __future__ import annotations

import asyncio
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import Generic

import numpy as np

from ..errors import EngineError, EngineUnavailableError, InvalidRequestError
from ..interface import ActionCapabilities, Capabilities, EngineHealth, EngineRequest, Role
from ..messages import ActBody, ActionChunk, Array, EngineChunk, StageMark
from .compute import Compute, Work
from .mail import Mail
from .step_policy import Actions, R, StepPolicy

CLOSE_SECONDS = 5.0
STAGE = "policy"


class StepEngine(ABC, Generic[R]):
    """`ActBody` -> a `StageMark` ("start", at the first integration step), then the `ActionChunk`.

    A request's deadline is kept: what cannot be done by then is refused with `EngineBusyError` ("deadline_missed"), as early as that is
    sure. Closing the stream aborts at the next integration step. `seats` robots at most share a step, `slots` wait or run at once.
    """

    def __init__(self, action: ActionCapabilities, *, seats: int, slots: int) -> None:
        self._name = action.policy
        self._seats = seats
        self._slots = slots
        self.capabilities = Capabilities(role=Role.ACTION, models=(self._name,), slots=slots, action=action, streaming=False)
        self._compute: Compute[R] | None = None
        self._mail = Mail()
        self._random = random.Random()  # a seed must not be secret, and the system's source costs a wait for the compute thread

    @abstractmethod
    def _load(self) -> StepPolicy[R]:
        """The policy, warmed up. On the compute thread. Raises `WeightsError`, `EngineError`."""

    async def open(self) -> None:
        """Load and warm up on the compute thread. Raises `WeightsError`, `EngineError`."""
        if self._compute is not None:
            return
        compute = Compute(f"policy {self._name}", self._load, seats=self._seats, max_works=2 * self._slots)
        await asyncio.to_thread(compute.open)
        self._compute = compute

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        body = request.body
        if not isinstance(body, ActBody):
            raise InvalidRequestError(f"policy {self._name!r} makes action chunks; it cannot serve a {type(body).__name__}")
        compute = self._compute
        if compute is None:
            raise EngineUnavailableError(f"policy {self._name!r} is not open")
        ended: asyncio.Future[Actions] = asyncio.get_running_loop().create_future()
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mail = self._mail

        def on_ended(outcome: Actions | EngineError) -> None:
            mail.post(begun, None)
            mail.post(ended, outcome)

        work: Work[R] = Work(
            body=body,
            seed=self._random.getrandbits(31) if body.seed is None else body.seed,
            on_begun=lambda: mail.post(begun, None),
            on_ended=on_ended,
            deadline=math.inf if request.deadline is None else request.deadline,
        )
        compute.put(work)
        try:
            await begun
            if work.row is not None:
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
            raise EngineError(f"policy {self._name!r} is still in a step after {CLOSE_SECONDS:.0f} s")


def missing_package(policy: str, error: ModuleNotFoundError) -> EngineError:
    """What to say when a policy's engine cannot import what it needs to load it."""
    return EngineError(f"policy {policy!r} needs the Python package {error.name!r}: pip install 'antiphon[robot]'", code="missing_package")


def warm_up(policy: StepPolicy[R], action: ActionCapabilities, counts: tuple[int, ...] = (1, 2)) -> Actions:
    """Make chunks for nobody, from observations of zeros, so many at once; the last chunk."""
    body = ActBody(observation={spec.key: Array.of(np.zeros(spec.shape, spec.dtype)) for spec in action.observation})
    rows: list[R] = []
    for count in counts:
        rows = [policy.prepare(body, seed) for seed in range(count)]
        policy.begin(rows)
        for _ in range(rows[0].steps):
            policy.advance(rows)
    return policy.finish(rows[0])
