"""Observations are checked before a policy sees them: key, dtype, shape, layout, finite, range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from antiphon.engines.interface import ActionCapabilities, ArraySpec
from antiphon.robot.actions import check_actions
from antiphon.robot.errors import BadActions, BadRequest
from antiphon.robot.observation import check_observation, check_prefix
from antiphon.robot.wire import marks_of, read_request

POLICY = ActionCapabilities(
    policy="arm",
    horizon=8,
    action_dim=3,
    rate=20.0,
    observation=(
        ArraySpec(key="observation/image", dtype="uint8", shape=(48, 64, 3), layout="HWC", low=0, high=255),
        ArraySpec(key="images/wrist", dtype="uint8", shape=(3, 32, 32), layout="CHW"),
        ArraySpec(key="observation/state", dtype="float32", shape=(5,), low=-10, high=10),
    ),
    low=(-1, -1, -1),
    high=(1, 1, 1),
    prompt=True,
    max_prefix=4,
)
IMAGE = np.zeros((48, 64, 3), np.uint8)
WRIST = np.zeros((3, 32, 32), np.uint8)
STATE = np.zeros(5, np.float32)


def fields(**changes: Any) -> dict[str, Any]:
    good: dict[str, Any] = {"observation/image": IMAGE, "images": {"wrist": WRIST}, "observation/state": STATE, "prompt": "go"}
    return {key: value for key, value in (good | changes).items() if value is not ...}


def state(value: Any) -> dict[str, Any]:
    return fields(**{"observation/state": value})


def image(value: Any) -> dict[str, Any]:
    return fields(**{"observation/image": value})


def test_a_good_observation_passes_as_it_is() -> None:
    arrays, prompt = check_observation(fields(extra=np.ones(3)), POLICY)
    assert arrays["observation/image"] is IMAGE
    assert arrays["images/wrist"] is WRIST
    assert list(arrays) == ["observation/image", "images/wrist", "observation/state"]
    assert prompt == "go"


@pytest.mark.parametrize("value", [np.zeros(5), np.zeros(5, np.float16), np.zeros(5, ">f4"), [0.0] * 5, [0, 1, 2, 3, 4]])
def test_floats_of_any_width_become_the_policys(value: Any) -> None:
    arrays, _ = check_observation(state(value), POLICY)
    assert arrays["observation/state"].dtype == np.dtype("float32")


@pytest.mark.parametrize(
    ("bad", "code", "said"),
    [
        (fields(**{"observation/state": ...}), "missing_key", "observation/state"),
        (fields(**{"observation/state": ..., "observation/stat": STATE}), "missing_key", "Did you mean it by 'observation/stat'"),
        (fields(images=...), "missing_key", "images/wrist"),
        (fields(prompt=...), "missing_prompt", "prompt"),
        (fields(prompt=" "), "missing_prompt", "prompt"),
        (fields(prompt=3), "invalid_prompt", "text"),
        (state(np.zeros(4, np.float32)), "wrong_shape", r"\[4\]; expected \[5\]"),
        (state(np.zeros((1, 5), np.float32)), "wrong_shape", "batch dimension"),
        (state(np.zeros(5, np.int64)), "wrong_dtype", "int64; expected float32"),
        (state(np.array(["1"] * 5)), "wrong_dtype", "<U1"),
        (state("12345"), "wrong_type", "not a str"),
        (state([[1], [2, 3]]), "wrong_type", "not a list"),
        (state(np.array([0, 0, np.nan, 0, 0], np.float32)), "not_finite", "NaN"),
        (state(np.array([0, 0, np.inf, 0, 0])), "not_finite", "infinity"),
        (state(np.array([0, 0, 1e300, 0, 0])), "not_finite", "infinity"),
        (state(np.full(5, 11, np.float32)), "out_of_range", "expected -10 to 10"),
        (image(np.moveaxis(IMAGE, -1, 0)), "wrong_shape", r"channels first \(CHW\)"),
        (image(np.zeros((480, 640, 3), np.uint8)), "wrong_shape", "resize_with_pad"),
        (image(np.zeros((48, 64, 3), np.float32)), "wrong_dtype", "convert_to_uint8"),
        (fields(images={"wrist": np.zeros((32, 32, 3), np.uint8)}), "wrong_shape", r"channels last \(HWC\)"),
    ],
)
def test_what_is_wrong_is_named(bad: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said) as caught:
        check_observation(bad, POLICY)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ([1, 2], "invalid_request"),
        ({"endpoint": "explode"}, "unknown_endpoint"),
        ({"sequence": "first"}, "invalid_sequence"),
        ({"sequence": -1}, "invalid_sequence"),
        ({"sequence": True}, "invalid_sequence"),
        ({"deadline_ms": float("nan")}, "invalid_deadline_ms"),
        ({"deadline_ms": -5}, "invalid_deadline_ms"),
        ({"observed_at": "now"}, "invalid_observed_at"),
        ({"episode": ["x"]}, "invalid_episode"),
        ({"session_id": ""}, "invalid_session_id"),
        ({"session_id": "a\nb"}, "invalid_session_id"),
        ({"prefix": [[0.0]]}, "invalid_prefix"),
        ({"prefix": np.zeros(3)}, "invalid_prefix"),
        ({"seed": 1.5}, "invalid_seed"),
    ],
)
def test_bad_fields_are_named(message: Any, code: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_request(message)
    assert caught.value.code == code


def test_the_optional_fields_are_taken_from_numpy_scalars_too() -> None:
    asked = read_request({"sequence": np.int64(4), "observed_at": np.float32(0.5), "deadline_ms": 80, "episode": np.int32(2), "x": 1})
    assert asked.marks.echo() == {"sequence": 4, "observed_at": 0.5, "deadline_ms": 80.0, "episode": 2}
    assert asked.fields == {"x": 1}


def test_even_a_bad_request_can_be_answered_by_its_number() -> None:
    assert marks_of({"sequence": 7, "deadline_ms": "soon"}).sequence == 7
    assert marks_of([7]).sequence is None


def test_prefixes() -> None:
    good = check_prefix(np.zeros((4, 3)), POLICY)
    assert good is not None
    assert good.dtype == np.float32
    for bad in (np.zeros((5, 3)), np.zeros((2, 4)), np.full((2, 3), np.nan)):
        with pytest.raises(BadRequest):
            check_prefix(bad, POLICY)


def test_actions_are_checked_on_the_way_out() -> None:
    good = np.zeros((8, 3), np.float32)
    assert check_actions(good, POLICY) is good
    for bad in (good[:7], good.astype(np.float64), np.full_like(good, np.nan), np.full_like(good, 1.01), np.full_like(good, -1.01)):
        with pytest.raises(BadActions):
            check_actions(bad, POLICY)
