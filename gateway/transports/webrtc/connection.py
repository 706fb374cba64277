"""A call attached to a session (see `transports.connection.Connection`): audio to the track, every other event to the data channel.

Sidebands (WebSockets that joined the call) get the same events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec

from ....codecs.pcm import SAMPLE_RATE
from ....sessions.inbound import AudioDelivered, ClientMessage, Inbound, TrackAudio
from ....sessions.rates import TokenBucket
from ....sessions.server_events import OutputAudioDelta, ServerEvent, encode_event
from ..connection import Purged
from ..event_gate import EventGate
from ..outbox import Outbox
from ..websocket import Closing, WebSocketLimits
from .data_channel import EventChannel
from .errors import PeerFailed
from .limits import WebRtcLimits
from .liveness import Life
from .peer import Peer, PeerEvents
from .sdp import LOCAL_MESSAGE_SIZE

MAX_SIDEBANDS = 8
FLUSH_STEP = 0.02
CLOSED_BY = {"closed": "client", "timeout": "no_show", "silent": "vanished", "flooded": "slow_reader"}
"""Why a peer ended -> who ended the session, in the words of the metrics."""

_TRANSCRIPT_DELTA = b'{"type":"response.output_audio_transcript.delta"'
_encode = msgspec.json.Encoder().encode


class _TranscriptDelta(msgspec.Struct, tag_field="type", tag="response.output_audio_transcript.delta"):
    """What is needed to join transcript deltas."""

    event_id: str
    response_id: str
    item_id: str
    output_index: int
    content_index: int
    delta: str


_decode_delta = msgspec.json.Decoder(_TranscriptDelta).decode


class Sideband(Protocol):
    """A connection that listens in."""

    def send(self, data: bytes, *, epoch: int | None = None, samples: int = 0, response_id: str | None = None) -> None: ...

    def purge(self, epoch: int) -> Purged: ...

    def finish(self, code: int, reason: str) -> None: ...


def encode_for_track(event: ServerEvent) -> bytes:
    """The conductor's `encode`: audio as plain PCM, every other event as JSON."""
    return event.pcm if type(event) is OutputAudioDelta else encode_event(event)


