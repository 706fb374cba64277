"""The console: a page at `/` that a person opens in a browser, and its static files under `/console/`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from .errors import ApiError

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).with_name("console")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Said here, since what the system's table of types says of `.js` differs from machine to machine."""

SECURITY_HEADERS = {
    # Nothing is loaded from elsewhere, no inline script or style, and nobody may put the page into a frame. Pictures and clips come as
    # blobs, because they may need the key.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; media-src 'self' blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the console, in memory."""

    body: bytes
    media_type: str
    etag: str


def load_assets(folder: Path) -> dict[str, Asset]:
    """Every servable file under `folder`, by its path relative to it."""
    assets: dict[str, Asset] = {}
    for path in sorted(folder.rglob("*")):
        media_type = TYPES.get(path.suffix)
        if media_type is not None and path.is_file():
            body = path.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            assets[path.relative_to(folder).as_posix()] = Asset(body, media_type, etag)
    return assets


@cache
def _assets() -> Mapping[str, Asset]:
    return load_assets(FOLDER)


@router.get("/")
@router.head("/")
async def page(request: Request) -> Response:
    """The page itself."""
    return _respond(request, "index.html")


@router.get("/console/{path:path}")
@router.head("/console/{path:path}")
async def asset(path: str, request: Request) -> Response:
    """One of its files. The path is looked up in a table, so it cannot lead out of the folder."""
    return _respond(request, path)


def _respond(request: Request, path: str) -> Response:
    found = _assets().get(path)
    if found is None:
        raise ApiError(404, "not_found", f"The console has no file '{path}'.")
    # Asked for each time and answered 304: after an upgrade no page mixes old modules with new ones.
    headers = {**SECURITY_HEADERS, "cache-control": "no-cache", "etag": found.etag}
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if found.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type=found.media_type, headers=headers)
