"""Reads the bodies of media requests: JSON or forms, with every part bounded while it arrives.

Both come out as a `Form`: plain values by name (`a[b]` of a form is `{"a": {"b": …}}`, `a[]` a list), and the files that came with it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect
from starlette.types import Message

from ..errors import ApiError

JSON_BYTES = 1024 * 1024
"""A body of JSON."""
PICTURE_JSON_BYTES = 8 * 1024 * 1024
"""One that may carry a picture as a data URL. (Reading JSON holds up everything else for about 2 ms a megabyte.)"""
FIELDS, FILES = 100, 20
OVERHEAD_BYTES = 128 * 1024
"""What a form may have beyond its file."""

_KEY = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])*)")

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Form:
    """What a request carries. `typed`: the values have types (JSON); those of a form are all text."""

    fields: dict[str, Any]
    files: dict[str, list[UploadFile]]
    typed: bool

    def parse(self, body: type[Body]) -> Body:
        """The values as a `body`. Raises a 400 `ApiError` that names what is wrong."""
        try:
            return body.model_validate(self.fields, strict=self.typed)
        except ValidationError as error:
            raise bad_body(error) from None

    def file(self, name: str) -> UploadFile | None:
        """The one file of this name. Raises a 400 `ApiError` when there are several."""
        found = self.files.get(name, [])
        if len(found) > 1:
            raise ApiError(400, "invalid_value", f"There are {len(found)} files '{name}'; one is possible.", param=name)
        return found[0] if found else None


@asynccontextmanager
async def read_form(request: Request, limit: int, *, json_limit: int = JSON_BYTES) -> AsyncIterator[Form]:
    """The body of a request: JSON of at most `json_limit` bytes, or a form of `limit`. Raises a 400, 413 or 415 `ApiError`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_form = kind in ("multipart/form-data", "application/x-www-form-urlencoded")
    if not is_form and kind not in ("application/json", ""):
        message = f"The content type '{kind[:80]}' is not understood: send JSON or multipart/form-data."
        raise ApiError(415, "unsupported_content_type", message)
    bounded = _bounded(request, limit if is_form else json_limit)
    async with AsyncExitStack() as stack:
        try:
            if is_form:
                form = await stack.enter_async_context(bounded.form(max_files=FILES, max_fields=FIELDS, max_part_size=limit))
                read = _collect(form.multi_items())
            else:
                read = Form(_json_object(await bounded.body()), {}, typed=True)
        except ClientDisconnect:
            raise ApiError(400, "incomplete_body", "The body ended before it was complete.") from None
        yield read


async def read_body(request: Request, body: type[Body], limit: int = JSON_BYTES) -> Body:
    """A body that has no files, as JSON or as a form. Raises like `read_form` and `Form.parse`."""
    async with read_form(request, limit) as form:
        return form.parse(body)


def bad_body(error: ValidationError) -> ApiError:
    """The first fault of a body, as the API says it."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part.isidentifier()) or None
    if first["type"] == "missing":
        return ApiError(400, "missing_required_parameter", f"Missing required parameter: '{where}'.", param=where)
    return ApiError(400, "invalid_value", f"{where or 'The body'}: {_said(first)}.", param=where)


def _said(error: ErrorDetails) -> str:
    """What pydantic found, without the words that belong to its own workings."""
    given = error["input"]
    if isinstance(given, str) and error["type"] == "too_short":
        return "must not be empty"
    if isinstance(given, str) and error["type"] == "too_long":
        most = re.search(r"at most ([0-9]+)", error["msg"])
        return f"must have at most {most[1] if most else 'fewer'} characters, not {len(given)}"
    if error["type"] == "model_type":
        return "Input should be an object"
    return error["msg"].removeprefix("Value error, ")


def _bounded(request: Request, limit: int) -> Request:
    """The request, which stops being read beyond `limit` bytes. Raises a 413 `ApiError`, at once when the length is announced."""
    too_large = ApiError(413, "request_too_large", f"The body is larger than {limit} bytes.")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    received = 0

    async def receive() -> Message:
        nonlocal received
        message = await request.receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise too_large
        return message

    return Request(request.scope, receive)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:  # also what is no UTF-8
        raise ApiError(400, "invalid_json", f"The body is no JSON: {str(error)[:200] or 'nested too deeply'}.") from None
    if not isinstance(value, dict):
        raise ApiError(400, "invalid_json", f"The body must be a JSON object, not {type(value).__name__}.")
    return value


def _collect(items: list[tuple[str, UploadFile | str]]) -> Form:
    fields: dict[str, Any] = {}
    files: dict[str, list[UploadFile]] = {}
    for key, value in items:
        match = _KEY.fullmatch(key)
        if match is None:
            raise ApiError(400, "invalid_value", f"A part of the form is called {key[:80]!r}, which is no name.")
        name, path = match[1], re.findall(r"\[([^\[\]]*)\]", match[2])
        if isinstance(value, str):
            _put(fields, name, path, value)
        else:
            files.setdefault(name, []).append(value)
    return Form(fields, files, typed=False)


def _put(fields: dict[str, Any], name: str, path: list[str], value: str) -> None:
    """Write a value where its key says: `name`, `name[]` or `name[key]`."""
    if not path:
        fields[name] = value
    elif path == [""]:
        fields.setdefault(name, []).append(value) if isinstance(fields.get(name, []), list) else None
    elif len(path) == 1:
        inner = fields.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ApiError(400, "invalid_value", f"'{name[:80]}' is given both as a value and with parts.", param=name[:80])
        inner[path[0]] = value
    else:
        raise ApiError(400, "invalid_value", f"The part '{name[:80]}' is nested too deeply.", param=name[:80])


def unknown_parameters(body: BaseModel) -> list[str]:
    """Warnings for what a body carries beyond its fields: it is ignored, not refused, since clients of other servers send more."""
    extra: Mapping[str, Any] = body.model_extra or {}
    return [f"The parameter {name[:60]!r} is not known and was ignored." for name in list(extra)[:10]]
