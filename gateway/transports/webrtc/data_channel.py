"""The data channel `oai-events`: session events as JSON text, both ways."""

from __future__ import annotations

from collections.abc import Callable

from aiortc import RTCDataChannel

from ....sessions.inbound import BadFrame, Inbound
from ..outbox import Outbox

LABEL = "oai-events"


class EventChannel:
    """Moves events from an outbox to the channel as fast as it takes them, and hands what arrives to `received`.

    Bound: `max_buffered` bytes lie in the channel itself; the rest stays in the outbox, where a fence can drop it.
    """

    def __init__(self, outbox: Outbox, *, max_buffered: int, received: Callable[[Inbound | str], None], gone: Callable[[], None]) -> None:
        self._outbox = outbox
        self._max_buffered = max_buffered
        self._received = received
        self._gone = gone
        self._channel: RTCDataChannel | None = None

    @property
    def open(self) -> bool:
        return self._channel is not None and self._channel.readyState == "open"

    @property
    def empty(self) -> bool:
        """Whether everything queued has been acknowledged, or can no longer be sent."""
        return not self.open or (not self._outbox and self._channel is not None and self._channel.bufferedAmount == 0)

    def attach(self, channel: RTCDataChannel) -> None:
        """The caller opened a channel. Handlers must be in place before this returns, or its first message is lost."""
        if channel.label != LABEL or self._channel is not None:
            channel.close()
            return
        self._channel = channel
        channel.bufferedAmountLowThreshold = self._max_buffered // 2
        channel.on("message", self._message)
        channel.on("bufferedamountlow", self.pump)
        channel.on("close", self._gone)
        self.pump()

    def pump(self) -> None:
        """Hand over what fits."""
        channel = self._channel
        if channel is None:
            return
        while self._outbox and channel.readyState == "open" and channel.bufferedAmount < self._max_buffered:
            item = self._outbox.pop()
            if item is not None:
                channel.send(item.data.decode())

    def close(self) -> None:
        """Close the channel; what waits is dropped."""
        if self._channel is not None and self._channel.readyState == "open":
            self._channel.close()

    def _message(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            self._received(BadFrame("invalid_frame", "Binary messages are not client events: send each event as JSON in a text message."))
        else:
            self._received(message)
