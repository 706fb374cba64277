"""What the configuration may say of a diffusers pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusersOptions:
    """`model` is a folder with a `model_index.json`, or a hub name ("owner/name") with perhaps a `revision`.

    How it is loaded: `variant` ("fp16"), `dtype` (auto: bfloat16 on a GPU, float32 on a CPU), `device` (auto: a GPU if there is one),
    `offload` (keeps on the GPU only the model that computes, or only the layer), `tiling` (the picture is decoded in tiles), `threads`
    (torch's CPU threads; 0: its own choice), `offline` (never ask the hub), `trust_code` (run Python that comes with the model).

    What it offers; zeros and empties mean what the model's own files say: `sizes` or `multiple` and `max_side` in pixels, `frame_step` (a
    clip has a multiple of it plus one frames), `default_frames` and `max_frames`, `fps`, `steps`, `guidance`, `pictures` (a model of
    clips also makes single pictures), `edits` (it starts from a picture). `arguments` are passed to every call of the pipeline as they are.

    How it runs: `waiting` requests at most wait for their turn; a step that takes longer than `step_s` seconds means that the engine is
    ill. `gate`: step aside for realtime work of any gateway on this machine, but for at most `hold_ms` a step. `gate_file` names
    another file than the machine's own.
    `expendable` says that this engine has a process to itself that may be killed at any moment (set where one is started for that).
    """

    model: str
    revision: str = ""
    variant: str = ""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"
    offload: Literal["none", "model", "sequential"] = "none"
    tiling: bool = False
    threads: int = 0
    offline: bool = False
    trust_code: bool = False

    sizes: tuple[tuple[int, int], ...] = ()
    multiple: int = 0
    max_side: int = 0
    frame_step: int = 0
    default_frames: int = 0
    max_frames: int = 0
    fps: float = 0.0
    steps: int = 0
    max_steps: int = 200
    guidance: float | None = None
    pictures: bool = True
    edits: bool | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    waiting: int = 16
    step_s: float = 600.0
    gate: bool = True
    gate_file: str = ""
    hold_ms: float = 400.0
    expendable: bool = False

    def __post_init__(self) -> None:
        least = {
            "multiple": 0,
            "max_side": 0,
            "frame_step": 0,
            "default_frames": 0,
            "max_frames": 0,
            "steps": 0,
            "max_steps": 1,
            "threads": 0,
            "waiting": 1,
        }
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"{name} must be at least {bound}, not {getattr(self, name)}")
        if not self.model:
            raise ValueError("model must name a folder or a pipeline of the hub")
        if not self.step_s > 0:
            raise ValueError(f"step_s must be more than 0 seconds, not {self.step_s}")
        for name in ("fps", "hold_ms"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative: {getattr(self, name)}")
        if any(side < 1 for size in self.sizes for side in size):
            raise ValueError("sizes must be pairs of a width and a height in pixels")
