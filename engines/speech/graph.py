"""Reading an inner tensor of an ONNX model as an extra output, without the onnx package.

An ONNX file is a protobuf `ModelProto`, and protobuf merges a message field that occurs twice. So a second, tiny `graph`
holding nothing but one `output` entry, appended to the file's bytes, adds that output to the model.
"""

from __future__ import annotations

_GRAPH_FIELD, _OUTPUT_FIELD, _NAME_FIELD = 7, 12, 1
_LENGTH_DELIMITED = 2


def with_output(model: bytes, tensor: str) -> bytes:
    """The model with `tensor` among its outputs, the last one. Raises KeyError when the model has no tensor of that name."""
    if tensor.encode() not in model:
        raise KeyError(f"the model has no tensor {tensor!r}")
    value_info = _field(_NAME_FIELD, tensor.encode())
    return model + _field(_GRAPH_FIELD, _field(_OUTPUT_FIELD, value_info))


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
