"""MessagePack with numpy arrays, as `openpi_client.msgpack_numpy` writes them, for bytes from anybody.

An array is the map `{b"__ndarray__": true, b"data": bin, b"dtype": dtype.str, b"shape": [...]}`, a numpy scalar
`{b"__npgeneric__": true, b"data": item, b"dtype": dtype.str}`. `pack` gives the same bytes as the client's `packb`. `unpack` gives the
same values as its `unpackb`, but within bounds, and arrays are views of the message: nothing is copied, however large a
picture is, and nothing can be written to. (The keys are bytes; clients in other languages that write them as text are understood, too.)
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec
import numpy as np

ARRAY = b"__ndarray__"
SCALAR = b"__npgeneric__"
MAX_DIMENSIONS = 8
_DTYPE = re.compile(r"[<>=|]?(?:b1|i[1248]|u[1248]|f[248]|[US]\d{1,6}|[Mm]8(?:\[[A-Za-z0-9]{1,8}\])?)")
_REFUSED = {"V": "records", "O": "Python objects", "c": "complex numbers"}


class BadMessage(ValueError):
    """Bytes that are no message of this format, or one beyond a bound. The message is a sentence for whoever sent them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much a message may hold: values in all (each key, number, text, map and array counts as one), levels of nesting, and
    characters of one text. Binary data is bounded by the message itself."""

    max_values: int = 4096
    max_depth: int = 16
    max_text: int = 64 * 1024


DEFAULT_BOUNDS = Bounds()


def pack(value: Any) -> bytes:
    """The bytes of a value. Raises `ValueError` for arrays of records, objects or complex numbers, `TypeError` for other types."""
    try:
        return _encoder.encode(value)
    except OverflowError as error:
        raise ValueError(f"an integer does not fit into 64 bits: {error}") from error


def unpack(message: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> Any:
    """The value of a message. Raises `BadMessage`, whatever the bytes are; arrays are read-only views of `message`."""
    reader = _Reader(message, bounds)
    try:
        value = reader.value(0)
    except (struct.error, IndexError):
        raise BadMessage(f"The message is cut off: it ends after {len(message)} bytes in the middle of a value.") from None
    if reader.at != len(message):
        raise BadMessage(f"The message goes on after its end: {len(message) - reader.at} bytes are left after one value.")
    return value


# ---- out ------------------------------------------------------------------------------------------------------------


def _pack_numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in _REFUSED:
            raise ValueError(f"arrays of {_REFUSED[value.dtype.kind]} (dtype {value.dtype}) cannot be sent")
        if isinstance(value, np.ndarray):
            return {ARRAY: True, b"data": _data(value), b"dtype": value.dtype.str, b"shape": value.shape}
        if isinstance(value, float | str | bytes):  # np.float64, np.str_ and np.bytes_ are Python's types as well
            return value.item()
        return {SCALAR: True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(f"a {type(value).__name__} cannot be sent")


def _data(array: np.ndarray[Any, Any]) -> bytes | memoryview:
    """The values in C order, without a copy where they lie so already."""
    if array.flags.c_contiguous and array.size and array.dtype.kind in "biuf":
        return array.reshape(-1).view(np.uint8).data
    return array.tobytes()


_encoder = msgspec.msgpack.Encoder(enc_hook=_pack_numpy)

# ---- in -------------------------------------------------------------------------------------------------------------

_NUMBERS = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_LENGTHS = {1: struct.Struct(">B"), 2: struct.Struct(">H"), 4: struct.Struct(">I")}
_SIZED = {
    0xC4: ("bin", 1),
    0xC5: ("bin", 2),
    0xC6: ("bin", 4),
    0xD9: ("text", 1),
    0xDA: ("text", 2),
    0xDB: ("text", 4),
    0xDC: ("list", 2),
    0xDD: ("list", 4),
    0xDE: ("map", 2),
    0xDF: ("map", 4),
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


class _Reader:
    """Reads one message from front to back."""

    def __init__(self, message: bytes, bounds: Bounds) -> None:
        self.at = 0
        self._message = message
        self._view = memoryview(message)
        self._bounds = bounds
        self._left = bounds.max_values

    def value(self, depth: int) -> Any:
        first = self._first()
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first < 0x90:
            return self._map(first & 0x0F, depth)
        if first < 0xA0:
            return self._list(first & 0x0F, depth)
        if first < 0xC0:
            return self._text(first & 0x1F)
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            number = _NUMBERS[first]
            (value,) = number.unpack_from(self._message, self.at)
            self.at += number.size
            return value
        kind, size = self._sized(first)
        match kind:
            case "bin":
                return bytes(self._bytes(size))
            case "text":
                return self._text(size)
            case "list":
                return self._list(size, depth)
            case _:
                return self._map(size, depth)

    def _first(self) -> int:
        self._left -= 1
        if self._left < 0:
            raise BadMessage(
                f"The message holds more than {self._bounds.max_values} values. Send long lists of numbers as numpy arrays: "
                f"an array counts as a few."
            )
        first = self._message[self.at]
        self.at += 1
        return first

    def _sized(self, first: int) -> tuple[str, int]:
        found = _SIZED.get(first)
        if found is None:
            what = "an extension type" if 0xC7 <= first <= 0xC9 or 0xD4 <= first <= 0xD8 else "no MessagePack value"
            raise BadMessage(f"Byte {self.at - 1} (0x{first:02x}) is {what}. Pack messages with openpi_client.msgpack_numpy.")
        kind, width = found
        (size,) = _LENGTHS[width].unpack_from(self._message, self.at)
        self.at += width
        return kind, size

    def _bytes(self, size: int) -> memoryview:
        end = self.at + size
        if end > len(self._message):
            raise BadMessage(
                f"The message is cut off: {size} bytes of data should follow byte {self.at}, but {len(self._message) - self.at} do."
            )
        view = self._view[self.at : end]
        self.at = end
        return view

    def _text(self, size: int) -> str:
        if size > self._bounds.max_text:
            raise BadMessage(f"A text of {size} bytes is longer than the {self._bounds.max_text} that are allowed.")
        try:
            return str(self._bytes(size), "utf-8")
        except UnicodeDecodeError:
            raise BadMessage(f"The text before byte {self.at} is not valid UTF-8.") from None

    def _list(self, size: int, depth: int) -> list[Any]:
        self._deeper(size, depth)
        return [self.value(depth + 1) for _ in range(size)]

    def _deeper(self, size: int, depth: int) -> None:
        if depth >= self._bounds.max_depth:
            raise BadMessage(f"The message is nested more than {self._bounds.max_depth} levels deep.")
        if size > self._left:
            raise BadMessage(
                f"The message holds more than {self._bounds.max_values} values. Send long lists of numbers as numpy arrays: "
                f"an array counts as a few."
            )

    def _key(self) -> str | bytes:
        first = self._first()
        if 0xA0 <= first < 0xC0:
            return self._text(first & 0x1F)
        kind, size = self._sized(first) if first in _SIZED else ("", 0)
        if kind == "text":
            return self._text(size)
        if kind == "bin" and size <= self._bounds.max_text:
            return bytes(self._bytes(size))
        raise BadMessage(f"The key of a map at byte {self.at - 1} is neither text nor short binary data.")

    def _map(self, size: int, depth: int) -> Any:
        """A map, or the array or scalar that it stands for. An array's data is taken as a view."""
        self._deeper(2 * size, depth)
        found: dict[str | bytes, Any] = {}
        special = False
        for _ in range(size):
            key = self._key()
            if not special and key in (ARRAY, SCALAR, "__ndarray__", "__npgeneric__"):
                special = True
            if key in found:
                raise BadMessage(f"The key {_said(key)} stands twice in one map.")
            if key in (b"data", "data") and self._message[self.at : self.at + 1] in (b"\xc4", b"\xc5", b"\xc6"):
                found[key] = self._bytes(self._sized(self._first())[1])
            else:
                found[key] = self.value(depth + 1)
        if special:
            return _numpy({key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in found.items()})
        if found.get(b"nd") is not None and b"kind" in found:
            raise BadMessage("An array is packed by the 'msgpack-numpy' package. Pack it with openpi_client.msgpack_numpy.")
        for key in (b"data", "data"):
            if isinstance(found.get(key), memoryview):
                found[key] = bytes(found[key])
        return found


