"""Who may come in: API keys, kept as SHA-256 digests only and compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from fastapi import Request

from .errors import ApiError

KEY_SUBPROTOCOL = "openai-insecure-api-key."
"""Browsers cannot set headers on a WebSocket, so they offer the key as a subprotocol beside `realtime`."""

SCHEMES = frozenset({"bearer", "api-key"})
"""What may stand before the key in the `Authorization` header; robots' clients write "Api-Key"."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class KeyRing:
    """The API keys that the server accepts. A key is given in the clear or as `sha256:<64 hex digits>`.

    Without keys everybody may come in: meant for a server that listens on 127.0.0.1. Web pages are not everybody, though: a
    browser lets any page open a WebSocket to the user's own machine, so then only pages of this server, of the same machine and of
    `origins` ("*": all) may.
    """

    def __init__(self, keys: Iterable[str], origins: Iterable[str] = ()) -> None:
        self._digests = [_digest(key) for key in keys]
        self._origins = frozenset(origins)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accepts(self, key: str | None) -> bool:
        """Whether `key` opens the door. Looks at every digest, so that the time taken tells nothing."""
        if not self._digests:
            return True
        offered = hashlib.sha256((key or "").encode()).digest()
        matches = [hmac.compare_digest(offered, digest) for digest in self._digests]
        return any(matches)

    def require(self, headers: Mapping[str, str], subprotocols: Sequence[str] = ()) -> None:
        """Raise a 401 `ApiError` unless the request carries a good key; 403 when there are none and a foreign page asks."""
        if not self._digests:
            self._require_origin(headers)
            return
        key = offered_key(headers, subprotocols)
        if self.accepts(key):
            return
        said = "Incorrect API key provided." if key else "No API key provided."
        message = f"{said} Send it as 'Authorization: Bearer KEY', or from a browser as the subprotocol '{KEY_SUBPROTOCOL}KEY'."
        raise ApiError(401, "invalid_api_key", message, headers={"www-authenticate": "Bearer"})

    def _require_origin(self, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        if origin is None or origin in self._origins or "*" in self._origins:
            return
        try:
            page = urlsplit(origin)
            host = page.hostname or ""
        except ValueError:
            host = ""
        if host in LOOPBACK or (host and page.netloc == headers.get("host")):
            return
        message = f"Pages of {origin[:200]!r} may not use this server. Allow them in server.cors_origins, or give the server api_keys."
        raise ApiError(403, "origin_not_allowed", message)


def offered_key(headers: Mapping[str, str], subprotocols: Sequence[str] = ()) -> str | None:
    """The key in the `Authorization` header, else in the subprotocols."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() in SCHEMES and key.strip():
        return key.strip()
    for subprotocol in subprotocols:
        if subprotocol.startswith(KEY_SUBPROTOCOL):
            return subprotocol.removeprefix(KEY_SUBPROTOCOL)
    return None


def _digest(key: str) -> bytes:
    scheme, _, value = key.partition(":")
    return bytes.fromhex(value) if scheme == "sha256" else hashlib.sha256(key.encode()).digest()


def require_key(request: Request) -> None:
    """A route's dependency: 401 unless the request carries a good key."""
    request.app.state.gateway.keys.require(request.headers)