class WebRtcConnection:
    """See the module's docstring. Made before the caller has connected: events wait in the outbox for the data channel."""

    def __init__(
        self,
        make_peer: Callable[[PeerEvents], Peer],
        limits: WebRtcLimits,
        caps: WebSocketLimits,
        *,
        max_message_size: int,
        has_channel: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`has_channel`: whether the offer has a data channel; without one events go to the sidebands only."""
        self._limits = limits
        self._clock = clock
        self._has_channel = has_channel
        self._feed: Callable[[Inbound], None] | None = None
        self.outbox = Outbox(
            max_samples=limits.playout_ms * SAMPLE_RATE // 1000, max_bytes=caps.outbox_bytes, max_events=caps.outbox_events
        )
        self.channel = EventChannel(self.outbox, max_buffered=limits.channel_buffer_bytes, received=self._received, gone=self._hung_up)
        self.peer = make_peer(PeerEvents(heard=self._heard, delivered=self._delivered, channel=self.channel.attach, life=self._life))
        self._max_message_size = max_message_size or LOCAL_MESSAGE_SIZE
        self._sidebands: list[Sideband] = []
        self._transcript: tuple[_TranscriptDelta, int | None] | None = None
        self._transcript_timer: asyncio.TimerHandle | None = None
        self._finished = asyncio.Event()
        self._finish: tuple[int, str] | None = None
        self._by_caller = False
        self._overflowed = False
        self._gate = EventGate(caps, clock=clock, max_event_bytes=LOCAL_MESSAGE_SIZE)
        self._track_audio = TokenBucket(caps.audio_burst_s, caps.audio_burst_s / caps.audio_rate)

    # ---- what the conductor calls -----------------------------------------------------------------------------------

    def send(self, data: bytes, *, epoch: int | None = None, samples: int = 0, response_id: str | None = None) -> None:
        if self._finish is not None or self._overflowed:
            return
        if samples:
            self.peer.sender.play(data, epoch=epoch, response_id=response_id)
        elif data.startswith(_TRANSCRIPT_DELTA):
            self._join_transcript(data, epoch)
        else:
            self._flush_transcript()
            self._queue(data, epoch)

    def purge(self, epoch: int) -> Purged:
        if self._transcript is not None and self._transcript[1] is not None and self._transcript[1] < epoch:
            self._transcript = None
        for sideband in self._sidebands:
            sideband.purge(epoch)
        events, track = self.outbox.purge(epoch), self.peer.sender.purge(epoch)
        return Purged(events.events + track.events, track.samples)

    def expect_audio(self, bytes_per_second: int) -> None:
        self._gate.expect_audio(bytes_per_second)

    def finish(self, code: int, reason: str) -> None:
        if self._finish is None:
            self._flush_transcript()
            self._finish = (code, reason)
            for sideband in self._sidebands:
                sideband.finish(code, reason)
            self._finished.set()

    # ---- events out -------------------------------------------------------------------------------------------------

    def _queue(self, data: bytes, epoch: int | None) -> None:
        for sideband in self._sidebands:
            sideband.send(data, epoch=epoch)
        if not self._has_channel:
            return
        if len(data) > self._max_message_size:
            self._refuse_large(data)
            return
        if not self.outbox.put(data, epoch=epoch):
            self._overflowed = True
            self._finished.set()
            return
        self.channel.pump()

    def _refuse_large(self, data: bytes) -> None:
        """An event that the channel cannot carry: the caller is told instead."""
        kind = msgspec.json.decode(data)["type"]
        message = f"The event {kind} has {len(data)} bytes; the data channel carries {self._max_message_size} bytes at most."
        body = {"type": "invalid_request_error", "code": "event_too_large", "message": message, "param": None, "event_id": None}
        refusal = _encode({"type": "error", "event_id": msgspec.json.decode(data).get("event_id"), "error": body})
        if len(refusal) <= self._max_message_size:
            self.outbox.put(refusal)
            self.channel.pump()

    def _join_transcript(self, data: bytes, epoch: int | None) -> None:
        """Hold a transcript delta back for a moment: the next ones become part of it."""
        delta = _decode_delta(data)
        if self._transcript is not None:
            held, held_epoch = self._transcript
            if (held.item_id, held.content_index, held_epoch) == (delta.item_id, delta.content_index, epoch):
                held.delta += delta.delta
                return
            self._flush_transcript()
        self._transcript = (delta, epoch)
        if self._transcript_timer is None:
            loop = asyncio.get_running_loop()
            self._transcript_timer = loop.call_later(self._limits.transcript_ms / 1000, self._transcript_due)

    def _transcript_due(self) -> None:
        self._transcript_timer = None
        self._flush_transcript()

    def _flush_transcript(self) -> None:
        if self._transcript is not None:
            (delta, epoch), self._transcript = self._transcript, None
            self._queue(_encode(delta), epoch)

    # ---- what the caller does ----------------------------------------------------------------------------------------

    def _heard(self, pcm: bytes) -> None:
        """Audio that comes faster than the caps allow (packets of long frames, leaps of RTP time) is dropped."""
        if self._feed is None:
            return
        if self._track_audio.take(self._clock(), len(pcm) / 2 / SAMPLE_RATE):
            self._feed(TrackAudio(pcm))
        else:
            self.peer.receiver.stats.excess += 1

    def _delivered(self, response_id: str, samples: int) -> None:
        if self._feed is not None:
            self._feed(AudioDelivered(response_id, samples))

    def _hung_up(self) -> None:
        self._by_caller = self._finish is None
        self.finish(1000, "The caller hung up.")

    def _life(self, life: Life) -> None:
        """The sender stops taking audio from its queue by itself: the session, no longer relieved of it, stops making more."""

    def _received(self, message: Inbound | str) -> None:
        if self._feed is None:
            return
        if not isinstance(message, str):
            self._feed(message)
        elif (refusal := self._gate.refuse(raw := message.encode())) is None:
            self._feed(ClientMessage(raw))
        elif refusal.message:
            self._feed(refusal)

    # ---- sidebands --------------------------------------------------------------------------------------------------

    def attach(self, sideband: Sideband) -> bool:
        """Let a connection listen in; False when the call is over or has `MAX_SIDEBANDS` already."""
        if self._finish is not None or len(self._sidebands) >= MAX_SIDEBANDS:
            return False
        self._sidebands.append(sideband)
        return True

    def detach(self, sideband: Sideband) -> None:
        if sideband in self._sidebands:
            self._sidebands.remove(sideband)

    # ---- the call ---------------------------------------------------------------------------------------------------

    async def run(self, feed: Callable[[Inbound], None]) -> Closing:
        """Connect, carry the call until either side ends it, and close everything."""
        self._feed = feed
        try:
            try:
                await self._or_finished(self.peer.connect(), "call connecting")
                await self._or_finished(self.peer.ended(), "call")
            except PeerFailed as failure:
                return Closing(1006, CLOSED_BY.get(failure.reason, "failed"))
            if self._overflowed:
                return Closing(1013, "slow_reader")
            if self._finish is None:
                return Closing(1006, CLOSED_BY.get(self.peer.reason, "failed"))
            by = "client" if self._by_caller else "server"
            await self._flush()
            return Closing(self._finish[0], by)
        finally:
            self._feed = None
            if self._transcript_timer is not None:
                self._transcript_timer.cancel()
            # From here on nobody may join: closing takes a moment.
            self._finish = self._finish or (1000, "The call is over.")
            for sideband in self._sidebands:
                sideband.finish(*self._finish)
            await self.peer.close()

    async def _or_finished(self, step: Coroutine[Any, Any, None], name: str) -> None:
        """Await `step`, or give it up when the connection is to be finished. Raises what it raises."""
        if self._finished.is_set():
            step.close()
            return
        doing = asyncio.create_task(step, name=name)
        finished = asyncio.create_task(self._finished.wait(), name="call finished")
        try:
            await asyncio.wait((doing, finished), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
        finally:
            for task in (doing, finished):
                task.cancel()
            await asyncio.gather(doing, finished, return_exceptions=True)

    async def _flush(self) -> None:
        """Give what is queued a moment to leave."""
        deadline = self._clock() + self._limits.close_timeout_s
        while not self.channel.empty and self._clock() < deadline:
            self.channel.pump()
            await asyncio.sleep(FLUSH_STEP)
        self.channel.close()
