"""Which client events may come in: caps on their size and rate, whatever transport carries them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...codecs.pcm import SAMPLE_RATE
from ...sessions.client_events import glimpse_event_id
from ...sessions.inbound import BadFrame
from ...sessions.rates import TokenBucket

AUDIO = (b"input_audio_buffer.append", b'"input_audio"')
"""What an event that carries audio has in it: it is an append, or it has a part of an item."""
SMALL = 64 * 1024
"""Bytes of an event whose values need not be counted."""


class EventCaps(Protocol):
    """The caps, as `WebSocketLimits` explains them."""

    @property
    def max_event_bytes(self) -> int: ...
    @property
    def max_event_values(self) -> int: ...
    @property
    def audio_rate(self) -> float: ...
    @property
    def audio_burst_s(self) -> float: ...
    @property
    def bytes_per_second(self) -> int: ...
    @property
    def bytes_burst(self) -> int: ...
    @property
    def events_per_second(self) -> float: ...
    @property
    def events_burst(self) -> int: ...


class EventGate:
    """The gate of one connection. `refuse` looks at every event before the session does."""

    def __init__(self, caps: EventCaps, *, clock: Callable[[], float], max_event_bytes: int | None = None) -> None:
        """`max_event_bytes`: where the transport takes less than the caps allow."""
        self._caps = caps
        self._clock = clock
        self._max_event_bytes = caps.max_event_bytes if max_event_bytes is None else min(max_event_bytes, caps.max_event_bytes)
        self._bytes_per_second = 2 * SAMPLE_RATE
        self._audio = TokenBucket(caps.audio_burst_s, caps.audio_burst_s / caps.audio_rate)
        self._events = TokenBucket(caps.events_burst, caps.events_burst / caps.events_per_second)
        self._bytes = TokenBucket(caps.bytes_burst, caps.bytes_burst / caps.bytes_per_second)
        self._refusals = TokenBucket(1.0, 1.0)

    def expect_audio(self, bytes_per_second: int) -> None:
        """The session's input format has so many bytes a second."""
        self._bytes_per_second = bytes_per_second

    def refuse(self, raw: bytes) -> BadFrame | None:
        """Why this event may not come in; an empty message: the client has just been told, drop it silently."""
        caps = self._caps
        now = self._clock()
        if len(raw) > self._max_event_bytes:
            problem = f"The event has {len(raw)} bytes; the limit is {self._max_event_bytes} bytes."
            return BadFrame("event_too_large", problem, glimpse_event_id(raw))
        if len(raw) > SMALL and (values := sum(map(raw.count, b"[{,"))) > caps.max_event_values:
            problem = f"The event has about {values} values; the limit is {caps.max_event_values}."
            return BadFrame("event_too_large", problem, glimpse_event_id(raw))
        problem = self._excess(raw, now)
        if not problem:
            return None
        if not self._refusals.take(now):
            return BadFrame("rate_limit_exceeded", "")
        return BadFrame("rate_limit_exceeded", f"{problem} What goes beyond it is dropped.", glimpse_event_id(raw))

    def _excess(self, raw: bytes, now: float) -> str:
        """Which rate the event exceeds, as a sentence; empty when none."""
        caps = self._caps
        if not self._events.take(now):
            return f"Too many events: the limit is {caps.events_per_second:g} per second."
        if not self._bytes.take(now, min(len(raw), caps.bytes_burst)):
            return f"Too many bytes: the limit is {caps.bytes_per_second} per second, and {caps.bytes_burst} at once."
        if any(mark in raw for mark in AUDIO):
            seconds = len(raw) * 3 / 4 / self._bytes_per_second
            if not self._audio.take(now, min(seconds, caps.audio_burst_s)):
                return f"Audio comes too fast: the limit is {caps.audio_rate:g} times real time, and {caps.audio_burst_s:g} s at once."
        return ""
