"""The server's audio: PCM in, one RTP packet every 20 ms out, in silence almost none.

The queue is bounded and purged by epoch without awaiting anything: what a fence leaves behind is one frame that fades within
5 ms. RTP time steps evenly with the ticks, whatever they carry; after a stall the missed ticks are skipped, never sent at once.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....codecs.pcm import SAMPLE_RATE, from_float, to_float
from ..connection import Purged
from . import rtp
from .rtcp import ReportBlock, SenderReport, ntp_now
from .track_codecs import FRAME_BYTES, FRAME_SAMPLES, SILENCE, TrackEncoder

TELL_SAMPLES = 2 * FRAME_SAMPLES
"""Delivery is reported every 40 ms: half the work for the session, and the ledger stays within a frame of the truth."""
FADE_SAMPLES = SAMPLE_RATE * 5 // 1000
REFRESH_TICKS = 20
"""In silence one packet every 400 ms, as Opus's own discontinuous transmission does."""
SILENT_ENCODES = 30
"""Frames of silence encoded before it is taken for granted that the encoder stays discontinuous or never will be."""
LOSSY, CLEAN = 0.02, 0.005
"""Reported loss above which audio is protected, and below which it may cease to be."""
PROTECT_FOR = 10.0
"""Seconds without loss after which protection ends."""


@dataclass(slots=True)
class SendStats:
    """Counters of one call."""

    packets: int = 0
    octets: int = 0
    encoded: int = 0
    skipped_ticks: int = 0
    """Ticks that a stalled process could not serve."""
    purged_samples: int = 0
    refused_samples: int = 0
    """Audio beyond the queue's bound, dropped."""
    protected: int = 0
    """Packets sent while audio was protected against loss."""


@dataclass(slots=True)
class _Piece:
    pcm: bytes
    position: int
    epoch: int | None
    response_id: str | None

    @property
    def left(self) -> int:
        return len(self.pcm) - self.position


class _NoEncoder:
    """The encoder of a track that is over."""

    clock_rate = 48_000
    discontinuous = True

    def encode(self, frame: bytes) -> bytes:
        return b"\0"

    def protect(self, loss_percent: int) -> None:
        pass


