"""Prompts become scenes: what is said is kept, what is open is filled, what the world lacks is named."""

from __future__ import annotations

import random
import time

import pytest
from antiphon.engines.diffusion.tinyflow.prompt import understand
from antiphon.engines.diffusion.tinyflow.scene import Scene, Thing
from antiphon.engines.diffusion.tinyflow.words import COLOURS, PLACES, SHAPES, VOCABULARY
from antiphon.engines.diffusion.training.world import KINDS, draw
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("kind", KINDS)
def test_a_canonical_caption_is_read_back_as_the_scene_it_says(kind: str) -> None:
    rng = random.Random(kind)
    for _ in range(200):
        scene = draw(rng, kind)
        read = understand(scene.caption(), rng.randrange(1000), clip=bool(scene.motion))
        assert read.scene == scene
        assert read.ignored == ()


@pytest.mark.parametrize(
    ("prompt", "caption"),
    [
        ("Please draw a HUGE orange square under a little grey disc, on black!", "large orange square below a small gray circle"),
        ("a big violet heart in the upper left of the picture on white", "a large purple heart in the top left on a white background"),
        (
            "a tiny red ball to the left of a big blue box in the upper middle",
            "a small red circle left of a large blue square both at the top",
        ),
        ("three small pink donuts in a pyramid against a brown backdrop", "three small pink rings in a pyramid on a brown background"),
        ("a circle that is red and a square that is blue", "red circle"),
        ("background black, small white cross in the middle", "a small white cross in the center on a black background"),
        ("at the top a red circle and at the bottom a green star", "red circle at the top and"),
    ],
)
def test_other_words_and_orders_mean_the_same(prompt: str, caption: str) -> None:
    read = understand(prompt, 5)
    assert caption in read.caption
    assert read.ignored == ()


@pytest.mark.parametrize(
    ("prompt", "ignored"),
    [
        ("a photo of a cat on a red background", ("photo", "cat")),
        ("a red circle inside a blue ring", ("inside",)),
        ("five stars", ("five",)),
        ("a red and blue circle", ("blue",)),
        ("a red circle, a blue square and a green star", ("green star",)),
        ("a red circle on a red background", ("red background",)),
        ("two green stars at the top", ("top",)),
        ("a red circle moving left", ("moving left",)),
        ("a shiny red circle", ("shiny",)),
    ],
)
def test_what_the_world_lacks_is_named(prompt: str, ignored: tuple[str, ...]) -> None:
    assert understand(prompt, 3).ignored == ignored


@pytest.mark.parametrize(
    ("prompt", "caption", "ignored"),
    [
        ("a red ball rising on black", "red circle moving up", ()),
        ("a blue square drifting to the left at the top", "blue square moving left at the top", ()),
        ("a big star getting bigger", "star growing", ("large",)),
        ("two circles falling", "circle moving down", ("two",)),
        ("a cat flying right", "moving right", ("cat",)),
        ("a red star moving left on the left", "red star moving left", ("left",)),
        ("a red star", "red star", ()),
    ],
)
def test_clips(prompt: str, caption: str, ignored: tuple[str, ...]) -> None:
    read = understand(prompt, 3, clip=True)
    assert caption in read.caption
    assert read.scene.motion
    assert read.ignored == ignored


def test_the_cat_is_not_drawn_but_its_background_is() -> None:
    read = understand("a photo of a cat on a red background", 1)
    assert read.scene.background == "red"
    assert read.caption.endswith("on a red background")


def test_seeds_fill_what_is_open_and_nothing_else() -> None:
    read = [understand("a red circle", seed).scene for seed in range(60)]
    assert {scene.things[0].colour for scene in read} == {"red"}
    assert {scene.things[0].shape for scene in read} == {"circle"}
    assert {scene.things[0].size for scene in read} == {"small", "medium", "large"}
    assert {scene.places[0] for scene in read} == set(PLACES)
    assert len({scene.background for scene in read}) > 5
    assert all(scene.background != "red" for scene in read)


def test_naming_one_attribute_leaves_the_others_as_the_seed_had_them() -> None:
    for seed in range(20):
        free, named = understand("a red circle", seed).scene, understand("a large red circle", seed).scene
        assert (free.places, free.background) == (named.places, named.background)


def test_an_edit_keeps_the_background_of_its_picture_unless_another_is_named() -> None:
    assert understand("a red circle", 1, background="green").scene.background == "green"
    assert understand("a red circle on blue", 1, background="green").scene.background == "blue"
    assert understand("a red circle", 1, background="red").scene.background != "red"


_WORDS = st.sampled_from(
    [*VOCABULARY, "on", "a", "the", "background", "in", "moving", "next", "to", "cat", "upper", "7", ",", "pair", "top of"]
)


@given(st.lists(_WORDS, max_size=24).map(" ".join) | st.text(max_size=80), st.integers(0, 9), st.booleans())
def test_anything_becomes_a_scene_and_its_caption_says_just_that_scene(prompt: str, seed: int, clip: bool) -> None:
    read = understand(prompt, seed, clip)
    assert bool(read.scene.motion) == clip
    again = understand(read.caption, seed + 1, clip)
    assert again.scene == read.scene
    assert again.ignored == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"things": (Thing("small", "red", "circle"),), "background": "red", "places": ("top",)},
        {"things": (Thing("small", "red", "circle"),), "background": "blue", "places": ("nowhere",)},
        {"things": (Thing("small", "red", "circle"),), "background": "blue", "count": 5, "arrangement": "grid"},
        {"things": (Thing("small", "red", "circle"),), "background": "blue", "places": ("top left",), "motion": "moving up"},
        {"things": (Thing("small", "red", "circle"),) * 2, "background": "blue", "places": ("top", "center")},
        {"things": (Thing("small", "red", "circle"),) * 2, "background": "blue", "relation": "above", "side": "top"},
    ],
)
def test_a_scene_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Scene(**wrong)  # type: ignore[arg-type]


def test_the_words_are_distinct() -> None:
    assert len(set(VOCABULARY)) == len(VOCABULARY)
    assert (len(COLOURS), len(SHAPES)) == (12, 8)


def test_a_very_long_prompt_is_read_in_little_time_and_answered_shortly() -> None:
    began = time.process_time()
    read = understand("a circle " + "red small moving on " * 20_000 + " ".join(f"word{index}" for index in range(20_000)))
    assert time.process_time() - began < 10
    assert len(read.ignored) == 33
    assert read.ignored[-1].endswith("more")
