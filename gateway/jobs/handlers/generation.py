"""What the kinds of job share: from a row's request to the engine's body, and from the engine's chunks to frames."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ....engines.errors import EngineBusyError, EngineError, InvalidRequestError
from ....engines.interface import EngineRequest
from ....engines.messages import DiffusionStep, GenerateBody, Generated, Raster, RasterChunk
from ...media.requests import MediaRequest
from ..errors import JobFailedError
from ..interface import Work
from ..runner import CLASS_OF
from ..uploads import Uploads
from .pictures import Frames, fit, read_mask, read_picture

PATIENCE = 900.0
"""Seconds that a stream may give nothing: a job steps aside for live work, and large models take long steps on a CPU."""

BUSY_PAUSE = 0.2
"""Seconds until a request is offered again to an engine that was full."""

OnStep = Callable[[DiffusionStep], Awaitable[None]]
OnFrames = Callable[[int, Frames], Awaitable[None]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a picture starts from, in the size that the model draws: `image` and perhaps `mask`."""

    image: Raster | None = None
    mask: bytes | None = None


async def origin_of(request: MediaRequest, tenant: str, uploads: Uploads, now: float) -> Origin:
    """Fetch and prepare the pictures that the request names. Raises `JobFailedError`."""
    if request["image"] is None:
        return Origin()
    width, height = request["width"], request["height"]
    data = await _upload(tenant, request["image"], uploads, now)
    rgb = await in_thread(lambda: fit(read_picture(data)[np.newaxis], width, height))
    mask = None
    if request["mask"] is not None:
        painted = await _upload(tenant, request["mask"], uploads, now)
        mask = (await in_thread(lambda: read_mask(painted, width, height))).tobytes()
    return Origin(image=Raster(width=width, height=height, rgb=rgb.tobytes()), mask=mask)


async def _upload(tenant: str, upload_id: str, uploads: Uploads, now: float) -> bytes:
    upload = await uploads.get(tenant, upload_id, now)
    if upload is not None:
        try:
            return await uploads.data(upload)
        except FileNotFoundError:
            pass
    message = f"The file '{upload_id}' that this job starts from is gone: it was removed, or its time was over."
    raise JobFailedError("file_not_found", message)


def body_of(request: MediaRequest, origin: Origin, number: int = 0) -> GenerateBody:
    """The engine's body for picture `number` (0 is the first) of a request."""
    return GenerateBody(
        prompt=request["prompt"],
        negative_prompt=request["negative_prompt"],
        width=request["width"],
        height=request["height"],
        frames=request["frames"],
        fps=request["fps"],
        steps=request["steps"],
        guidance=request["guidance"],
        seed=request["seed"] + number,
        cache=request["cache"],
        previews=request["previews"] if number == 0 else 0,
        image=origin.image,
        mask=origin.mask,
        strength=request["strength"],
    )


async def generate(work: Work, request_id: str, body: GenerateBody, *, on_step: OnStep, on_frames: OnFrames) -> Generated:
    """Run one request on the work's lease and hand out steps and frames as they come.

    Raises `JobFailedError` when the engine refuses the request, another `EngineError` when it could not do it this time.
    """
    request = EngineRequest(request_id=request_id, body=body, work_class=CLASS_OF[work.job.kind], patience=PATIENCE)
    tried_until = time.monotonic() + PATIENCE
    while True:
        try:
            return await _generated(work, request, on_step, on_frames)
        except EngineBusyError:
            # The slot is the job's, but a job has many requests: together they can be more than the engine takes at a time.
            if time.monotonic() > tried_until:
                raise
            await asyncio.sleep(BUSY_PAUSE)


async def _generated(work: Work, request: EngineRequest, on_step: OnStep, on_frames: OnFrames) -> Generated:
    try:
        async with aclosing(work.lease.stream(request)) as chunks:
            async for chunk in chunks:
                match chunk:
                    case DiffusionStep():
                        await on_step(chunk)
                    case RasterChunk():
                        await on_frames(chunk.first, frames_of(chunk.raster))
                    case Generated():
                        return chunk
                    case _:
                        raise EngineError(f"a diffusion engine sent a {type(chunk).__name__}")
    except InvalidRequestError as error:
        raise JobFailedError(InvalidRequestError.code, str(error)) from error
    raise EngineError("the engine ended without its last word")


def frames_of(raster: Raster) -> Frames:
    """A raster's frames. Raises `EngineError` when its bytes are not what it says."""
    try:
        return np.frombuffer(raster.rgb, np.uint8).reshape(raster.frames, raster.height, raster.width, 3)
    except ValueError as error:
        raise EngineError(f"the engine sent frames that are not {raster.width}x{raster.height}: {error}") from error


@dataclass(slots=True)
class Gathered:
    """Collects a request's frames in order."""

    parts: list[Frames] = field(default_factory=list)
    count: int = 0

    async def take(self, first: int, frames: Frames) -> None:
        """For `generate`. Raises `EngineError` when frames are missing."""
        if first != self.count:
            raise EngineError(f"the engine sent frame {first} after frame {self.count - 1}")
        self.parts.append(frames)
        self.count += len(frames)

    def only(self) -> Frames:
        """All of them. Raises `EngineError` when none came."""
        if not self.parts:
            raise EngineError("the engine sent no frames")
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)


def said(generated: Generated) -> dict[str, Any]:
    """What the result of a job says about what was made."""
    found: dict[str, Any] = {
        "seed": generated.seed,
        "steps": generated.steps,
        "rows": generated.rows,
        "revised_prompt": generated.revised_prompt,
        "warnings": [],
        "warning_details": [],
    }
    if generated.ignored:
        sentence = ignored_sentence(generated.ignored)
        found["warnings"].append(sentence)
        found["warning_details"].append({"code": "prompt_words_ignored", "message": sentence, "words": list(generated.ignored)})
    return found


def ignored_sentence(words: tuple[str, ...]) -> str:
    """What a client is told when the model does not know some words."""
    listed = ", ".join(f"'{word}'" for word in words)
    these, them = ("this word", "it") if len(words) == 1 else ("these words", "them")
    return f"The model does not know {these} of the prompt and left {them} out: {listed}."


async def in_thread(function: Callable[[], T]) -> T:
    """Run `function` on a thread. When the caller is cancelled it still waits for the thread: what that works on is not taken away."""
    running = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        raise


async def together(works: Sequence[Callable[[], Awaitable[T]]], *, at_once: int) -> list[T]:
    """The results of all, in order, at most `at_once` at a time. The first error ends the others and is raised as it is."""
    results: dict[int, T] = {}
    waiting = iter(enumerate(works))

    async def some() -> None:
        for number, work in waiting:
            results[number] = await work()

    tasks = [asyncio.ensure_future(some()) for _ in range(min(at_once, len(works)))]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
        return [results[number] for number in range(len(works))]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
