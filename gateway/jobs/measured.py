"""A handler that counts: how long jobs waited and worked, how attempts end, how many bytes were kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...engines.errors import EngineError
from ..metrics import Metrics
from .errors import AttemptLostError, JobCancelledError, JobFailedError
from .interface import Handler, Work
from .job import Artifact


class MeasuredHandler:
    """A handler around another."""

    def __init__(self, handler: Handler, metrics: Metrics, *, clock: Callable[[], float]) -> None:
        self._handler = handler
        self._metrics = metrics
        self._clock = clock

    async def run(self, work: Work) -> tuple[tuple[Artifact, ...], dict[str, Any]]:
        job, metrics = work.job, self._metrics
        kind = job.kind.value
        began = self._clock()
        if job.attempt == 1:
            metrics.job_wait.labels(kind).observe(max(0.0, began - job.created_at))
        else:
            metrics.job_recoveries.labels(kind).inc()
        outcome = "crashed"
        try:
            artifacts, result = await self._handler.run(work)
            outcome = "completed"
        except JobFailedError:
            outcome = "failed"
            raise
        except JobCancelledError:
            outcome = "cancelled"
            raise
        except AttemptLostError:
            outcome = "lost"
            raise
        except EngineError:
            outcome = "engine_failed"
            raise
        except asyncio.CancelledError:
            outcome = "stopped"
            raise
        finally:
            metrics.job_attempts.labels(kind, outcome).inc()
        metrics.job_work.labels(kind).observe(max(0.0, self._clock() - began))
        metrics.artifact_bytes.labels(kind).inc(sum(artifact.size for artifact in artifacts))
        return artifacts, result
