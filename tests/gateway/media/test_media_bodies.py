"""From a body of the API to a job's row."""

from __future__ import annotations

from typing import Any

import pytest
from antiphon.engines.interface import MediaCapabilities
from antiphon.gateway.errors import ApiError
from antiphon.gateway.media.batches import read_lines
from antiphon.gateway.media.bodies import ImageBody, VideoBody, image_request, new_seed, video_request
from antiphon.gateway.media.forms import Form
from antiphon.gateway.media.target import Target

MEDIA = MediaCapabilities(sizes=((128, 128),), max_frames=64, fps=8.0, default_steps=20, max_steps=50, edits=False, previews=True)
TARGET = Target("small", "sora-2", MEDIA)


def video(typed: bool = True, **fields: Any) -> VideoBody:
    return Form({"prompt": "a red disc", **fields}, {}, typed).parse(VideoBody)


def image(**fields: Any) -> ImageBody:
    return Form({"prompt": "a red disc", **fields}, {}, typed=True).parse(ImageBody)


def test_a_clip_of_a_stock_client() -> None:
    request = video_request(video(typed=False, seconds="8", size="1280x720", model="sora-2"), TARGET, 7)
    assert (request["width"], request["height"], request["frames"], request["seed"]) == (128, 128, 64, 7)
    assert request["output"] == {"format": "mp4", "width": 1280, "height": 720, "fps": 8.0, "quality": 90}
    assert (request["size"], request["seconds"], request["warnings"]) == ("1280x720", "8", [])


def test_what_a_form_sends_as_text_is_read_as_what_it_is() -> None:
    body = video(typed=False, seed="5", num_frames="16", fps="4", guidance_scale="2.5", priority="-3", num_inference_steps="9")
    assert (body.seed, body.num_frames, body.fps, body.guidance_scale, body.priority) == (5, 16, 4.0, 2.5, -3)
    assert video_request(body, TARGET, 5)["steps"] == 9


@pytest.mark.parametrize("seconds", [4, 4.0, "4"])
def test_seconds_may_be_a_number(seconds: object) -> None:
    assert video_request(video(seconds=seconds), TARGET, 0)["seconds"] == "4"


def test_unknown_parameters_are_ignored_and_named() -> None:
    (warning,) = video_request(video(flow_shift=3), TARGET, 0)["warnings"]
    assert "flow_shift" in warning


def test_a_clip_that_is_slowed_says_so() -> None:
    (warning,) = video_request(video(seconds="12"), TARGET, 0)["warnings"]
    assert "64 frames" in warning


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": "a\x00b"}, "prompt"),
        ({"prompt": "\ud800"}, "prompt"),
        ({"prompt": "x" * 32_001}, "prompt"),
        ({"seed": -1}, "seed"),
        ({"seed": "1"}, "seed"),
        ({"seed": True}, "seed"),
        ({"seed": 2**31}, "seed"),
        ({"guidance_scale": float("nan")}, "guidance_scale"),
        ({"priority": 11}, "priority"),
        ({"num_frames": 0}, "num_frames"),
        ({"size": ["128x128"]}, "size"),
        ({"strength": 0}, "strength"),
        ({"input_reference": "x"}, "input_reference"),
        ({"webhook_url": 5}, "webhook_url"),
    ],
)
def test_a_wrong_value_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refusal:
        video(**fields)
    assert (refusal.value.status, refusal.value.param) == (400, param)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"prompt": ""}, "prompt: must not be empty."),
        ({"prompt": "x" * 32_001}, "prompt: must have at most 32000 characters, not 32001."),
        ({"input_reference": "x"}, "input_reference: Input should be an object."),
    ],
)
def test_a_wrong_value_is_explained_to_people(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ApiError) as refusal:
        video(**fields)
    assert refusal.value.message == said


def test_a_missing_prompt_is_said_to_be_missing() -> None:
    with pytest.raises(ApiError) as refusal:
        Form({}, {}, typed=True).parse(VideoBody)
    assert (refusal.value.code, refusal.value.param) == ("missing_required_parameter", "prompt")


def test_too_many_steps_for_the_model() -> None:
    with pytest.raises(ApiError, match="at most 50 steps"):
        video_request(video(num_inference_steps=51), TARGET, 0)


