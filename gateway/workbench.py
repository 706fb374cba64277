"""What the parts of a conductor share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..engines.orchestrator import Orchestrator
from ..sessions.inbound import Inbound
from .tasks import TaskOwner


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """One session's way to the engines: which pipeline works for it, who owns the tasks, where results go (`feed`)."""

    orchestrator: Orchestrator
    pipeline: str
    session_id: str
    tasks: TaskOwner
    feed: Callable[[Inbound], None]
