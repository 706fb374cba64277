"""URLs of pictures that open without a key, for an hour: who has the URL may see the picture, nobody can make another one of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import jwt

LIFETIME_S = 3600
_ALGORITHM = "HS256"
_AUDIENCE = "antiphon.media"


@dataclass(frozen=True, slots=True)
class Link:
    """What a link opens: a file of a job."""

    tenant: str
    job_id: str
    name: str


class Links:
    """Makes and reads them. Without a `secret` one is made up: the links are then good until the server stops."""

    def __init__(self, secret: str = "", *, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret or secrets.token_urlsafe(32)
        self._clock = clock

    def token(self, link: Link, expires_at: float | None = None) -> str:
        """What stands in the URL. It ends with the job's files when these go before the hour is over."""
        end = self._clock() + LIFETIME_S
        claims = {
            "aud": _AUDIENCE,
            "exp": int(end if expires_at is None else min(end, expires_at)),
            "t": link.tenant,
            "j": link.job_id,
            "n": link.name,
        }
        return jwt.encode(claims, self._secret, algorithm=_ALGORITHM)

    def read(self, token: str) -> Link | None:
        """What it opens; None when it is not ours or too old."""
        try:
            claims = jwt.decode(
                token, self._secret, algorithms=[_ALGORITHM], audience=_AUDIENCE, options={"require": ["exp", "aud"], "verify_exp": False}
            )
        except jwt.InvalidTokenError:
            return None
        if claims["exp"] <= self._clock():
            return None
        return Link(claims["t"], claims["j"], claims["n"])
