"""Whatever a message holds that can be packed at all: it is understood, or refused with a sentence. Nothing else is raised."""

from __future__ import annotations

from typing import Any

import numpy as np
from antiphon.codecs import msgpack_numpy
from antiphon.codecs.msgpack_numpy import BadMessage
from antiphon.engines.interface import ActionCapabilities, ArraySpec
from antiphon.robot.errors import BadRequest
from antiphon.robot.observation import check_observation, check_prefix, work_of
from antiphon.robot.wire import marks_of, read_request
from antiphon.tests.sessions.profile import bounded
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpys

POLICY = ActionCapabilities(
    policy="arm",
    horizon=8,
    action_dim=3,
    rate=20.0,
    observation=(
        ArraySpec(key="observation/image", dtype="uint8", shape=(4, 4, 3), layout="HWC", low=0, high=255),
        ArraySpec(key="observation/state", dtype="float32", shape=(5,), low=-10, high=10),
    ),
    low=(-1, -1, -1),
    high=(1, 1, 1),
    prompt=True,
    max_prefix=4,
)
MARKS = ("sequence", "observed_at", "deadline_ms", "episode", "outcome", "endpoint", "session_id", "seed", "steps", "prefix")
OBSERVATION = ("prompt", "observation/state", "observation/image", "observation", "state", "image", "unknown")
DTYPES = st.sampled_from(["<f4", "<f8", "<f2", ">f4", "|u1", "<i8", "|b1", "<U3", "|S2", "<M8[s]", "<u8"])
SHAPES = st.sampled_from([(), (1,), (5,), (0,), (2, 3), (4, 3), (1, 5), (4, 4, 3), (3, 4, 4), (1,) * 8])


def array(dtype: str, shape: tuple[int, ...], fill: float) -> Any:
    with np.errstate(all="ignore"):
        return np.full(shape, fill if np.dtype(dtype).kind == "f" else int(np.nan_to_num(fill, posinf=9, neginf=0)) % 99).astype(dtype)


ARRAYS = st.builds(array, DTYPES, SHAPES, st.sampled_from([0.0, 0.5, 1e300, np.nan, np.inf, -11.0]))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.sampled_from(["infer", "reset", "success", "x" * 5000, "\x00", "go"]),
    numpys.from_dtype(np.dtype("float32")),
    st.sampled_from([np.int64(3), np.bool_(True), np.float64(2), np.str_("go"), np.uint8(7)]),
)
VALUES = st.one_of(
    SCALARS, ARRAYS, st.lists(st.one_of(SCALARS, ARRAYS), max_size=5), st.dictionaries(st.sampled_from(OBSERVATION), ARRAYS, max_size=2)
)
GOOD = {"observation/state": np.zeros(5, np.float32), "observation/image": np.zeros((4, 4, 3), np.uint8), "prompt": "go"}
MESSAGES = st.one_of(
    st.builds(lambda more: GOOD | more, st.dictionaries(st.sampled_from(MARKS + OBSERVATION), VALUES, max_size=2)),
    st.dictionaries(st.one_of(st.sampled_from(MARKS + OBSERVATION), st.binary(max_size=3)), VALUES, max_size=8),
    VALUES,
)


def understood(read: Any) -> BadRequest | None:
    """Take a message all the way to what the engine gets; the refusal, if there is one."""
    try:
        asked = read_request(read)
        prefix = check_prefix(asked.prefix, POLICY)
        arrays, prompt = check_observation(asked.fields, POLICY)
    except BadRequest as refused:
        return refused
    msgpack_numpy.pack(asked.marks.echo())
    assert work_of(asked.fields) >= 0
    assert prefix is None or (prefix.dtype == np.float32 and bool((np.abs(prefix) < 1.001).all()))
    assert arrays["observation/state"].shape == (5,)
    assert np.isfinite(arrays["observation/state"]).all()
    assert arrays["observation/image"].dtype == np.uint8
    assert prompt.strip()
    return None


@bounded(400, 20_000)
@given(MESSAGES)
def test_any_message_is_understood_or_refused(message: Any) -> None:
    try:
        read = msgpack_numpy.unpack(msgpack_numpy.pack(message))
    except BadMessage:
        return
    assert marks_of(read).echo().keys() <= {"sequence"}
    refused = understood(read)
    if refused is not None:
        assert refused.code.isidentifier()
        assert 0 < len(str(refused)) < 1000