class MediaSender:
    """One track. `play` queues, `purge` drops, `tick` sends.

    `red_type`: the payload type of redundant audio, if agreed. `send` gets RTP packets in the clear and returns whether they
    left; `delivered(response_id, samples)` is told what of the queue went out.

    Bound of the queue: `max_samples`; policy: what comes beyond it is dropped and counted (the session paces itself far below).
    """

    def __init__(
        self,
        encoder: TrackEncoder,
        *,
        payload_type: int,
        red_type: int | None = None,
        send: Callable[[bytes], bool],
        delivered: Callable[[str, int], None],
        max_samples: int,
        generator: random.Random | None = None,
    ) -> None:
        numbers = generator or random.SystemRandom()
        self.ssrc = numbers.randrange(1, 1 << 32)
        self.stats = SendStats()
        self.epoch = 0
        """The newest fence: audio of an older epoch is not played."""
        self.queued = 0
        """Samples that wait."""
        self.paused = False
        """While the caller may be gone nothing is taken from the queue, so that its session stops making more."""
        self._encoder = encoder
        self._payload_type = payload_type
        self._red_type = red_type
        self._before: tuple[int, bytes] | None = None
        self._send = send
        self._delivered = delivered
        self._max_samples = max_samples
        self._pieces: deque[_Piece] = deque()
        self._tail: bytes | None = None
        self._sequence = numbers.randrange(1 << 15)
        self._timestamp = numbers.randrange(1 << 32)
        self._step = encoder.clock_rate * FRAME_SAMPLES // SAMPLE_RATE
        self._owed = 0
        self._owed_to: str | None = None
        self._silent_ticks = 0
        self._silent_payload: bytes | None = None
        self._talking = False
        self._lossy_at: float | None = None
        self._sent_ntp = 0
        self._sent_timestamp = 0

    # ---- the queue --------------------------------------------------------------------------------------------------

    def play(self, pcm: bytes, *, epoch: int | None = None, response_id: str | None = None) -> None:
        """Queue audio for the caller. What a fence has already passed is dropped silently."""
        if (epoch is not None and epoch < self.epoch) or not pcm:
            return
        samples = len(pcm) // 2
        if self.queued + samples > self._max_samples:
            self.stats.refused_samples += samples
            return
        self._pieces.append(_Piece(pcm, 0, epoch, response_id))
        self.queued += samples

    def purge(self, epoch: int) -> Purged:
        """Drop, now, what was made for an epoch before `epoch`. If that was being heard, it ends in a fade of 5 ms."""
        self.epoch = max(self.epoch, epoch)
        self._tell_owed()
        stale = [piece for piece in self._pieces if piece.epoch is not None and piece.epoch < self.epoch]
        if not stale:
            return Purged()
        heard = self._pieces[0] if self._talking and self._pieces[0] is stale[0] else None
        if heard is not None:
            self._tail = _fade(heard.pcm[heard.position : heard.position + 2 * FADE_SAMPLES])
        self._pieces = deque(piece for piece in self._pieces if piece not in stale)
        samples = sum(piece.left for piece in stale) // 2
        self.queued -= samples
        self.stats.purged_samples += samples
        return Purged(len(stale), samples)

    def close(self) -> None:
        """Nothing more will be sent."""
        self._pieces.clear()
        self.queued = 0
        self._encoder = _NoEncoder()

    def _take(self) -> tuple[bytes, list[tuple[str, int]]] | None:
        """The next frame and whose samples are in it; None: there is nothing to say."""
        if self._tail is not None:
            tail, self._tail = self._tail, None
            return tail, []
        if not self._pieces or self.paused:
            return None
        blocks: list[bytes] = []
        owners: list[tuple[str, int]] = []
        missing = FRAME_BYTES
        while missing and self._pieces:
            piece = self._pieces[0]
            block = piece.pcm[piece.position : piece.position + missing]
            piece.position += len(block)
            missing -= len(block)
            blocks.append(block)
            if piece.response_id is not None:
                owners.append((piece.response_id, len(block) // 2))
            if not piece.left:
                self._pieces.popleft()
        self.queued -= (FRAME_BYTES - missing) // 2
        return b"".join(blocks) + SILENCE[:missing], owners

    # ---- one tick ---------------------------------------------------------------------------------------------------

    def tick(self, now: float, missed: int = 0) -> None:
        """20 ms have passed, and `missed` ticks before that went by unserved."""
        self._timestamp = (self._timestamp + self._step * (1 + missed)) & 0xFFFFFFFF
        self.stats.skipped_ticks += missed
        taken = self._take()
        if taken is None:
            payload = self._silence()
            if payload is not None:
                self._leave(payload, marker=False)
            return
        frame, owners = taken
        marker = not self._talking
        self._talking = True
        self._silent_ticks, self._silent_payload = 0, None
        self.stats.encoded += 1
        self._leave(self._encoder.encode(frame), marker=marker)
        for response_id, samples in owners:
            self._tell(response_id, samples)
        if not self._pieces:
            self._tell_owed()

    def _tell(self, response_id: str, samples: int) -> None:
        """Report a response's audio as it leaves: its first frame at once, then in steps of `TELL_SAMPLES`."""
        first = response_id != self._owed_to
        if first:
            self._tell_owed()
            self._owed_to = response_id
        self._owed += samples
        if first or self._owed >= TELL_SAMPLES:
            self._tell_owed()

    def _tell_owed(self) -> None:
        if self._owed and self._owed_to is not None:
            owed, self._owed = self._owed, 0
            self._delivered(self._owed_to, owed)

    def _silence(self) -> bytes | None:
        """The packet for a silent tick, if one is due."""
        self._silent_ticks += 1
        if self._silent_payload is None:
            payload = self._encoder.encode(SILENCE)
            self.stats.encoded += 1
            if self._silent_ticks > SILENT_ENCODES or (self._encoder.discontinuous and len(payload) <= 2):
                self._silent_payload = payload
                self._silent_ticks = 0
                self._talking = False
            return payload
        if self._encoder.discontinuous and self._silent_ticks % REFRESH_TICKS:
            return None
        return self._silent_payload

    def _leave(self, payload: bytes, *, marker: bool) -> None:
        self._sequence = (self._sequence + 1) & 0xFFFF
        kind, body = self._payload_type, payload
        if self._red_type is not None and self._lossy_at is not None:
            # While packets are lost each carries the frame before it as well, if the caller has agreed to that.
            older = [] if self._before is None else [((self._timestamp - self._before[0]) & 0xFFFFFFFF, self._before[1])]
            kind, body = self._red_type, rtp.build_red(kind, payload, older)
        self._before = (self._timestamp, payload)
        if self._send(rtp.build(kind, marker, self._sequence, self._timestamp, self.ssrc, body)):
            self.stats.packets += 1
            self.stats.octets += len(body)
            self.stats.protected += self._lossy_at is not None
            self._sent_timestamp = self._timestamp
            self._sent_ntp = ntp_now()

    # ---- reports ----------------------------------------------------------------------------------------------------

    def reported(self, block: ReportBlock, now: float) -> None:
        """The caller says what it receives: protect the audio while it loses some."""
        if block.ssrc != self.ssrc:
            return
        if block.fraction_lost >= LOSSY or (self._lossy_at is not None and block.fraction_lost >= CLEAN):
            self._lossy_at = now
            self._encoder.protect(min(30, max(5, round(block.fraction_lost * 100))))
            self._silent_payload = None
        elif self._lossy_at is not None and now - self._lossy_at >= PROTECT_FOR:
            self._lossy_at = None
            self._encoder.protect(0)
            self._silent_payload = None

    def report(self, blocks: tuple[ReportBlock, ...] = ()) -> SenderReport:
        """Our own report, carrying `blocks`."""
        return SenderReport(self.ssrc, self._sent_ntp, self._sent_timestamp, self.stats.packets, self.stats.octets & 0xFFFFFFFF, blocks)


def _fade(pcm: bytes) -> bytes:
    """A frame that begins as `pcm` and is silent within 5 ms."""
    samples = to_float(pcm)
    ramp = np.linspace(1.0, 0.0, FADE_SAMPLES, dtype=np.float32)[: len(samples)]
    faded = from_float(samples * ramp)
    return faded + SILENCE[len(faded) :]
