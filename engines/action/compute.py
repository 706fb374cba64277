"""The one thread that steps a policy: whoever has work for it puts it in, is told of the first step and of the end, and may abort it.

At each integration step those with the earliest deadlines take part, up to `seats` rows; new work joins, and aborted work leaves,
between two steps. A row that makes a step fail fails alone.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic

import numpy as np

from ..errors import EngineBusyError, EngineError, EngineUnavailableError
from ..messages import ActBody
from .step_policy import Actions, R, StepPolicy
from .turns import choose, hopeless, may_begin

log = logging.getLogger(__name__)

RECENT = 64
"""Steps whose fastest one says how soon a chunk could be ready at best."""


@dataclass(slots=True, eq=False)
class Work(Generic[R]):
    """A chunk to be made. Times on `time.monotonic`; `deadline` infinity: none. The callbacks are called on the compute thread, `on_begun`
    at most once, then `on_ended` exactly once (with the actions or an error), unless it was aborted."""

    body: ActBody
    seed: int
    on_begun: Callable[[], None]
    on_ended: Callable[[Actions | EngineError], None]
    deadline: float = math.inf
    arrived: float = field(default_factory=time.monotonic)
    aborted: bool = False
    row: R | None = None
    begun: float = 0.0
    ended: float = 0.0
    shared: int = 0
    """The rows of its steps, added up."""

    @property
    def steps_left(self) -> int:
        return 1 if self.row is None else self.row.steps - self.row.step

    @property
    def batch(self) -> float:
        """The mean number of rows that shared its steps."""
        return self.shared / self.row.step if self.row is not None and self.row.step else 1.0


class Compute(Generic[R]):
    """See the module's docstring. `load` runs first on the thread and returns the policy; its error is raised by `open`.

    Bound: `max_works` at once, aborted ones included until they have left; policy: one more is refused with `EngineBusyError`.
    """

    def __init__(self, name: str, load: Callable[[], StepPolicy[R]], *, seats: int, max_works: int) -> None:
        self._name = name
        self._load = load
        self._seats = seats
        self._max_works = max_works
        self._changed = threading.Condition()
        self._inbox: deque[Work[R]] = deque()
        self._works: list[Work[R]] = []
        self._closing = False
        self._thread: threading.Thread | None = None
        self._loaded = threading.Event()
        self._failure: Exception | None = None
        self._fastest: deque[float] = deque(maxlen=RECENT)
        self.last_step: float | None = None
        self.steps = 0
        self.rows = 0

    # ---- from other threads -----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the thread and wait until the policy is loaded. Raises what loading raised."""
        self._thread = threading.Thread(target=self._run, name=f"antiphon-{self._name}", daemon=True)
        self._thread.start()
        self._loaded.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self._closing

    def __len__(self) -> int:
        return len(self._works) + len(self._inbox)

    def put(self, work: Work[R]) -> None:
        """Hand work in. Raises `EngineBusyError`, `EngineUnavailableError`."""
        with self._changed:
            if not self.alive:
                raise EngineUnavailableError(f"{self._name} is not open")
            if len(self) >= self._max_works:
                raise EngineBusyError(f"{self._name} works on {self._max_works} chunks already")
            self._inbox.append(work)
            self._changed.notify()

    def abort(self, work: Work[R]) -> None:
        """Drop work: it takes part in no further step. Harmless when it has ended."""
        work.aborted = True

    def close(self, timeout: float) -> bool:
        """Fail what runs, end the thread; False: the step that it is in took longer than `timeout` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # ---- on the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            policy = self._load()
        except Exception as error:  # whatever a model file makes torch raise, `open` is waiting for it
            self._failure = error
            return
        finally:
            self._loaded.set()
        reason = "is closing"
        try:
            while self._take_in():
                self._turn(policy)
        except Exception:  # a fault of ours: nobody must wait for a thread that is gone
            log.exception("%s crashed", self._name)
            reason = "crashed"
        with self._changed:
            self._closing = True
            self._works.extend(self._inbox)
            self._inbox.clear()
        for work in self._works:
            if not work.ended:
                self._end(work, EngineUnavailableError(f"{self._name} {reason}"))
        self._works.clear()

    def _take_in(self) -> bool:
        """Wait for work; let go of what was aborted. False: it is time to end."""
        with self._changed:
            while not self._inbox and not self._works and not self._closing:
                self._changed.wait()
            self._works.extend(self._inbox)
            self._inbox.clear()
            self._works = [work for work in self._works if not work.aborted]
            return not self._closing

    def _turn(self, policy: StepPolicy[R]) -> None:
        """One integration step for those whose turn it is."""
        now = time.monotonic()
        fastest = min(self._fastest, default=0.0)
        for work in [work for work in self._works if hopeless(work, now, fastest)]:
            self._leave(work, EngineBusyError(f"{self._name} could not be done before the deadline", code="deadline_missed"))
        chosen = choose(self._works, self._seats)
        fresh = [work for work in chosen if work.row is None]
        if fresh and not may_begin(fresh, len(chosen) - len(fresh), now):
            chosen = [work for work in chosen if work.row is not None]
        chosen = self._begin(policy, chosen)
        if chosen:
            self._step(policy, chosen)
        for work in chosen:
            if work.row is not None and work.row.step >= work.row.steps and not work.ended:
                self._finish(policy, work)

    def _begin(self, policy: StepPolicy[R], works: list[Work[R]]) -> list[Work[R]]:
        """Encode the observations of those who have their first turn; returns who is left."""
        fresh: list[Work[R]] = []
        for work in [work for work in works if work.row is None]:
            work.begun = time.monotonic()
            try:
                work.row = policy.prepare(work.body, work.seed)
            except Exception as error:  # one observation that no check foresaw must not end everybody's thread
                self._leave(work, self._fault(error))
                continue
            work.on_begun()
            fresh.append(work)
        if fresh:
            self._together_or_alone(policy.begin, fresh)
        return [work for work in works if not work.ended]

    def _step(self, policy: StepPolicy[R], works: list[Work[R]]) -> None:
        began = time.monotonic()
        self._together_or_alone(policy.advance, works)
        self.last_step = time.monotonic()
        self._fastest.append(self.last_step - began)
        self.steps += 1
        self.rows += len(works)
        for work in works:
            work.shared += len(works)

    def _together_or_alone(self, call: Callable[[Sequence[R]], None], works: Sequence[Work[R]]) -> None:
        """Call with all rows; when that fails, with each alone, so that one bad row fails alone."""
        rows = [work.row for work in works if work.row is not None]
        try:
            call(rows)
            return
        except Exception as error:  # torch raises what it likes
            if len(works) == 1:
                self._leave(works[0], self._fault(error))
                return
        for work in works:
            self._together_or_alone(call, [work])

    def _finish(self, policy: StepPolicy[R], work: Work[R]) -> None:
        assert work.row is not None
        try:
            actions = policy.finish(work.row)
        except Exception as error:
            self._leave(work, self._fault(error))
            return
        if np.isfinite(actions).all():
            self._leave(work, actions)
        else:
            self._leave(work, EngineError(f"{self._name} made actions that are not finite numbers", code="not_finite"))

    def _fault(self, error: Exception) -> EngineError:
        if isinstance(error, EngineError):
            return error
        log.error("%s failed", self._name, exc_info=error)
        return EngineError(f"{self._name} failed: {type(error).__name__}: {error}")

    def _leave(self, work: Work[R], outcome: Actions | EngineError) -> None:
        self._works.remove(work)
        self._end(work, outcome)

    def _end(self, work: Work[R], outcome: Actions | EngineError) -> None:
        work.ended = time.monotonic()
        if not work.aborted:
            work.on_ended(outcome)
