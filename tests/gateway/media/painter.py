"""A small real media engine: it paints a disc that moves over a plain ground, step by step, as the body says. No weights, no torch."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from antiphon.engines import registry
from antiphon.engines.errors import EngineBusyError, EngineError, InvalidRequestError
from antiphon.engines.interface import Capabilities, EngineHealth, EngineRequest, MediaCapabilities, Role
from antiphon.engines.messages import DiffusionStep, EngineChunk, GenerateBody, Generated, Raster, RasterChunk

KNOWN = frozenset({"a", "the", "red", "green", "blue", "small", "large", "disc", "on", "moving", "left", "right", "white", "black"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PainterOptions:
    """`step_s`: how long a step takes. `most`: requests that it runs at once; one more is refused."""

    step_s: float = 0.0
    slots: int = 4
    most: int = 1000
    clips: bool = True
    edits: bool = True
    max_frames: int = 48
    max_steps: int = 400


class Painter:
    """See the module's docstring. The words "refuse" and "break" in a prompt do just that."""

    def __init__(self, options: PainterOptions) -> None:
        self._options = options
        self.running = 0
        self.aborted = 0
        self.bodies: list[GenerateBody] = []
        media = MediaCapabilities(
            sizes=((64, 64), (96, 64)),
            max_frames=options.max_frames if options.clips else 1,
            fps=8.0,
            default_frames=8,
            default_steps=6,
            max_steps=options.max_steps,
            edits=options.edits,
            previews=True,
        )
        self.capabilities = Capabilities(role=Role.DIFFUSION, models=("painter-1",), slots=options.slots, media=media)

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def health(self) -> EngineHealth:
        return EngineHealth(ok=True, running=self.running)

    async def stream(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        body = request.body
        assert isinstance(body, GenerateBody)
        if "refuse" in body.prompt:
            raise InvalidRequestError("the painter refuses")
        if self.running >= self._options.most:
            raise EngineBusyError(f"the painter has {self.running} requests already")
        self.bodies.append(body)
        self.running += 1
        done = False
        try:
            steps = body.steps or 6
            width, height = body.width or 64, body.height or 64
            frames = paint(body, width, height)
            for step in range(1, steps + 1):
                await asyncio.sleep(self._options.step_s)
                if "break" in body.prompt and step == 2:
                    raise EngineError("the brush broke")
                shown = body.previews > 0 and step < steps and step % max(1, steps // (body.previews + 1)) == 0
                preview = raster(frames[:1] // 2) if shown else None
                yield DiffusionStep(step=step, steps=steps, preview=preview)
            for first in range(0, len(frames), 16):
                yield RasterChunk(first=first, raster=raster(frames[first : first + 16]))
            words = body.prompt.lower().split()
            ignored = tuple(dict.fromkeys(word for word in words if word not in KNOWN))
            revised = " ".join(word for word in words if word in KNOWN)
            done = True
            yield Generated(seed=body.seed, steps=steps, frames=len(frames), fps=8.0, revised_prompt=revised, ignored=ignored, rows=steps)
        finally:
            self.running -= 1
            self.aborted += not done


def paint(body: GenerateBody, width: int, height: int) -> npt.NDArray[np.uint8]:
    """`[frames, height, width, 3]` uint8."""
    generator = np.random.default_rng([body.seed, zlib.crc32(body.prompt.encode())])
    ground, colour = generator.integers(0, 256, (2, 3), np.uint8)
    if body.image is not None:
        first = np.frombuffer(body.image.rgb, np.uint8).reshape(height, width, 3)
    else:
        first = np.broadcast_to(ground, (height, width, 3))
    frames = np.repeat(first[np.newaxis], body.frames, axis=0).copy()
    rows, columns = np.mgrid[:height, :width]
    for number, frame in enumerate(frames):
        x = (width // 4 + number * 2) % width
        disc = (columns - x) ** 2 + (rows - height // 2) ** 2 < (height // 5) ** 2
        if body.mask is not None:
            disc &= np.frombuffer(body.mask, np.uint8).reshape(height, width) > 0
        frame[disc] = colour
    return frames


def raster(frames: npt.NDArray[np.uint8]) -> Raster:
    count, height, width, _ = frames.shape
    return Raster(width=width, height=height, frames=count, rgb=frames.tobytes())


def register() -> None:
    """Let a configuration name the engine: kind "painter"."""

    def build(name: str, options: registry.Options) -> Painter:
        return Painter(PainterOptions(**options))

    registry._BUILDERS["painter"] = (Role.DIFFUSION, build)
