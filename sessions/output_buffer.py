"""The playback buffer that the server owns when the assistant is heard over a media track (WebRTC): its three events.

| event                          | when                                                                      |
|--------------------------------|---------------------------------------------------------------------------|
| `output_audio_buffer.started`  | the first audio of a response is handed to the track                      |
| `output_audio_buffer.stopped`  | the response is done and its last audio has been heard                    |
| `output_audio_buffer.cleared`  | an interruption or the client cut it; the item is truncated to what was heard |

Over a WebSocket the client owns the buffer and none of this is said, but the end of the playing is noticed all the same.
"""

from __future__ import annotations

from typing import Any

from . import server_events as wire
from .emitter import Emitter
from .response import Response


class OutputBuffer:
    """Follows the one response that plays. `owned`: the server owns the buffer."""

    def __init__(self, emitter: Emitter, owned: bool) -> None:
        self._emit = emitter
        self.owned = owned
        self._playing: Response | None = None

    def delivered(self, response: Response, now: float) -> None:
        """Audio of the response was handed to the track (or the socket)."""
        if response is self._playing or response.settings.out_of_band:
            return
        if self._playing is not None:
            self._say(wire.OutputAudioBufferStopped, self._playing)
        self._playing = response
        self._say(wire.OutputAudioBufferStarted, response)

    def cleared(self, response: Response, heard_ms: float, *, truncated: bool) -> None:
        """The response's audio was cut; `truncated`: the client was told so already (it asked for it)."""
        if response is not self._playing:
            return
        self._playing = None
        self._say(wire.OutputAudioBufferCleared, response)
        if self.owned and response.message is not None and not truncated:
            self._emit.send(wire.ConversationItemTruncated, item_id=response.message.id, content_index=0, audio_end_ms=int(heard_ms))

    def settle(self, now: float) -> None:
        """Say so when the last audio of a finished response has been heard."""
        response = self._playing
        if response is not None and response.done and not response.ledger.playing(now):
            self._playing = None
            self._say(wire.OutputAudioBufferStopped, response)

    def next_deadline(self, now: float) -> float | None:
        """When `settle` is due: at once while the end of the playing was not noticed yet; None: an event comes first."""
        response = self._playing
        if response is None or not response.done:
            return None
        return response.ledger.falls_to(0, now) if response.ledger.playing(now) else now

    def _say(self, event: Any, response: Response) -> None:
        if self.owned:
            self._emit.send(event, response_id=response.id)
