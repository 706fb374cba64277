"""The lines of a batch's input file: each a body for an endpoint, in OpenAI's format.

{"custom_id": "a", "method": "POST", "url": "/v1/images/generations", "body": {"prompt": "a red circle"}}
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgspec
from pydantic import ValidationError

from ..errors import ApiError
from .bodies import SEEDS, ImageBody, image_request
from .forms import bad_body
from .requests import BatchLine
from .target import Target

ENDPOINTS = ("/v1/images/generations",)
MOST_LINES = 10_000
LONGEST_ID = 512


def read_lines(data: bytes, endpoint: str, target: Callable[[str], Target]) -> list[BatchLine]:
    """Every line of the file. `target` finds the engine of a model name (or raises an `ApiError`).

    A line whose body asks for what cannot be done has an `error`; a file that is no batch (no JSON, another URL, a `custom_id` twice, two
    engines) raises a 400 `ApiError` that names the line. A picture without a seed gets one that belongs to its `custom_id`.
    """
    lines: list[BatchLine] = []
    seen: set[str] = set()
    lane: str | None = None
    for number, raw in enumerate(data.splitlines(), 1):
        if not raw.strip():
            continue
        if len(lines) == MOST_LINES:
            raise _bad(number, "too_many_lines", f"a batch has at most {MOST_LINES} lines")
        custom_id, body = _line(number, raw, endpoint)
        if custom_id in seen:
            raise _bad(number, "duplicate_custom_id", f"the custom_id {custom_id[:80]!r} was used before")
        seen.add(custom_id)
        line, one = _asked(custom_id, body, target)
        if one is not None and one.lane != (lane := lane or one.lane):
            raise _bad(number, "mixed_models", f"its model is made by {one.lane!r}, those before it by {lane!r}; a batch has one")
        lines.append(line)
    if not lines:
        raise ApiError(400, "empty_file", "The input file has no lines.", param="input_file_id")
    return lines


def _line(number: int, raw: bytes, endpoint: str) -> tuple[str, dict[str, Any]]:
    try:
        value = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        raise _bad(number, "invalid_json_line", "it is no JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("body"), dict):
        raise _bad(number, "invalid_json_line", "it must be an object with custom_id, method, url and body")
    custom_id = value.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= LONGEST_ID:
        raise _bad(number, "missing_required_parameter", f"custom_id must be a string of 1 to {LONGEST_ID} characters")
    if value.get("method", "POST") != "POST":
        raise _bad(number, "invalid_method", "the method must be POST")
    if value.get("url", endpoint) != endpoint:
        raise _bad(number, "invalid_url", f"the url must be the batch's endpoint, {endpoint}")
    return custom_id, value["body"]


def _asked(custom_id: str, fields: dict[str, Any], target: Callable[[str], Target]) -> tuple[BatchLine, Target | None]:
    model = fields.get("model")
    model = model if isinstance(model, str) else ""
    try:
        try:
            body = ImageBody.model_validate(fields, strict=True)
        except ValidationError as error:
            raise bad_body(error) from None
        if body.stream:
            raise ApiError(400, "not_supported", "A line of a batch cannot be streamed.", param="stream")
        if body.response_format == "url":
            raise ApiError(400, "not_supported", "A batch gives its pictures as b64_json.", param="response_format")
        seed = body.seed if body.seed is not None else zlib.crc32(custom_id.encode(errors="replace")) % SEEDS
        found = target(model)
        request = image_request(body, found, seed)
    except ApiError as refusal:
        fault = {"code": refusal.code, "message": refusal.message, "param": refusal.param}
        return BatchLine(custom_id=custom_id, request=None, error=fault, model=model), None
    return BatchLine(custom_id=custom_id, request=request, error=None, model=model), found


def _bad(number: int, code: str, what: str) -> ApiError:
    return ApiError(400, code, f"Line {number} of the input file: {what}.", param="input_file_id")
