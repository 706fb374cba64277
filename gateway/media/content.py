"""Files over HTTP: ranges, ETags, HEAD, as players and download managers ask for them (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Send

from ..errors import ApiError

_RANGE = re.compile(r"bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.ASCII | re.IGNORECASE)
_OPEN_FILE_HEADERS = {
    "accept-ranges": "bytes",
    "cache-control": "private, max-age=3600",
    "x-content-type-options": "nosniff",
    # What a client uploaded might be a page: it must never run as one of this server's.
    "content-security-policy": "default-src 'none'; sandbox",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A file to be sent. `read(start, end)` gives its bytes from `start` to before `end`; `etag` is without quotes."""

    size: int
    etag: str
    content_type: str
    filename: str
    read: Callable[[int, int], AsyncIterator[bytes]]


class GeneratedResponse(StreamingResponse):
    """A streamed answer whose generator is closed when the client goes away, also in the middle of a send."""

    body_iterator: AsyncGenerator[bytes, None]

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.body_iterator):
            await super().stream_response(send)


async def respond(request: Request, content: Content) -> Response:
    """The file or the range of it that was asked for: 200, 206, 304, or a 416 `ApiError`. Only the headers for HEAD."""
    etag = f'"{content.etag}"'
    headers = {**_OPEN_FILE_HEADERS, "etag": etag, "content-disposition": _disposition(content.filename)}
    known = request.headers.get("if-none-match")
    if known is not None and _matches(known, etag):
        return Response(status_code=304, headers=headers)
    span = _asked_range(request, etag, content.size)
    start, end = span or (0, content.size)
    headers["content-length"] = str(end - start)
    if span is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{content.size}"
    status = 200 if span is None else 206
    if request.method == "HEAD":
        return Response(status_code=status, headers={**headers, "content-type": content.content_type})
    pieces = content.read(start, end)
    # The first piece is read before the answer begins, so that a file that is gone is still an HTTP error.
    try:
        first = await anext(pieces, b"")
    except FileNotFoundError:
        raise ApiError(404, "not_found", "The file was removed.") from None
    return GeneratedResponse(_all(first, pieces), status_code=status, headers=headers, media_type=content.content_type)


async def _all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    yield first
    async for piece in rest:
        yield piece


def _asked_range(request: Request, etag: str, size: int) -> tuple[int, int] | None:
    """The range as (start, end); None for the whole file: no `Range`, several, one that is not understood, or another version."""
    asked = request.headers.get("range")
    version = request.headers.get("if-range")
    if asked is None or (version is not None and version.strip() != etag):
        return None
    match = _RANGE.fullmatch(asked.strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first == "":
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < int(first):
            return None  # not a valid range: it is ignored
    if start >= size or start >= end:
        message = f"The range '{asked[:80]}' lies outside the file's {size} bytes."
        raise ApiError(416, "range_not_satisfiable", message, headers={"content-range": f"bytes */{size}", "accept-ranges": "bytes"})
    return start, end


def _disposition(filename: str) -> str:
    """As RFC 6266 says: plain ASCII for old readers, and the name itself where that differs."""
    plain = re.sub(r"[^ !#-\[\]-~]", "_", filename)
    return f'inline; filename="{plain}"' + ("" if plain == filename else f"; filename*=UTF-8''{quote(filename, safe='')}")


def _matches(header: str, etag: str) -> bool:
    tags = {tag.strip().removeprefix("W/") for tag in header.split(",")}
    return etag in tags or "*" in tags
