"""Pictures: `n` of them side by side, so that they share the engine's steps; each a file of the job."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from ....engines.messages import DiffusionStep, Generated
from ...media.requests import MediaRequest
from ..interface import Work
from ..job import Artifact
from ..uploads import Uploads
from .generation import Gathered, Origin, body_of, frames_of, generate, in_thread, origin_of, said, together
from .pictures import Frames, encode, fit, media_type

DRAWN = 90.0
"""Percent at which everything is drawn; the rest is encoding and keeping."""
PREVIEW_QUALITY = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A finished picture: the file's bytes, and what the engine said."""

    data: bytes
    generated: Generated


class ImageHandler:
    """Does jobs of the kind `image`."""

    def __init__(self, uploads: Uploads, *, clock: Callable[[], float]) -> None:
        self._uploads = uploads
        self._clock = clock

    async def run(self, work: Work) -> tuple[tuple[Artifact, ...], dict[str, Any]]:
        job = work.job
        request = cast(MediaRequest, job.request)
        began = time.monotonic()
        origin = await origin_of(request, job.tenant, self._uploads, self._clock())
        done = [0.0] * request["n"]

        async def step(number: int, chunk: DiffusionStep) -> None:
            done[number] = chunk.step / chunk.steps
            preview = await preview_of(chunk, request)
            await work.report(DRAWN * sum(done) / len(done), preview)

        pictures = await draw(work, request, origin, step)
        drawn = time.monotonic()
        kept = request["output"]["format"]
        artifacts = []
        for number, picture in enumerate(pictures):
            artifacts.append(await work.keep(f"image-{number}.{kept}", picture.data, media_type(kept)))
            await work.report(DRAWN + (99.0 - DRAWN) * (number + 1) / len(pictures))
        return tuple(artifacts), {
            **said_of(pictures),
            "size": request["size"],
            "timing": {"drawing_s": round(drawn - began, 3), "keeping_s": round(time.monotonic() - drawn, 3)},
        }


async def draw(
    work: Work, request: MediaRequest, origin: Origin, on_step: Callable[[int, DiffusionStep], Awaitable[None]], *, name: str = ""
) -> list[Drawn]:
    """All pictures of a request, on the work's lease; `name` tells several requests of a job apart. Raises `JobFailedError`,
    `EngineError`."""

    async def one(number: int) -> Drawn:
        frames = Gathered()

        async def step(chunk: DiffusionStep) -> None:
            await on_step(number, chunk)

        request_id = f"{work.job.id}-{work.job.attempt}{name}-{number}"
        generated = await generate(work, request_id, body_of(request, origin, number), on_step=step, on_frames=frames.take)
        return Drawn(data=await in_thread(lambda: as_file(frames.only(), request)), generated=generated)

    count = request["n"]
    return await together([lambda number=number: one(number) for number in range(count)], at_once=count)  # type: ignore[misc]


def as_file(frames: Frames, request: MediaRequest) -> bytes:
    """The picture's file, in the size and format that were asked for."""
    output = request["output"]
    return encode(fit(frames[:1], output["width"], output["height"])[0], output["format"], output["quality"])


async def preview_of(chunk: DiffusionStep, request: MediaRequest) -> bytes | None:
    """The WebP file of a step's preview, if it has one, in the shape that was asked for."""
    raster = chunk.preview
    if raster is None:
        return None
    output = request["output"]
    # No larger than it was drawn: it is shown scaled.
    scale = min(1.0, max(raster.width / output["width"], raster.height / output["height"]))
    width, height = max(1, round(output["width"] * scale)), max(1, round(output["height"] * scale))
    middle = raster.frames // 2
    return await in_thread(lambda: encode(fit(frames_of(raster)[middle : middle + 1], width, height)[0], "webp", PREVIEW_QUALITY))


def said_of(pictures: list[Drawn]) -> dict[str, Any]:
    """The result's part about what was made. The pictures have one prompt, so the first speaks for all."""
    return {
        **said(pictures[0].generated),
        "seeds": [picture.generated.seed for picture in pictures],
        "rows": sum(picture.generated.rows for picture in pictures),
    }
