"""What pipelines give for pictures, as bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from antiphon.engines.diffusion.pipelines.output import composed, frames_of
from antiphon.engines.errors import EngineError


def test_the_first_picture_or_clip_is_taken() -> None:
    clip = np.linspace(-0.2, 1.2, 2 * 3 * 4 * 5 * 3).reshape(2, 3, 4, 5, 3)
    assert frames_of(SimpleNamespace(frames=clip), "P").shape == (3, 4, 5, 3)
    pictures = frames_of(SimpleNamespace(images=clip[0]), "P")
    assert pictures.dtype == np.uint8
    assert (pictures.min(), pictures.max()) == (0, 127)  # half way from -0.2 to 1.2
    assert (pictures == frames_of(SimpleNamespace(images=list(clip[0])), "P")).all()


def test_rounding_is_to_the_nearest() -> None:
    levels = np.arange(256, dtype=np.float32).reshape(1, 16, 16, 1) / 255
    assert (frames_of(SimpleNamespace(images=levels), "P")[0, ..., 1].reshape(-1) == np.arange(256)).all()


def test_bytes_and_alpha_are_understood() -> None:
    picture = np.full((2, 2, 4), 9, np.uint8)
    assert (frames_of(SimpleNamespace(images=[picture]), "P") == np.full((1, 2, 2, 3), 9)).all()


@pytest.mark.parametrize(
    ("output", "message", "code"),
    [
        (SimpleNamespace(images=np.full((1, 2, 2, 3), np.nan)), "NaN", "bad_output"),
        (SimpleNamespace(images=np.full((1, 2, 2, 3), np.inf)), "NaN", "bad_output"),
        (SimpleNamespace(frames=[[np.zeros((2, 2, 3)), np.full((2, 2, 3), np.nan)]]), "NaN", "bad_output"),
        (SimpleNamespace(images=[]), "gave no pictures", "bad_output"),
        (SimpleNamespace(audios=np.zeros(4)), "gave no pictures", "bad_output"),
        (SimpleNamespace(images=np.zeros((1, 2, 2, 7))), "shape", "bad_output"),
        (SimpleNamespace(images=np.zeros((1, 2, 2, 3)), nsfw_content_detected=[True]), "safety checker", "content_filter"),
    ],
)
def test_what_is_no_picture_is_an_error(output: Any, message: str, code: str) -> None:
    with pytest.raises(EngineError, match=message) as raised:
        frames_of(output, "P")
    assert raised.value.code == code


def test_composing_keeps_what_the_mask_leaves_out() -> None:
    frames = np.full((2, 1, 2, 3), 1, np.uint8)
    image = np.full((1, 2, 3), 9, np.uint8)
    assert composed(frames, image, np.array([[255, 0]], np.uint8))[..., 0].tolist() == [[[1, 9]], [[1, 9]]]
