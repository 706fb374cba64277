"""What was asked for, as the job's row keeps it: plain dictionaries, checked and complete, ready for a `GenerateBody`.

Bodies of the API become these in `bodies`; handlers read them. Nothing here is taken from a client unchecked.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class Output(TypedDict):
    """The file that is made of what the model drew: scaled to fit `width` x `height` and centred; the rest takes the border's colour.

    `fps`: frames shown a second, of a clip. `quality` (1 to 100) is for webp and jpeg.
    """

    format: Literal["mp4", "png", "webp", "jpeg"]
    width: int
    height: int
    fps: float
    quality: int


class MediaRequest(TypedDict):
    """`NewJob.request` of kinds `video` and `image`.

    The keys from `prompt` to `strength` are those of `GenerateBody`, in the model's own size and frames; None takes the model's value.
    `image` and `mask` are the ids of uploads of the same tenant (None: none): a picture is fitted into `width` x `height` as `Output`
    says; where a mask is opaque the picture stays. `n` pictures have the seeds `seed`, `seed + 1`, ….
    """

    prompt: str
    negative_prompt: str
    width: int
    height: int
    frames: int
    fps: float | None
    steps: int | None
    guidance: float | None
    seed: int
    cache: float | None
    previews: int
    strength: float
    image: str | None
    mask: str | None
    n: int
    output: Output
    size: str
    """As it was asked for, or what stands for it: "1280x720"."""
    seconds: str
    """Of a clip; "" for pictures."""
    warnings: list[str]
    """What the client should know before the work begins."""
    extra: dict[str, Any]
    """What the answer gives back and nobody else reads (background, quality …)."""


class BatchLine(TypedDict):
    """A line of a batch's input file: a picture's request, or why it has none."""

    custom_id: str
    request: MediaRequest | None
    error: dict[str, Any] | None
    """`{"code", "message", "param"}`, of a line that asks for what cannot be done."""
    model: str


class BatchRequest(TypedDict):
    """`NewJob.request` of kind `batch`. `batches.read_lines` reads the lines from the upload `input_file_id`: rows stay small."""

    endpoint: str
    input_file_id: str
    completion_window: str
    metadata: dict[str, str] | None
    total: int
    output_expires_s: float | None
