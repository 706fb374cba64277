"""Requests that the tiny pipelines can serve, and running them."""

from __future__ import annotations

import hashlib
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from antiphon.engines.interface import Engine, EngineRequest, WorkClass
from antiphon.engines.messages import DiffusionStep, GenerateBody, Generated, RasterChunk

SIZES: dict[str, dict[str, Any]] = {
    "wan": {"width": 32, "height": 32, "frames": 9},
    "ltx": {"width": 32, "height": 64, "frames": 9},
    "flux": {"width": 32, "height": 40},
    "sd3": {"width": 32, "height": 32},
    "sd": {"width": 32, "height": 32},
    "pixart": {"width": 32, "height": 32},
    "dit": {},
}
"""A request that each of them can serve."""
OPTIONS: dict[str, dict[str, Any]] = {
    "ltx": {"multiple": 32},
    "pixart": {"arguments": {"use_resolution_binning": False, "clean_caption": False}},
    "dit": {"arguments": {"class_labels": [1]}},
}


@dataclass(frozen=True, slots=True)
class Made:
    """What came out of a stream."""

    steps: list[DiffusionStep]
    frames: np.ndarray[Any, Any]
    generated: Generated
    chunks: list[RasterChunk]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.frames.tobytes()).hexdigest()


def body(name: str, **fields: Any) -> GenerateBody:
    """A request for the tiny pipeline `name`, of 4 steps unless told otherwise."""
    values = {"prompt": "" if name == "dit" else "a red circle on a white background", "steps": 4, **SIZES[name], **fields}
    return GenerateBody(**values)


def request(asked: GenerateBody, work_class: WorkClass = WorkClass.BATCH, deadline: float | None = None) -> EngineRequest:
    return EngineRequest(request_id="r", body=asked, work_class=work_class, deadline=deadline)


async def make(engine: Engine, asked: GenerateBody, **options: Any) -> Made:
    """Run a request to its end."""
    async with aclosing(engine.stream(request(asked, **options))) as stream:  # type: ignore[type-var]
        chunks = [chunk async for chunk in stream]
    *others, generated = chunks
    assert isinstance(generated, Generated)
    rasters = [chunk for chunk in others if isinstance(chunk, RasterChunk)]
    parts = [np.frombuffer(each.raster.rgb, np.uint8).reshape(-1, each.raster.height, each.raster.width, 3) for each in rasters]
    return Made([chunk for chunk in others if isinstance(chunk, DiffusionStep)], np.concatenate(parts), generated, rasters)


def engine_options(model: Path, name: str, scratch: Path, **options: Any) -> dict[str, Any]:
    """Options for an engine on a tiny pipeline. Its gate is its own, so that nobody's voice holds the tests up."""
    return {"model": str(model), "threads": 1, "gate_file": str(scratch / "gate"), **OPTIONS.get(name, {}), **options}
