"""The one interface behind which every engine hides: a batcher with an abort.

An engine takes a request and gives an asynchronous stream of chunks; closing the stream (`aclose()`) aborts the work at
the engine's next step. Continuous batching, priorities and preemption are the engine's own affair.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from .messages import EngineChunk, RequestBody


class WorkClass(enum.IntEnum):
    """Classes of work, the most urgent first."""

    REALTIME = 0
    ACTION = 1
    INTERACTIVE = 2
    BATCH = 3


class Role(enum.StrEnum):
    """What an engine does in a pipeline."""

    VAD = "vad"
    TURN_END = "turn_end"
    ASR = "asr"
    CHAT = "chat"
    SPEECH = "speech"
    DIFFUSION = "diffusion"
    ACTION = "action"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """A unit of work for an engine.

    `deadline` is in seconds on the `time.monotonic` clock; `epoch` is the session's fence number that the work was made
    for: whoever reads the chunks drops them when the session has moved on.
    """

    request_id: str
    body: RequestBody
    session_id: str = ""
    epoch: int = 0
    work_class: WorkClass = WorkClass.REALTIME
    deadline: float | None = None
    patience: float | None = None
    """How long, in seconds, the stream may give nothing before it counts as stuck; None: the pool's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """An array of an observation: `key` with "/" between the levels of nested dictionaries, numpy's name of the dtype, the shape.

    `layout` is "HWC" or "CHW" for pictures, else "". Values lie between `low` and `high` where these are given.
    """

    key: str
    dtype: str
    shape: tuple[int, ...]
    layout: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionCapabilities:
    """What a policy takes and gives: chunks of `horizon` actions of `action_dim` values, meant for `rate` actions a second.

    `low` and `high`, one value per dimension (empty: no bounds), hold for every action. `prompt`: it must be told what to do, in words.
    `max_prefix`: how many actions a chunk may be made to continue (0: none). `max_steps` bounds the integration steps of a request.
    `extras` goes to the robots as it is, with the policy's metadata.
    """

    policy: str
    horizon: int
    action_dim: int
    rate: float
    observation: tuple[ArraySpec, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    prompt: bool = False
    max_prefix: int = 0
    steps: int = 1
    max_steps: int = 1
    extras: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaCapabilities:
    """What a diffusion engine can make.

    `sizes` are (width, height) in pixels, the first is the default; empty: any multiple of `multiple` up to `max_side`. A picture is one
    frame. `max_frames` 1: no clips. A clip has `frame_step * k + 1` frames (1: any number). `fps` is the rate that its clips are made for.
    `edits`: takes a picture to start from.
    """

    sizes: tuple[tuple[int, int], ...] = ()
    multiple: int = 16
    max_side: int = 0
    pictures: bool = True
    max_frames: int = 1
    frame_step: int = 1
    fps: float = 8.0
    default_frames: int = 1
    default_steps: int = 20
    max_steps: int = 200
    edits: bool = False
    previews: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do: its role, the model names it answers to, how many requests it runs at once."""

    role: Role
    models: tuple[str, ...]
    slots: int
    sample_rate: int | None = None
    voices: tuple[str, ...] = ()
    streaming: bool = True
    media: MediaCapabilities | None = None
    action: ActionCapabilities | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHealth:
    """A snapshot of an engine. `last_step_age` is in seconds (None: no step yet); memory in bytes where known."""

    ok: bool
    running: int = 0
    waiting: int = 0
    last_step_age: float | None = None
    memory: int | None = None
    detail: str = ""
    extra: dict[str, float] = field(default_factory=dict)


@runtime_checkable
class Engine(Protocol):
    """See the module's docstring. An engine is opened once, used by many and closed once."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def open(self) -> None:
        """Load the weights and warm up, off the event loop. Raises `EngineError` when that fails."""

    def stream(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        """Run a request. Closing the iterator aborts at the next step and frees the slot. Raises `EngineError`."""

    async def health(self) -> EngineHealth: ...

    async def close(self) -> None:
        """Abort what runs and free everything, in bounded time."""