def _numpy(found: dict[str, Any]) -> Any:
    data, name = found.get("data"), found.get("dtype")
    if not isinstance(name, str) or _DTYPE.fullmatch(name) is None:
        _refuse_dtype(name)
    try:
        dtype = np.dtype(name)
    except TypeError:
        _refuse_dtype(name)
    if "__npgeneric__" in found:
        try:
            return dtype.type(bytes(data) if isinstance(data, memoryview) else data)
        except (TypeError, ValueError, OverflowError):
            raise BadMessage(f"A scalar of dtype {name} cannot have the value {str(data)[:40]!r}.") from None
    shape = found.get("shape")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(type(size) is int and size >= 0 for size in shape):
        raise BadMessage(f"An array's shape must be a list of at most {MAX_DIMENSIONS} sizes, not {str(shape)[:80]}.")
    if not isinstance(data, memoryview):
        raise BadMessage("An array has no binary b'data'.")
    expected = dtype.itemsize
    for size in shape:
        expected *= size
    if expected != len(data):
        raise BadMessage(f"An array of shape {shape} and dtype {name} takes {expected} bytes, but its data has {len(data)}.")
    return np.ndarray(tuple(shape), dtype, buffer=data)


def _refuse_dtype(name: Any) -> NoReturn:
    kind = next((what for what in _REFUSED if isinstance(name, str) and what in name), "")
    why = f" (arrays of {_REFUSED[kind]} are not taken)" if kind else ""
    raise BadMessage(f"An array's dtype must be a plain one such as '<f4' or '|u1', not {str(name)[:40]!r}{why}.")


def _said(key: str | bytes) -> str:
    return repr(key[:40])
