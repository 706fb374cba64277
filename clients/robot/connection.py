"""openpi's frames on a WebSocket: the server says its metadata first, then a reply follows each request."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException

from ...codecs import msgpack_numpy
from ...codecs.msgpack_numpy import BadMessage
from .errors import PolicyUnreachable, Refused
from .policy import PolicyInfo

TRY_AGAIN = frozenset({408, 425, 429})
"""HTTP refusals of a moment. Beside them: 5xx, and 409 `session_in_use`, as this robot's own last connection may not be gone yet."""
ENDED = frozenset({4000, 4001})
"""Close codes with which a server ends a session for good: evicted, deleted. A rollout must not be restarted in silence."""
CLOSE_TIMEOUT = 1.0
MAX_SENTENCE = 500


class PolicyConnection:
    """A connection whose metadata has come. Made by `open_connection`."""

    def __init__(self, websocket: ClientConnection, policy: PolicyInfo) -> None:
        self.policy = policy
        self._websocket = websocket

    async def send(self, frame: bytes) -> None:
        """Send a request, packed. Raises `PolicyUnreachable`, or `Refused`."""
        try:
            await self._websocket.send(frame)
        except ConnectionClosed as error:
            raise _gone(error) from error

    async def receive(self) -> bytes:
        """The next reply. Raises `PolicyUnreachable`, with the server's sentence if it sent one, or `Refused`."""
        try:
            frame = await self._websocket.recv()
        except ConnectionClosed as error:
            raise _gone(error) from error
        if isinstance(frame, bytes):
            return frame
        try:  # an error in words; what it means for the session stands in the close frame
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._websocket.recv()
        except ConnectionClosed as error:
            raise _gone(error, frame) from error
        except TimeoutError:
            pass
        raise PolicyUnreachable(f"The server failed: {_last_line(frame)}")

    async def close(self) -> None:
        """Hang up; whatever still comes is not heard."""
        await self._websocket.close()


async def open_connection(url: str, *, api_key: str | None, session_id: str | None, anew: bool, timeout: float) -> PolicyConnection:
    """Connect, and hear the metadata. `anew`: a named session begins afresh. Raises `PolicyUnreachable` or `Refused`.

    No pings are sent: openpi's server cannot answer them while it infers, and the time-out of a reply notices a lost peer as well.
    """
    address = policy_url(url, session_id=session_id, anew=anew)
    headers = {"Authorization": f"Api-Key {api_key}"} if api_key else {}
    try:
        async with asyncio.timeout(timeout):
            websocket = await open_websocket(
                address,
                additional_headers=headers,
                compression=None,
                max_size=None,
                open_timeout=timeout,
                close_timeout=CLOSE_TIMEOUT,
                ping_interval=None,
                proxy=None,
            )
            try:
                return PolicyConnection(websocket, PolicyInfo.of(await _metadata(websocket, url)))
            except BaseException:
                websocket.transport.abort()
                raise
    except InvalidStatus as error:
        raise _refusal(url, error) from error
    except TimeoutError as error:
        raise PolicyUnreachable(f"The server at {url} did not answer within {timeout:g} s.") from error
    except ConnectionClosed as error:
        raise _gone(error) from error
    except InvalidURI as error:
        raise Refused(f"{url!r} is no address of a policy server ({error}).") from error
    except (OSError, WebSocketException) as error:
        raise PolicyUnreachable(f"There is no policy server at {url} ({error}).") from error


def policy_url(url: str, *, session_id: str | None = None, anew: bool = False) -> str:
    """The address, from `ws://HOST:PORT/PATH`, `http://…` or `HOST:PORT`, with the session in its query."""
    parts = urllib.parse.urlsplit(url if "://" in url else f"ws://{url}")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    query = dict(urllib.parse.parse_qsl(parts.query))
    if session_id is not None:
        query["session_id"] = session_id
        if anew:
            query["reset"] = "true"
    return urllib.parse.urlunsplit((scheme, parts.netloc, parts.path, urllib.parse.urlencode(query), ""))


async def _metadata(websocket: ClientConnection, url: str) -> Any:
    frame = await websocket.recv()
    try:
        if isinstance(frame, str):
            raise BadMessage(_last_line(frame))
        return msgpack_numpy.unpack(frame)
    except BadMessage as error:
        raise PolicyUnreachable(f"The server at {url} does not begin with its metadata: {error}") from error


def _refusal(url: str, error: InvalidStatus) -> PolicyUnreachable | Refused:
    status = error.response.status_code
    code, said = "", f"HTTP {status}"
    try:
        told = json.loads(error.response.body or b"")["error"]
        code, said = str(told.get("code")), str(told["message"])[:MAX_SENTENCE]
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    sentence = f"The server at {url} refused the connection: {said}"
    passing = status >= 500 or status in TRY_AGAIN or (status == 409 and code == "session_in_use")
    return PolicyUnreachable(sentence) if passing else Refused(sentence)


def _gone(error: ConnectionClosed, said: str = "") -> PolicyUnreachable | Refused:
    code, reason = (error.rcvd.code, error.rcvd.reason) if error.rcvd is not None else (0, "")
    told = _last_line(said) or reason
    sentence = f"The server closed the connection (code {code}){f': {told}' if told else '.'}" if code else "The connection was lost."
    return Refused(sentence) if code in ENDED else PolicyUnreachable(sentence)


def _last_line(text: str) -> str:
    """Of a traceback, the line that says what it is about."""
    lines = text.strip().splitlines()
    return lines[-1][:MAX_SENTENCE] if lines else ""
