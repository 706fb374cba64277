"""The shipped model, step by step: bytes that no companion changes, clips, edits, previews, refusals."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from antiphon.engines.diffusion.passes import Passes
from antiphon.engines.diffusion.tinyflow import SHIPPED
from antiphon.engines.diffusion.tinyflow.rasters import border_colour, from_frames
from antiphon.engines.diffusion.tinyflow.steps import MEDIA, TinyFlowSample, TinyFlowSteps
from antiphon.engines.diffusion.training.checker import look
from antiphon.engines.errors import InvalidRequestError, WeightsError
from antiphon.engines.messages import GenerateBody, Raster


@pytest.fixture(scope="module")
def model() -> TinyFlowSteps:
    return TinyFlowSteps(SHIPPED)


def finish(model: TinyFlowSteps, *samples: TinyFlowSample) -> None:
    while any(sample.step < sample.steps for sample in samples):
        model.advance([sample for sample in samples if sample.step < sample.steps])


def make(model: TinyFlowSteps, **body: object) -> np.ndarray:
    sample = model.prepare(GenerateBody(**body))  # type: ignore[arg-type]
    finish(model, sample)
    return model.decode(sample)


def seen(frames: np.ndarray, index: int = 0) -> tuple[str, list[tuple[str, str]]]:
    ground, things = look(from_frames(frames[index : index + 1], 64, 64)[0])
    return ground, sorted((thing.colour, thing.shape) for thing in things)


def test_a_prompt_becomes_its_picture(model: TinyFlowSteps) -> None:
    sample = model.prepare(GenerateBody(prompt="a large red circle above a large blue square on white", seed=4))
    finish(model, sample)
    assert seen(model.decode(sample)) == ("white", [("blue", "square"), ("red", "circle")])
    assert sample.revised_prompt.startswith("a large red circle above a large blue square")
    assert sample.ignored == ()
    assert sample.rows_computed == sample.steps == MEDIA.default_steps


def test_unknown_words_are_reported(model: TinyFlowSteps) -> None:
    sample = model.prepare(GenerateBody(prompt="a photo of a cat on a red background", negative_prompt="dogs"))
    assert sample.ignored == ("photo", "cat", "dogs")
    assert sample.revised_prompt.endswith("on a red background")


def test_the_same_bytes_alone_and_among_others(model: TinyFlowSteps) -> None:
    bodies = [
        GenerateBody(prompt="a red circle", seed=1),
        GenerateBody(prompt="a green star", seed=2, steps=5, guidance=2.0),
        GenerateBody(prompt="a heart moving left", seed=3, frames=3, steps=6),
    ]
    alone = [make(model, **{name: getattr(body, name) for name in body.__struct_fields__}) for body in bodies]
    samples = [model.prepare(body) for body in bodies]
    model.advance(samples[:1])
    model.advance(samples[:2])
    while any(sample.step < sample.steps for sample in samples):
        model.advance([sample for sample in samples if sample.step < sample.steps], Passes(limit=3))
    for frames, sample in zip(alone, samples, strict=True):
        assert np.array_equal(frames, model.decode(sample))


def test_seeds_differ_and_repeat(model: TinyFlowSteps) -> None:
    first, again, other = (make(model, prompt="a star", seed=seed) for seed in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_clip_moves(model: TinyFlowSteps) -> None:
    sample = model.prepare(GenerateBody(prompt="a large red square moving right on a white background", frames=5, seed=2))
    assert model.rows(sample) == 5
    finish(model, sample)
    frames = model.decode(sample)
    assert frames.shape == (5, 256, 256, 3)
    places = [look(picture)[1][0].x for picture in from_frames(frames, 64, 64)]
    assert all(then - now > 3 for now, then in itertools.pairwise(places))


def test_guidance_doubles_the_rows(model: TinyFlowSteps) -> None:
    sample = model.prepare(GenerateBody(prompt="a red ring", guidance=1.5, steps=3))
    assert model.rows(sample) == 2
    finish(model, sample)
    assert sample.rows_computed == 6


def test_the_cache_saves_rows_and_keeps_the_picture(model: TinyFlowSteps) -> None:
    prompt = "a large yellow triangle on a blue background"
    plain, cached = (model.prepare(GenerateBody(prompt=prompt, steps=20, cache=cache)) for cache in (None, 0.1))
    finish(model, plain, cached)
    assert plain.rows_computed == 20
    assert 2 <= cached.rows_computed < 18
    assert seen(model.decode(cached)) == seen(model.decode(plain)) == ("blue", [("yellow", "triangle")])


@pytest.mark.parametrize("side", [128, 256, 512])
def test_sizes(model: TinyFlowSteps, side: int) -> None:
    assert make(model, prompt="a red circle", width=side, height=side, steps=2).shape == (1, side, side, 3)


def test_previews_show_what_is_coming(model: TinyFlowSteps) -> None:
    sample = model.prepare(GenerateBody(prompt="a large red circle on white"))
    assert model.preview(sample).shape == (1, 128, 128, 3)
    model.advance([sample])
    model.advance([sample])
    assert seen(model.preview(sample)) == ("white", [("red", "circle")])


def test_an_edit_starts_from_its_picture_and_keeps_what_the_mask_keeps(model: TinyFlowSteps) -> None:
    picture = make(model, prompt="a large red circle on the left on a white background", seed=1)[0]
    mask = np.zeros(picture.shape[:2], np.uint8)
    mask[:, 128:] = 255
    image = Raster(width=256, height=256, rgb=picture.tobytes())
    sample = model.prepare(
        GenerateBody(prompt="a large green star on the right", image=image, mask=mask.tobytes(), strength=1.0, steps=10, seed=3)
    )
    assert "on a white background" in sample.revised_prompt
    finish(model, sample)
    edited = model.decode(sample)
    assert np.abs(edited[0, :, :120].astype(int) - picture[:, :120]).max() <= 1
    assert seen(edited) == ("white", [("green", "star"), ("red", "circle")])


def test_strength_says_how_many_steps_are_taken(model: TinyFlowSteps) -> None:
    image = Raster(width=64, height=64, rgb=bytes(3 * 64 * 64))
    sample = model.prepare(GenerateBody(prompt="a red circle", image=image, strength=0.3, steps=20))
    assert sample.steps == 6
    assert sample.revised_prompt.endswith("on a black background")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"width": 300}, "300x256"),
        ({"frames": 0}, "0 frames"),
        ({"frames": 1000}, "1000 frames"),
        ({"steps": 0}, "0 steps"),
        ({"steps": 10_000}, "10000 steps"),
        ({"guidance": float("nan")}, "guidance"),
        ({"guidance": 0.0}, "guidance"),
        ({"fps": -1.0}, "fps"),
        ({"cache": -0.1}, "cache"),
        ({"mask": b"1"}, "without a picture"),
        ({"image": Raster(width=2, height=2, rgb=b"12")}, "2 bytes"),
        ({"image": Raster(width=1, height=1, rgb=b"123"), "mask": b"12"}, "mask has 2 bytes"),
        ({"image": Raster(width=1, height=1, rgb=b"123"), "strength": 0.0}, "strength"),
    ],
)
def test_what_cannot_be_made_is_refused_with_a_reason(model: TinyFlowSteps, body: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        model.prepare(GenerateBody(prompt="a red circle", **body))  # type: ignore[arg-type]


def test_a_step_that_fails_changes_nothing(model: TinyFlowSteps, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = model.prepare(GenerateBody(prompt="a red circle"))
    before = sample.latents
    with monkeypatch.context() as patch:
        patch.setattr(model, "_predict", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.advance([sample])
    assert sample.step == 0
    assert sample.latents is before


def test_broken_weights_are_named(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "broken")
    file = tmp_path / "broken" / "transformer" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(WeightsError, match="broken"):
        TinyFlowSteps(tmp_path / "broken")
    with pytest.raises(WeightsError, match="nowhere"):
        TinyFlowSteps(tmp_path / "nowhere")


def test_the_colour_of_a_border() -> None:
    picture = torch.full((3, 64, 64), -1.0)
    picture[:, 16:48, 16:48] = 1.0
    assert border_colour(picture) == "black"
