"""A lean client for `WS /v1/realtime`."""

from __future__ import annotations

import itertools
import time
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pybase64
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_websocket
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidStatus, WebSocketException

from .errors import CallFailed, CouldNotConnect
from .interface import ServerEvent

AUDIO_DELTAS = frozenset({"response.output_audio.delta", "response.audio.delta"})
MAX_EVENT_BYTES = 32 * 1024 * 1024
GOOD_CLOSES = frozenset({1000, 1001, 1005})

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class RealtimeClient:
    """A `VoiceClient` over a WebSocket. Made by `connect`."""

    server_owns_playback = False

    def __init__(self, websocket: ClientConnection) -> None:
        self._websocket = websocket
        self._numbers = itertools.count(1)
        self.close_code: int | None = None
        self.close_reason = ""

    async def send(self, event: Mapping[str, Any]) -> str:
        """See `VoiceClient.send`."""
        event_id = str(event.get("event_id") or f"event_client_{next(self._numbers)}")
        await self.send_text(_encode({**event, "event_id": event_id}).decode())
        return event_id

    async def send_audio(self, pcm: bytes) -> None:
        """Append `pcm` to the session's input buffer."""
        await self.send_text(audio_event(pcm))

    async def send_text(self, text: str) -> None:
        """Send an event that is already JSON."""
        try:
            await self._websocket.send(text)
        except ConnectionClosed as error:
            raise self._ended(error) from error

    async def __aiter__(self) -> AsyncIterator[ServerEvent]:
        while True:
            try:
                message = await self._websocket.recv()
            except ConnectionClosedOK as error:
                self._note(error)
                return
            except ConnectionClosed as error:
                self._note(error)
                if self.close_code in GOOD_CLOSES:
                    return
                raise self._ended(error) from error
            yield parse(message, time.monotonic())

    async def close(self) -> None:
        """Hang up."""
        await self._websocket.close()

    def _note(self, error: ConnectionClosed) -> None:
        if error.rcvd is not None:
            self.close_code, self.close_reason = error.rcvd.code, error.rcvd.reason

    def _ended(self, error: ConnectionClosed) -> CallFailed:
        self._note(error)
        if self.close_code is None:
            return CallFailed("The connection to the server was lost.")
        reason = f": {self.close_reason.rstrip('.')}" if self.close_reason else ""
        return CallFailed(f"The server closed the connection with code {self.close_code}{reason}.")


async def connect(
    url: str = "ws://127.0.0.1:8765",
    *,
    model: str = "antiphon-voice",
    api_key: str | None = None,
    intent: str | None = None,
    timeout: float = 15.0,
    headers: Mapping[str, str] | None = None,
) -> RealtimeClient:
    """Open a realtime session.

    `url` is the server's address (`ws://`, `wss://`, `http://` or `https://`), with or without the path `/v1/realtime`; `intent`
    may be "transcription"; `timeout` in seconds. Raises `CouldNotConnect`.
    """
    address = realtime_url(url, model=model, intent=intent)
    extra = dict(headers or {})
    if api_key:
        extra["Authorization"] = f"Bearer {api_key}"
    try:
        websocket = await open_websocket(
            address,
            additional_headers=extra,
            compression=None,  # audio does not compress, and it costs the server dear
            max_size=MAX_EVENT_BYTES,
            open_timeout=timeout,
            close_timeout=3,
            proxy=None,
        )
    except InvalidStatus as error:
        status = error.response.status_code
        raise CouldNotConnect(f"The server at {url} refused the connection: {_refusal(error.response.body, status)}", status) from error
    except TimeoutError as error:
        raise CouldNotConnect(f"The server at {url} did not answer within {timeout:g} s.") from error
    except (OSError, WebSocketException) as error:
        raise CouldNotConnect(f"There is no server at {url} ({error}). Start one with: antiphon serve") from error
    return RealtimeClient(websocket)


def realtime_url(url: str, *, model: str, intent: str | None = None) -> str:
    """The address of the realtime route for a server's address in any form."""
    parts = urllib.parse.urlsplit(url if "://" in url else f"ws://{url}")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    if not path.endswith("/realtime"):
        path = f"{path}/realtime" if path.endswith("/v1") else f"{path}/v1/realtime"
    query = dict(urllib.parse.parse_qsl(parts.query))
    query.setdefault("model", model)
    if intent:
        query["intent"] = intent
    return urllib.parse.urlunsplit((scheme, parts.netloc, path, urllib.parse.urlencode(query), ""))


def audio_event(pcm: bytes) -> str:
    """An `input_audio_buffer.append` event as JSON text."""
    return f'{{"type":"input_audio_buffer.append","audio":"{pybase64.b64encode(pcm).decode()}"}}'


def parse(message: str | bytes, at: float) -> ServerEvent:
    """A server event from its JSON text. Raises `CallFailed` for what is not one."""
    try:
        data = _decode(message)
        kind = data["type"]
        if kind not in AUDIO_DELTAS:
            return ServerEvent(at, kind, data)
        return ServerEvent(at, kind, data, pybase64.b64decode(data.pop("delta"), validate=True))
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        raise CallFailed(f"The server sent something that is no event of the realtime protocol: {error}") from error


def _refusal(body: bytes | bytearray | None, status: int) -> str:
    """The sentence in the body of a refusal, else its status."""
    try:
        return str(_decode(body or b"")["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return f"HTTP {status}"
