"""Ephemeral keys (`ek_…`): what a page in a browser gets in place of an API key.

A key is a signed token (JWT, HS256) that carries the session's configuration and expires. Nothing is stored: every process with
the same secret accepts it, until then as often as it is shown.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from .auth import KeyRing, offered_key
from .errors import ApiError

PREFIX = "ek_"
SHORTEST, LONGEST, USUAL = 10, 7200, 600
"""Seconds that a key may live."""
MAX_SESSION_BYTES = 12_000
"""A key travels in a header: what is bound to it must stay small."""
_ALGORITHM = "HS256"
_AUDIENCE = "antiphon.realtime"


@dataclass(frozen=True, slots=True)
class Grant:
    """What an ephemeral key allows: a session that begins with this configuration, until `expires_at` (Unix seconds)."""

    session: Mapping[str, Any]
    expires_at: int


class ClientSecrets:
    """Makes and reads ephemeral keys. Without a `secret` one is made up: the keys are then good for this process only."""

    def __init__(self, secret: str = "", *, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret or secrets.token_urlsafe(32)
        self._clock = clock

    def issue(self, session: Mapping[str, Any], seconds: int = USUAL) -> tuple[str, int]:
        """A key bound to `session` and when it expires. Raises a 400 `ApiError`."""
        now = int(self._clock())
        expires_at = now + seconds
        claims = {"aud": _AUDIENCE, "iat": now, "exp": expires_at, "jti": secrets.token_hex(8), "session": dict(session)}
        value = PREFIX + jwt.encode(claims, self._secret, algorithm=_ALGORITHM)
        if len(value) > MAX_SESSION_BYTES * 4 // 3 + 400:
            message = (
                f"The session is too large to be bound to a key (about {MAX_SESSION_BYTES} bytes fit): send the rest with session.update."
            )
            raise ApiError(400, "invalid_value", message, param="session")
        return value, expires_at

    def read(self, value: str) -> Grant | None:
        """What a key allows; None for what we did not make. Raises a 401 `ApiError` for one that has expired."""
        try:
            claims = jwt.decode(
                value.removeprefix(PREFIX),
                self._secret,
                algorithms=[_ALGORITHM],
                audience=_AUDIENCE,
                options={"require": ["exp", "aud"], "verify_exp": False, "verify_iat": False},
            )
        except jwt.InvalidTokenError:
            return None
        if claims["exp"] <= self._clock():
            raise ApiError(
                401, "client_secret_expired", "This ephemeral key has expired: make a new one with POST /v1/realtime/client_secrets."
            )
        return Grant(claims.get("session") or {}, int(claims["exp"]))


def granted_model(grant: Grant | None) -> str:
    """The model that an ephemeral key names, if any."""
    model = grant.session.get("model") if grant is not None else None
    return model if isinstance(model, str) else ""


def authorise(keys: KeyRing, client_secrets: ClientSecrets, headers: Mapping[str, str], subprotocols: Sequence[str] = ()) -> Grant | None:
    """Let in whoever has an API key (None is returned) or an ephemeral key (its grant is). Raises a 401 `ApiError`."""
    key = offered_key(headers, subprotocols)
    if key is not None and key.startswith(PREFIX) and (grant := client_secrets.read(key)) is not None:
        return grant
    keys.require(headers, subprotocols)
    return None
