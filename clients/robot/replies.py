"""A server's reply, read: openpi's, or another's that speaks its protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codecs import msgpack_numpy
from ...codecs.msgpack_numpy import BadMessage
from .errors import PolicyUnreachable

MAX_SENTENCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`actions`, unchecked; None: there are none, and `status` and `message` say why."""

    actions: Any = None
    status: str = ""
    message: str = ""
    echo: dict[Any, Any] | None = None


def read_reply(frame: bytes) -> Reply:
    """Read a binary frame. Raises `PolicyUnreachable` for bytes that are no reply: the connection is of no use any more."""
    try:
        message = msgpack_numpy.unpack(frame)
    except BadMessage as error:
        raise PolicyUnreachable(f"The server sent something that is no reply: {error}") from error
    if isinstance(message, np.ndarray):  # vLLM-Omni's bare array
        return Reply(actions=message)
    if not isinstance(message, dict):
        raise PolicyUnreachable(f"The server sent a {type(message).__name__} where a reply should be.")
    echo = message.get("echo")
    echo = echo if isinstance(echo, dict) else None
    if "actions" in message:
        return Reply(actions=message["actions"], status="chunk", echo=echo)
    status = str(message.get("status") or ("failed" if "error" in message else "no_actions"))[:64]
    said = message.get("message") or message.get("error") or "The reply has no actions."
    return Reply(status=status, message=str(said)[:MAX_SENTENCE], echo=echo)


class EchoGuard:
    """Does a reply answer the request that was made? Only a server that echoes marks can be asked that. One for each connection."""

    def __init__(self) -> None:
        self._epoch = -1

    def check(self, reply: Reply, sequence: int, episode: str | int | None) -> bool:
        """False: it is stale. Raises `PolicyUnreachable` if it answers another request: then the connection is out of step."""
        echo = reply.echo or {}
        answered = echo.get("sequence", sequence)
        if answered != sequence:
            raise PolicyUnreachable(f"The server answered request {answered!r} when {sequence} was made.")
        epoch = echo.get("epoch")
        if isinstance(epoch, int):
            if epoch < self._epoch:
                return False
            self._epoch = epoch
        return bool(echo.get("episode", episode) == episode)
