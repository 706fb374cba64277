"""MessagePack with numpy arrays: the same values back, views instead of copies, and bounds for bytes from anybody."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import msgpack
import numpy as np
import pytest
from antiphon.codecs.msgpack_numpy import BadMessage, Bounds, pack, unpack
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=40)
)
DTYPES = (
    hnp.integer_dtypes(endianness="?")
    | hnp.unsigned_integer_dtypes(endianness="?")
    | hnp.floating_dtypes(sizes=(16, 32, 64), endianness="?")
)
ARRAYS = hnp.arrays(DTYPES | hnp.boolean_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
VALUES = st.recursive(PLAIN | ARRAYS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4))


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray) and left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
        )
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@given(VALUES)
def test_what_is_packed_comes_back(value: Any) -> None:
    assert same(unpack(pack(value)), value)


@given(PLAIN)
def test_plain_values_are_packed_as_the_msgpack_package_does(value: Any) -> None:
    assert pack({"key": [value]}) == msgpack.packb({"key": [value]})


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_bad_message(data: bytes) -> None:
    with suppress(BadMessage):  # anything else is a fault
        unpack(data)


@given(VALUES, st.data())
def test_altered_and_cut_messages_are_a_value_or_a_bad_message(value: Any, data: st.DataObject) -> None:
    message = bytearray(pack(value))
    for _ in range(data.draw(st.integers(0, 3))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(message[: data.draw(st.integers(0, len(message)))])
    with suppress(BadMessage):
        unpack(cut)


def test_arrays_are_read_only_views_of_the_message() -> None:
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    message = pack({"picture": picture})
    got = unpack(message)["picture"]
    assert np.shares_memory(got, np.frombuffer(message, np.uint8))
    assert not got.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        got[0] = 1


def test_arrays_that_lie_otherwise_in_memory_are_sent_in_order() -> None:
    array = np.arange(12).reshape(3, 4)
    assert unpack(pack(array.T)).tolist() == array.T.tolist()
    assert unpack(pack(array[:, ::2])).tolist() == array[:, ::2].tolist()
    assert unpack(pack(np.ones(2, ">f4"))).dtype == ">f4"


def test_texts_and_times_are_arrays_too() -> None:
    for array in (np.array(["ab", "c"]), np.array([b"a"]), np.array(["2020-01-01"], "M8[D]")):
        assert same(unpack(pack(array)), array)


def test_numpy_scalars_keep_their_type() -> None:
    got = unpack(pack({"a": np.float32(1.5), "b": np.int8(-3), "c": np.True_, "d": np.float64(2.5)}))
    assert isinstance(got["a"], np.float32)
    assert isinstance(got["b"], np.int8)
    assert isinstance(got["c"], np.bool_)
    assert type(got["d"]) is float


def test_keys_written_as_text_by_other_languages_are_understood() -> None:
    message = msgpack.packb({"x": {"__ndarray__": True, "data": np.ones(2, np.float32).tobytes(), "dtype": "<f4", "shape": [2]}})
    assert unpack(message)["x"].tolist() == [1.0, 1.0]


def test_a_map_that_just_has_data_in_it_is_a_map() -> None:
    assert unpack(pack({"data": b"abc", "more": 1})) == {"data": b"abc", "more": 1}


@pytest.mark.parametrize("value", [np.ones(2, np.complex64), np.array([None]), np.zeros(2, "V4"), np.complex128(1)])
def test_records_objects_and_complex_numbers_are_not_sent(value: Any) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        pack({"x": value})


def test_other_types_are_not_sent() -> None:
    with pytest.raises(TypeError, match="object"):
        pack({"x": object()})


def array_message(**changes: Any) -> bytes:
    fields = {b"__ndarray__": True, b"data": bytes(8), b"dtype": "<f4", b"shape": [2]}
    fields |= {key.encode(): value for key, value in changes.items()}
    return msgpack.packb({"x": {key: value for key, value in fields.items() if value is not ...}})


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (array_message(dtype="|O"), "Python objects"),
        (array_message(dtype="|V4"), "records"),
        (array_message(dtype="<c8", shape=[1]), "complex"),
        (array_message(dtype="f4,f4", shape=[1]), "plain one"),
        (array_message(dtype="<f3"), "plain one"),
        (array_message(dtype=7), "plain one"),
        (array_message(dtype=...), "plain one"),
        (array_message(shape=[3]), "takes 12 bytes"),
        (array_message(shape=[2**40, 2**40]), "takes"),
        (array_message(shape=[-1]), "sizes"),
        (array_message(shape=[1] * 9), "sizes"),
        (array_message(shape="2"), "sizes"),
        (array_message(data=...), "no binary"),
        (array_message(data="text"), "no binary"),
        (msgpack.packb({b"__npgeneric__": True, b"data": "x", b"dtype": "<f4"}), "cannot have the value"),
        (msgpack.packb({b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [1], b"data": bytes(4)}), "msgpack-numpy"),
        (msgpack.packb({1: 2}), "key of a map"),
        (b"\x82\xa1a\x01\xa1a\x02", "twice"),
        (b"\xa2\xff\xfe", "UTF-8"),
        (msgpack.packb(msgpack.ExtType(5, b"x")), "extension"),
        (b"\xc1", "no MessagePack value"),
        (b"", "cut off"),
        (b"\xc6\xff\xff\xff\xff", "cut off"),
        (pack([1, 2]) + b"\x01", "goes on after its end"),
    ],
)
def test_what_is_wrong_is_said(message: bytes, said: str) -> None:
    with pytest.raises(BadMessage, match=said):
        unpack(message)


def test_bounds_hold() -> None:
    deep: Any = 1
    for _ in range(20):
        deep = [deep]
    with pytest.raises(BadMessage, match="16 levels"):
        unpack(pack(deep))
    with pytest.raises(BadMessage, match="4096 values"):
        unpack(pack([0.0] * 5000))
    with pytest.raises(BadMessage, match="longer than"):
        unpack(pack("x" * 100), Bounds(max_text=99))
    with pytest.raises(BadMessage, match="4096 values"):
        unpack(b"\xdd" + struct.pack(">I", 2**32 - 1))
