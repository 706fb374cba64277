"""What every voice client can do, whatever carries it: a WebSocket today, WebRTC as well.

Audio is mono signed 16-bit little-endian PCM at 24 kHz as `bytes`; times are seconds on `time.monotonic`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """An event as it came from the server. `at` is when it arrived.

    For a piece of the assistant's audio, `audio` is its PCM and `data` lacks the encoded form (`delta`).
    """

    at: float
    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    audio: bytes = b""

    @property
    def response_id(self) -> str | None:
        """The response that the event belongs to, if any."""
        response = self.data.get("response")
        found = response.get("id") if isinstance(response, Mapping) else self.data.get("response_id")
        return found if isinstance(found, str) else None

    @property
    def item_id(self) -> str | None:
        """The conversation item that the event belongs to, if any."""
        item = self.data.get("item")
        found = item.get("id") if isinstance(item, Mapping) else self.data.get("item_id")
        return found if isinstance(found, str) else None


class VoiceClient(Protocol):
    """A connection to a realtime session."""

    @property
    def server_owns_playback(self) -> bool:
        """True where the server keeps the output buffer and cuts the conversation itself (WebRTC); False where the client must
        stop its player and send `conversation.item.truncate` (WebSocket)."""

    async def send(self, event: Mapping[str, Any]) -> str:
        """Send a client event and return its `event_id` (made here unless given). Raises `CallFailed`."""

    async def send_audio(self, pcm: bytes) -> None:
        """Send the next piece of the caller's audio. Pacing is the caller's affair. Raises `CallFailed`."""

    def __aiter__(self) -> AsyncIterator[ServerEvent]:
        """The server's events until the connection ends. Raises `CallFailed` when it ends by an error."""

    async def close(self) -> None:
        """Hang up, in bounded time. May be called twice."""
