"""A step model without a network: quick, deterministic, and it writes down who stepped with whom."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from antiphon.engines.diffusion.engine import DiffusionOptions, StepDiffusion
from antiphon.engines.diffusion.passes import ALL, Passes
from antiphon.engines.diffusion.step_model import Frames
from antiphon.engines.errors import InvalidRequestError
from antiphon.engines.interface import EngineRequest, MediaCapabilities, WorkClass
from antiphon.engines.messages import GenerateBody


@dataclass
class ToySample:
    prompt: str
    steps: int
    seed: int
    frames: int
    size: int
    guided: bool
    state: np.ndarray[Any, Any]
    step: int = 0
    rows_computed: int = 0
    revised_prompt: str = ""
    ignored: tuple[str, ...] = ()
    fps: float = 8.0


@dataclass
class ToyModel:
    """A step takes `pause` seconds and `per_row` for each row. A prompt that begins with "bad" fails where it says: bad prepare, bad step,
    bad decode. With `free` cleared a step does not end."""

    pause: float = 0.0
    per_row: float = 0.0
    steps: list[list[str]] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    free: threading.Event = field(default_factory=threading.Event)
    media: MediaCapabilities = field(
        default_factory=lambda: MediaCapabilities(sizes=((16, 16), (32, 32)), max_frames=64, default_steps=4, previews=True)
    )

    def __post_init__(self) -> None:
        self.free.set()

    def prepare(self, body: GenerateBody) -> ToySample:
        if body.prompt.startswith("bad prepare"):
            raise InvalidRequestError("this cannot be drawn")
        size = body.width or 16
        state = np.random.default_rng(body.seed).random((body.frames, size, size, 3))
        return ToySample(
            body.prompt,
            body.steps or 4,
            body.seed,
            body.frames,
            size,
            body.guidance != 1,
            state,
            revised_prompt=body.prompt,
            fps=body.fps or 8.0,
        )

    def shape_key(self, sample: ToySample) -> Hashable:
        return sample.size

    def rows(self, sample: ToySample) -> int:
        return sample.frames * (2 if sample.guided else 1)

    def advance(self, samples: Sequence[ToySample], passes: Passes = ALL) -> None:
        assert len({sample.size for sample in samples}) == 1
        self.steps.append([sample.prompt for sample in samples])
        for part in passes.split(sum(map(self.rows, samples))):
            self.passes.append(part.stop - part.start)
            time.sleep(self.pause + self.per_row * (part.stop - part.start))
        assert self.free.wait(10)
        if any(sample.prompt.startswith("bad step") for sample in samples):
            raise RuntimeError("the network fell over")
        for sample in samples:
            sample.state = (sample.state * 1.7 + 0.1) % 1.0
            sample.rows_computed += self.rows(sample)
            sample.step += 1

    def preview(self, sample: ToySample) -> Frames:
        return (sample.state * 255).astype(np.uint8)

    def decode(self, sample: ToySample) -> Frames:
        if sample.prompt.startswith("bad decode"):
            raise RuntimeError("no picture in there")
        return (sample.state * 255).astype(np.uint8)


@dataclass
class BurningModel(ToyModel):
    """A step burns CPU time: 2 ms for itself, 0.2 ms for each row."""

    def advance(self, samples: Sequence[ToySample], passes: Passes = ALL) -> None:
        super().advance(samples, passes)
        burn(0.002 + 0.0002 * sum(map(self.rows, samples)))


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def engine(model: ToyModel, **options: Any) -> StepDiffusion:
    """A step engine on the toy, not opened; without the gate unless asked for."""
    return StepDiffusion(DiffusionOptions(model=Path("toy"), **{"max_rows": 16, "gate": False, **options}), lambda: model)


def request(
    prompt: str = "a picture", *, work_class: WorkClass = WorkClass.BATCH, deadline: float | None = None, **body: Any
) -> EngineRequest:
    return EngineRequest(request_id=prompt, body=GenerateBody(prompt=prompt, **body), work_class=work_class, deadline=deadline)
