"""The world: rendered truth passes the checker, what is wrong does not, composed latents are the encoder's, held out means held out."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch
from antiphon.engines.diffusion.tinyflow.prompt import understand
from antiphon.engines.diffusion.tinyflow.scene import Scene, Thing
from antiphon.engines.diffusion.tinyflow.text import build_tokenizer
from antiphon.engines.diffusion.tinyflow.vae import TinyFlowVAE
from antiphon.engines.diffusion.tinyflow.words import FILLERS, MAX_TOKENS, VOCABULARY
from antiphon.engines.diffusion.training import compose
from antiphon.engines.diffusion.training.checker import check_clip, check_picture
from antiphon.engines.diffusion.training.codec import fit_codec
from antiphon.engines.diffusion.training.compose import Composer
from antiphon.engines.diffusion.training.render import render
from antiphon.engines.diffusion.training.rephrase import agrees, rephrase
from antiphon.engines.diffusion.training.world import KINDS, PICTURE_KINDS, draw, draw_held_out, draw_moment, draw_training, held_out


@pytest.fixture(scope="module")
def codec() -> TinyFlowVAE:
    vae = TinyFlowVAE()
    fit_codec(vae, 0, 1500)
    return vae.requires_grad_(False)


@pytest.mark.parametrize("kind", PICTURE_KINDS)
def test_rendered_pictures_are_right_every_time(kind: str) -> None:
    rng = random.Random(kind)
    scenes = [draw(rng, kind) for _ in range(100)]
    wrong = [scene.caption() for scene, picture in zip(scenes, render(scenes), strict=True) if not check_picture(picture, scene)["strict"]]
    assert wrong == []


@pytest.mark.parametrize("frames", [8, 16])
def test_rendered_clips_are_right_every_time(frames: int) -> None:
    rng = random.Random(frames)
    for _ in range(25):
        scene = draw(rng, "clip")
        clip = render([scene] * frames, [index / (frames - 1) for index in range(frames)])
        assert check_clip(clip, scene)["strict"], scene.caption()


def test_the_checker_names_what_is_wrong() -> None:
    scene = Scene((Thing("large", "red", "circle"),), "white", places=("top left",))
    picture = render([scene])[0]
    for wrong, attributes in (
        (Scene((Thing("small", "red", "circle"),), "white", places=("top left",)), {"size"}),
        (Scene((Thing("large", "blue", "circle"),), "white", places=("top left",)), {"colour"}),
        (Scene((Thing("large", "red", "square"),), "white", places=("top left",)), {"shape"}),
        (Scene((Thing("large", "red", "circle"),), "gray", places=("top left",)), {"background"}),
        (Scene((Thing("large", "red", "circle"),), "white", places=("top",)), {"place"}),
        (Scene((Thing("large", "red", "circle"),), "white", count=2, arrangement="diagonal"), {"count", "place"}),
    ):
        verdict = check_picture(picture, wrong)
        assert {name for name, right in verdict.items() if not right} == attributes | {"strict"}


def test_the_checker_sees_a_clip_that_stands_still_flickers_or_runs_backwards() -> None:
    scene = Scene((Thing("large", "red", "square"),), "white", places=("top",), motion="moving right")
    moments = [index / 7 for index in range(8)]
    still = check_clip(render([scene] * 8, [0.5] * 8), scene)
    assert not still["motion"]
    assert not still["strict"]
    assert not check_clip(render([scene] * 8, moments[::-1]), scene)["motion"]
    other = dataclasses.replace(scene, things=(Thing("large", "blue", "square"),))
    flicker = check_clip(render([scene, other] * 4, moments), scene)
    assert (flicker["motion"], flicker["colour"]) == (True, False)
    jumpy = check_clip(render([scene] * 8, [0, 1 / 7, 2 / 7, 3 / 7, 3 / 7, 3 / 7, 1, 1]), scene)
    assert not jumpy["constancy"]


def test_an_empty_picture_is_wrong() -> None:
    scene = Scene((Thing("large", "red", "circle"),), "white", places=("top left",))
    assert check_picture(torch.full((3, 64, 64), 0.95), scene) == {
        "background": True, "count": False, "colour": False, "shape": False, "size": False, "place": False, "strict": False,
    }  # fmt: skip
    assert not check_clip(torch.full((4, 3, 64, 64), 0.95), dataclasses.replace(scene, places=("top",), motion="moving left"))["strict"]


def test_held_out_combinations_are_never_drawn_for_training() -> None:
    rng = random.Random(0)
    seen = {(thing.colour, thing.shape, scene.background) for scene in (draw_training(rng) for _ in range(3000)) for thing in scene.things}
    for kind in KINDS:
        scene = draw_held_out(rng, kind)
        assert held_out(scene)
        assert any((thing.colour, thing.shape, scene.background) not in seen for thing in scene.things)
    share = sum(held_out(draw(rng, "single")) for _ in range(3000)) / 3000
    assert 0.05 < share < 0.15


def test_every_caption_fits_the_tokenizer_and_uses_its_words_only() -> None:
    rng, tokenizer = random.Random(1), build_tokenizer()
    for _ in range(800):
        ids = tokenizer(draw(rng).caption())["input_ids"]
        assert 0 < len(ids) <= MAX_TOKENS
        assert VOCABULARY.index("<unk>") not in ids
    assert not set(FILLERS) & set(VOCABULARY)


def test_the_codec_keeps_what_the_checker_looks_at(codec: TinyFlowVAE) -> None:
    rng = random.Random(3)
    scenes = [draw(rng, kind) for kind in PICTURE_KINDS for _ in range(40)]
    decoded = codec.decode_linear(codec.encode(render(scenes)))
    right = [check_picture(picture, scene)["strict"] for picture, scene in zip(decoded, scenes, strict=True)]
    assert sum(right) / len(right) >= 0.99


def test_composed_latents_are_those_of_rendered_pictures(codec: TinyFlowVAE, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "_JITTER", 0.0)
    rng = random.Random(4)
    scenes = [draw(rng) for _ in range(150)]
    moments = [draw_moment(rng, scene) for scene in scenes]
    batch = Composer(codec)(scenes, moments, rng)
    assert (batch.latents - codec.encode(render(scenes, moments))).abs().max() < 0.1
    assert ((batch.shape != compose.EMPTY).sum(1) >= 2).all()


def test_rephrased_scenes_are_understood() -> None:
    rng = random.Random(5)
    for kind in KINDS:
        for _ in range(150):
            scene = draw(rng, kind)
            prompt, named = rephrase(scene, rng)
            read = understand(prompt, rng.randrange(1000), bool(scene.motion))
            assert agrees(named, scene, read.scene), (prompt, read.caption)
            assert read.ignored == (), (prompt, read.ignored)
