"""Sizes and lengths: what is drawn for what was asked."""

from __future__ import annotations

import pytest
from antiphon.engines.interface import MediaCapabilities
from antiphon.gateway.errors import ApiError
from antiphon.gateway.media.sizes import IMAGE_SIZES, VIDEO_SIZES, Plan, plan_length, plan_size
from hypothesis import given
from hypothesis import strategies as st

SMALL = MediaCapabilities(sizes=((256, 256), (128, 128), (256, 128)), max_frames=64, fps=8.0)
LARGE = MediaCapabilities(multiple=32, max_side=1024, max_frames=121, fps=24.0)


@pytest.mark.parametrize("size", [None, "auto"])
def test_without_a_size_the_model_takes_its_own(size: str | None) -> None:
    assert plan_size(size, SMALL, VIDEO_SIZES) == Plan(width=256, height=256, drawn_width=256, drawn_height=256)
    assert plan_size(size, LARGE, VIDEO_SIZES) == Plan(width=1024, height=1024, drawn_width=1024, drawn_height=1024)


def test_an_own_size_is_drawn_as_it_is() -> None:
    assert plan_size("128x128", SMALL, VIDEO_SIZES) == Plan(width=128, height=128, drawn_width=128, drawn_height=128)
    assert plan_size("992x512", LARGE, VIDEO_SIZES) == Plan(width=992, height=512, drawn_width=992, drawn_height=512)


def test_a_usual_size_is_drawn_at_the_own_size_of_the_nearest_shape() -> None:
    assert plan_size("1280x720", SMALL, VIDEO_SIZES) == Plan(width=1280, height=720, drawn_width=256, drawn_height=128)
    assert plan_size("720x1280", SMALL, VIDEO_SIZES) == Plan(width=720, height=1280, drawn_width=256, drawn_height=256)
    assert plan_size("1024x1792", LARGE, VIDEO_SIZES) == Plan(width=1024, height=1792, drawn_width=576, drawn_height=1024)


def test_of_two_sizes_of_a_shape_the_smaller_that_need_not_be_enlarged_is_drawn() -> None:
    media = MediaCapabilities(sizes=((512, 512), (256, 256), (128, 128)))
    assert plan_size("256x256", media, IMAGE_SIZES).drawn_width == 256
    square = MediaCapabilities(sizes=((128, 128), (512, 512), (300, 300)))
    assert plan_size("256x256", square, IMAGE_SIZES).drawn_width == 300


@pytest.mark.parametrize(
    "size", ["", "0x0", "128", "128x", "x128", "1280X720", "-1x5", "129x128", "99999x99999", "１２８x128", "128x128\n"]
)
def test_another_size_is_refused_with_what_is_possible(size: str) -> None:
    with pytest.raises(ApiError) as refusal:
        plan_size(size, SMALL, VIDEO_SIZES)
    assert (refusal.value.status, refusal.value.param) == (400, "size")
    assert "128x128" in refusal.value.message
    assert "1280x720" in refusal.value.message


@given(st.sampled_from([*IMAGE_SIZES, *VIDEO_SIZES]), st.sampled_from([SMALL, LARGE]))
def test_what_is_drawn_is_what_the_model_can_draw(size: str, media: MediaCapabilities) -> None:
    plan = plan_size(size, media, (*IMAGE_SIZES, *VIDEO_SIZES))
    assert plan.size == size
    if media.sizes:
        assert (plan.drawn_width, plan.drawn_height) in media.sizes
    else:
        assert plan.drawn_width % 32 == plan.drawn_height % 32 == 0
        assert 0 < max(plan.drawn_width, plan.drawn_height) <= 1024


@pytest.mark.parametrize(
    ("asked", "frames", "fps", "said"),
    [
        ({}, 32, 8.0, "4"),
        ({"seconds": "2"}, 16, 8.0, "2"),
        ({"seconds": "2.5"}, 20, 8.0, "2.5"),
        ({"seconds": "8"}, 64, 8.0, "8"),
        ({"frames": 16}, 16, 8.0, "2"),
        ({"frames": 16, "fps": 4.0}, 16, 4.0, "4"),
        ({"seconds": "4", "fps": 4.0}, 16, 4.0, "4"),
        ({"seconds": "2", "frames": 10}, 10, 5.0, "2"),
        ({"seconds": "2", "frames": 10, "fps": 5.0}, 10, 5.0, "2"),
    ],
)
def test_the_clip_lasts_as_long_as_was_asked(asked: dict[str, object], frames: int, fps: float, said: str) -> None:
    length = plan_length(SMALL, **asked)  # type: ignore[arg-type]
    assert (length.frames, length.fps, length.seconds, length.slowed) == (frames, fps, said, False)


def test_a_clip_beyond_the_model_is_shown_slower_and_says_so() -> None:
    length = plan_length(SMALL, seconds="12")
    assert (length.frames, length.seconds, length.slowed) == (64, "12", True)
    assert length.fps == pytest.approx(64 / 12)


@given(st.floats(0.1, 20), st.sampled_from([SMALL, LARGE]))
def test_any_length_is_met_within_a_frame(seconds: float, media: MediaCapabilities) -> None:
    text = f"{seconds:.2f}"
    length = plan_length(media, seconds=text)
    assert 1 <= length.frames <= media.max_frames
    assert abs(length.frames / length.fps - float(text)) < 0.001


@pytest.mark.parametrize("seconds", ["", "0", "-1", "nan", "inf", "1e3", "1_0", "99", "4s", "٤", "0.01", " 4"])
def test_a_length_that_is_none_is_refused(seconds: str) -> None:
    with pytest.raises(ApiError) as refusal:
        plan_length(SMALL, seconds=seconds)
    assert (refusal.value.status, refusal.value.param) == (400, "seconds")


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"frames": 65}, "num_frames"),
        ({"frames": 64, "fps": 1.0}, "num_frames"),
        ({"frames": 16, "fps": 8.0, "seconds": "4"}, "seconds"),
        ({"frames": 60, "seconds": "0.5"}, "fps"),
    ],
)
def test_what_does_not_fit_together_is_refused(asked: dict[str, object], param: str) -> None:
    with pytest.raises(ApiError) as refusal:
        plan_length(SMALL, **asked)  # type: ignore[arg-type]
    assert (refusal.value.status, refusal.value.param) == (400, param)