def test_pictures_of_a_stock_client() -> None:
    body = image(model="gpt-image-1", n=3, size="1024x1024", quality="high", output_format="webp", output_compression=40, user="u")
    request = image_request(body, TARGET, 9)
    assert (request["n"], request["frames"], request["steps"], request["previews"]) == (3, 1, 30, 0)
    assert request["output"] == {"format": "webp", "width": 1024, "height": 1024, "fps": 8.0, "quality": 40}
    assert request["extra"] == {"quality": "high", "response_format": "b64_json", "safety_identifier": "u"}


@pytest.mark.parametrize(
    ("quality", "steps"), [(None, None), ("auto", None), ("standard", None), ("medium", None), ("low", 10), ("hd", 30), ("max", 40)]
)
def test_quality_is_a_share_of_the_steps(quality: str | None, steps: int | None) -> None:
    assert image_request(image(quality=quality), TARGET, 0)["steps"] == steps


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": "transparent"}, "background"),
        ({"output_format": "gif"}, "output_format"),
        ({"output_format": "svg"}, "output_format"),
    ],
)
def test_what_no_model_here_can_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refusal:
        image_request(image(**fields), TARGET, 0)
    assert (refusal.value.status, refusal.value.code, refusal.value.param) == (400, "not_supported", param)


@pytest.mark.parametrize("n", [0, 11, 10**30, -1, 1.5, "2", None])
def test_the_number_of_pictures(n: object) -> None:
    if n is None:
        assert image(n=None).count == 1
        return
    with pytest.raises(ApiError) as refusal:
        image(n=n)
    assert refusal.value.param == "n"


def test_a_seed_is_kept_drawn_or_bound_to_the_idempotency_key() -> None:
    assert new_seed(5, "t", "key") == 5
    assert new_seed(None, "t", "key") == new_seed(None, "t", "key") != new_seed(None, "u", "key")
    assert new_seed(None, "t", None) != new_seed(None, "t", None)


# ---- batches --------------------------------------------------------------------------------------------------------

ENDPOINT = "/v1/images/generations"


def line(custom_id: str = "a", body: str = '{"prompt": "a red disc"}', **more: str) -> str:
    fields = {"custom_id": f'"{custom_id}"', "method": '"POST"', "url": f'"{ENDPOINT}"', "body": body, **more}
    return "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"


def test_lines_become_requests_and_bad_ones_say_why() -> None:
    text = "\n".join([line("a"), "", line("b", '{"prompt": "x", "n": 50}'), line("c", '{"prompt": "x", "stream": true}')])
    lines = read_lines(text.encode(), ENDPOINT, lambda model: TARGET)
    assert [one["custom_id"] for one in lines] == ["a", "b", "c"]
    assert lines[0]["request"] is not None
    assert lines[0]["request"]["prompt"] == "a red disc"
    assert [one["error"] and one["error"]["param"] for one in lines] == [None, "n", "stream"]


def test_a_batch_read_twice_is_the_same() -> None:
    data = line().encode()
    assert read_lines(data, ENDPOINT, lambda model: TARGET) == read_lines(data, ENDPOINT, lambda model: TARGET)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no lines"),
        ("{", "Line 1"),
        ("[1]", "Line 1"),
        ("[" * 100_000, "Line 1"),
        (line("a") + "\n" + line("a"), "Line 2"),
        (line(body='"x"'), "Line 1"),
        (line("x" * 513), "custom_id"),
        (line(method='"GET"'), "method"),
        (line(url='"/v1/other"'), "url"),
        ("\xff\xfe", "Line 1"),
    ],
)
def test_a_file_that_is_no_batch_names_the_line(text: str, says: str) -> None:
    with pytest.raises(ApiError, match=says) as refusal:
        read_lines(text.encode("latin-1"), ENDPOINT, lambda model: TARGET)
    assert refusal.value.status == 400


def test_a_batch_has_one_engine() -> None:
    text = line("a", '{"prompt": "x", "model": "one"}') + "\n" + line("b", '{"prompt": "x", "model": "two"}')
    with pytest.raises(ApiError, match="Line 2"):
        read_lines(text.encode(), ENDPOINT, lambda model: Target(model, model, MEDIA))
