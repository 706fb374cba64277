"""Clips: frames go from the engine into the encoder as they come; beside the MP4 file there are a thumbnail and a sheet of small frames."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from ....codecs.images import ImageError
from ....codecs.video import VideoError
from ....engines.errors import EngineError
from ....engines.messages import DiffusionStep, Generated
from ...media.requests import MediaRequest
from ..errors import JobFailedError
from ..interface import Work
from ..job import Artifact
from ..uploads import Uploads
from .clip import Clip
from .generation import body_of, generate, in_thread, origin_of, said
from .image import preview_of
from .pictures import Frames

DENOISED = 90.0
"""Percent at which the last denoising step is done; the rest is decoding, encoding and keeping."""
ENCODED = 97.0
T = TypeVar("T")

VIDEO, THUMBNAIL, SPRITESHEET = "video.mp4", "thumbnail.webp", "spritesheet.jpg"


class VideoHandler:
    """Does jobs of the kind `video`."""

    def __init__(self, uploads: Uploads, *, clock: Callable[[], float]) -> None:
        self._uploads = uploads
        self._clock = clock

    async def run(self, work: Work) -> tuple[tuple[Artifact, ...], dict[str, Any]]:
        job = work.job
        request = cast(MediaRequest, job.request)
        output = request["output"]
        began = time.monotonic()
        origin = await origin_of(request, job.tenant, self._uploads, self._clock())
        with tempfile.TemporaryDirectory(prefix="antiphon-clip-") as folder:
            path = Path(folder) / VIDEO
            clip = await _encoding(lambda: Clip(path, output["width"], output["height"], fps=output["fps"], frames=request["frames"]))
            try:
                made = await self._film(work, request, body_of(request, origin), clip)
                filmed = time.monotonic()
                thumbnail, sheet = await _encoding(clip.finish)
            finally:
                await in_thread(clip.close)
            artifacts = (
                await work.keep(VIDEO, path, "video/mp4"),
                await work.keep(THUMBNAIL, thumbnail, "image/webp"),
                await work.keep(SPRITESHEET, sheet, "image/jpeg"),
            )
        await work.report(99.0)
        return artifacts, {
            **said(made),
            "size": request["size"],
            "seconds": request["seconds"],
            "frames": clip.count,
            "fps": output["fps"],
            "timing": {"drawing_s": round(filmed - began, 3), "keeping_s": round(time.monotonic() - filmed, 3)},
        }

    async def _film(self, work: Work, request: MediaRequest, body: Any, clip: Clip) -> Generated:
        """Have the clip drawn and encoded. Raises `JobFailedError`, `EngineError`."""

        async def step(chunk: DiffusionStep) -> None:
            await work.report(DENOISED * chunk.step / chunk.steps, await preview_of(chunk, request))

        async def frames(first: int, taken: Frames) -> None:
            if first != clip.count:
                raise EngineError(f"the engine sent frame {first}, but frame {clip.count} is the next")
            await _encoding(lambda: clip.add(taken))
            await work.report(DENOISED + (ENCODED - DENOISED) * min(1.0, clip.count / request["frames"]))

        made = await generate(work, f"{work.job.id}-{work.job.attempt}", body, on_step=step, on_frames=frames)
        if clip.count == 0:
            raise EngineError("the engine sent no frames")
        return made


async def _encoding(compute: Callable[[], T]) -> T:
    """Run a method of the clip on a thread. Raises `JobFailedError`: "encoding_failed" for what no encoder takes, "storage_failed" for a
    scratch folder that is full."""
    from av.error import FFmpegError

    try:
        return await in_thread(compute)
    except (VideoError, ImageError) as error:
        raise JobFailedError("encoding_failed", f"The clip cannot be encoded: {error}.") from error
    except (OSError, FFmpegError) as error:
        raise JobFailedError("storage_failed", f"The clip could not be written to the scratch folder: {error}") from error
