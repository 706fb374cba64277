"""A diffusion model taken apart at its denoising steps, so that a scheduler can mix requests that stand at different ones.

All methods compute, so the scheduler calls them on its one compute thread, never on an event loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..interface import MediaCapabilities
from ..messages import GenerateBody
from .passes import ALL, Passes

Frames: TypeAlias = npt.NDArray[np.uint8]
"""`[frames, height, width, 3]`, sRGB."""


class Sample(Protocol):
    """One request's state between steps; the model's own class, opaque to the scheduler but for these."""

    step: int
    """Steps done so far."""
    steps: int
    rows_computed: int
    """Network rows that were really computed for it (the residual cache saves some)."""
    revised_prompt: str
    ignored: tuple[str, ...]
    seed: int
    frames: int
    fps: float


class StepModel(Protocol):
    """See the module's docstring. Given the same body, the frames are the same bytes whichever samples share its steps."""

    @property
    def media(self) -> MediaCapabilities: ...

    def prepare(self, body: GenerateBody) -> Sample:
        """Encode the prompt, draw the noise of `body.seed`. Raises `InvalidRequestError` that names what the model cannot make."""

    def shape_key(self, sample: Sample) -> Hashable:
        """Samples with equal keys may share a forward pass."""

    def rows(self, sample: Sample) -> int:
        """How many rows of the network its next step takes: frames, times two with guidance."""

    def advance(self, samples: Sequence[Sample], passes: Passes = ALL) -> None:
        """Take each sample (all of one shape key, each at its own step) one step further, sharing forward passes, which `passes.split`
        gives in rows. A sample's `step` is counted up last: one that raises has not changed."""

    def preview(self, sample: Sample) -> Frames:
        """What the sample would look like if it ended now (from the last predicted clean sample), cheaply."""

    def decode(self, sample: Sample) -> Frames:
        """The finished frames."""
