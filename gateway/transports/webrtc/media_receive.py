"""The caller's audio: RTP packets in, an even stream of PCM at 24 kHz out, with as little waiting as the network allows.

A packet in order is decoded the moment it comes: the listener is a machine, it needs no playout delay. Behind a gap packets
wait a short while for the missing one (reordering), then the gap is filled: from redundant audio (RED), else from the copy in
the next packet (in-band FEC), else by concealment, else by silence. RTP time is the clock of the audio: time that was skipped
(discontinuous transmission, long losses) is filled with silence, so that what is heard keeps the caller's own time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ....codecs.pcm import SAMPLE_RATE
from .rtcp import ReceptionStatistics, ReportBlock, SenderReport
from .rtp import RtpPacket, Unwrapper, parse_red
from .track_codecs import FRAME_SAMPLES, SILENCE, TrackDecoder

MAX_WAITING = 50
"""Packets behind a gap (a second of audio). Policy: a full buffer gives the gap up."""
WAIT_SHORTEST, WAIT_LONGEST = 0.020, 0.060
"""Seconds that packets wait behind a gap. It grows with the reordering that is seen, and shrinks again."""
WAIT_MARGIN = 0.010
WAIT_HALF_LIFE = 2.0
CONCEALED_MOST = 5
"""Frames of concealment in a row; what is lost beyond is silence."""
FILL_AFTER = 0.2
"""Seconds without a packet after which silence is heard: the caller muted by sending nothing."""
FILL_MOST = 2.0
"""Seconds of silence that stand in for missing audio at one place: enough for a turn to end in it."""
SOURCE_GONE = 0.2
"""Seconds after which another SSRC may take the place of one that fell silent."""


@dataclass(slots=True)
class ReceiveStats:
    """Counters of one call. Frames are packets' worth of audio (20 ms as a rule)."""

    packets: int = 0
    decoded: int = 0
    red: int = 0
    """Frames recovered from redundant audio, bit by bit."""
    fec: int = 0
    """Frames recovered from the copy in the next packet."""
    concealed: int = 0
    silent: int = 0
    """Lost frames that became silence."""
    late: int = 0
    """Packets that came after their place had been filled."""
    duplicate: int = 0
    foreign: int = 0
    """Packets of an unknown payload type or source."""
    damaged: int = 0
    overflow: int = 0
    """Times that the buffer behind a gap was full."""
    excess: int = 0
    """Frames dropped because the caller sent audio much faster than real time."""
    filled_samples: int = 0
    """Silence heard while nothing came, at 24 kHz."""
    held_s: float = 0.0
    """The longest that a packet has waited behind a gap."""


class _Waiting(NamedTuple):
    payload: bytes
    timestamp: int
    arrival: float


class _NoDecoder:
    """The decoder of a track that is over."""

    clock_rate = 48_000

    def samples(self, payload: bytes) -> int:
        return 0

    def decode(self, payload: bytes) -> None:
        return None

    def recover(self, samples: int, following: bytes) -> None:
        return None

    def conceal(self, samples: int) -> bytes:
        return bytes(2 * samples)


class MediaReceiver:
    """One track. `packet` takes decrypted RTP, `tick` must be called every 20 ms or so; `heard` gets PCM at once, in order.

    `decoders` maps payload types; `red_type` is the payload type of redundant audio, if that was agreed. Times in seconds on
    one monotonic clock.
    """

    def __init__(self, decoders: Mapping[int, TrackDecoder], heard: Callable[[bytes], None], *, red_type: int | None = None) -> None:
        self.stats = ReceiveStats()
        self.ssrc: int | None = None
        self.wait = WAIT_SHORTEST
        """Seconds that packets wait behind a gap at present."""
        self._decoders = decoders
        self._heard = heard
        self._red_type = red_type
        self._last_arrival: float | None = None
        self._held_now = self._held_before = 0.0
        self._held_since = 0.0
        self._restart(next(iter(decoders.values())))

    def _restart(self, decoder: TrackDecoder) -> None:
        """Begin with a new source."""
        self._decoder = decoder
        self._reception = ReceptionStatistics(decoder.clock_rate)
        self._sequences = Unwrapper(16)
        self._timestamps = Unwrapper(32)
        self._buffer: dict[int, _Waiting] = {}
        self._next: int | None = None
        self._expected_timestamp: int | None = None
        self._frame = FRAME_SAMPLES
        self._lost_in_row = 0
        self._owed = 0
        self._filled = 0
        self._given_up_at: dict[int, float] = {}
        self._reordered_at = 0.0

    def close(self) -> None:
        """Nothing more will come."""
        self._buffer.clear()
        self._decoders = {}
        self._decoder = _NoDecoder()

    # ---- what comes in ----------------------------------------------------------------------------------------------

    def packet(self, packet: RtpPacket, now: float) -> None:
        """A decrypted packet arrived."""
        payload, payload_type, older = packet.payload, packet.payload_type, []
        if payload_type == self._red_type:
            blocks = parse_red(payload)
            if not blocks:
                self.stats.damaged += 1
                return
            payload, payload_type = blocks[-1].payload, blocks[-1].payload_type
            older = blocks[:-1]
        decoder = self._decoders.get(payload_type)
        if decoder is None or not self._accept_source(packet.ssrc, decoder, now):
            self.stats.foreign += 1
            return
        self._last_arrival = now
        if not payload:
            return
        self.stats.packets += 1
        sequence = self._sequences.unwrap(packet.sequence)
        timestamp = self._timestamps.unwrap(packet.timestamp)
        self._reception.packet(sequence, timestamp, now)
        if self._next is None:
            self._next = sequence
        if sequence == self._next and not self._buffer:
            self._play(_Waiting(payload, timestamp, now), now)
            return
        for block in older:
            self._redundant(sequence, timestamp, block.offset, block.payload, block.payload_type, now)
        self._store(sequence, timestamp, payload, now)
        self._release(now)

    def _accept_source(self, ssrc: int, decoder: TrackDecoder, now: float) -> bool:
        """Whether to listen to this SSRC: the first, or the next when that one has fallen silent."""
        if ssrc != self.ssrc:
            if self.ssrc is not None and self._last_arrival is not None and now - self._last_arrival < SOURCE_GONE:
                return False
            self.ssrc = ssrc
            self._restart(decoder)
        elif decoder is not self._decoder:
            if self._next is not None:
                self._restart(decoder)
            self._decoder = decoder
        return True

    def _redundant(self, sequence: int, timestamp: int, offset: int, payload: bytes, payload_type: int, now: float) -> None:
        """Put an older frame in its place, if it is missing there."""
        units = self._frame * self._decoder.clock_rate // SAMPLE_RATE
        back = round(offset / units) if units else 0
        place = sequence - back
        if not payload or not 0 < back <= MAX_WAITING or self._decoders.get(payload_type) is not self._decoder:
            return
        if self._next is not None and place >= self._next and place not in self._buffer:
            self._buffer[place] = _Waiting(payload, timestamp - offset, now)
            self.stats.red += 1

    def _store(self, sequence: int, timestamp: int, payload: bytes, now: float) -> None:
        assert self._next is not None
        if sequence < self._next:
            given_up = self._given_up_at.pop(sequence, None)
            if given_up is None:
                self.stats.duplicate += 1
            else:
                self.stats.late += 1
                self.wait = min(WAIT_LONGEST, max(self.wait, self.wait + (now - given_up) + WAIT_MARGIN))
                self._reordered_at = now
            return
        if sequence in self._buffer:
            self.stats.duplicate += 1
            return
        if sequence - self._next > MAX_WAITING * 20:
            # Not a gap but another stream with the same SSRC: there is nothing to fill.
            self._buffer.clear()
            self._next = sequence
            self._expected_timestamp = None
        self._buffer[sequence] = _Waiting(payload, timestamp, now)

    # ---- what goes out ----------------------------------------------------------------------------------------------

    def _release(self, now: float) -> None:
        """Decode whatever is next, and give up gaps whose time is over."""
        while self._buffer:
            assert self._next is not None
            waiting = self._buffer.pop(self._next, None)
            if waiting is not None:
                self._play(waiting, now)
            else:
                first = min(self._buffer)
                full = len(self._buffer) > MAX_WAITING
                if now - self._buffer[first].arrival < self.wait and not full:
                    return
                self.stats.overflow += full
                self._fill_gap(first, now)

    def _play(self, waiting: _Waiting, now: float) -> None:
        assert self._next is not None
        self._next += 1
        self._skip_to(waiting.timestamp)
        pcm = self._decoder.decode(waiting.payload)
        if pcm is None:
            self.stats.damaged += 1
            pcm = self._decoder.conceal(self._frame)
        else:
            self.stats.decoded += 1
            self._frame = len(pcm) // 2
        self._lost_in_row = 0
        self._expected_timestamp = waiting.timestamp + self._units(len(pcm) // 2)
        held = now - waiting.arrival
        if held:
            self.stats.held_s = max(self.stats.held_s, held)
            self._held_now = max(self._held_now, held)
        self._heard(pcm)

    def _skip_to(self, timestamp: int) -> None:
        """Fill the time between the last packet and this one when the sender left it out."""
        if self._expected_timestamp is None:
            return
        missing = (timestamp - self._expected_timestamp) * SAMPLE_RATE // self._decoder.clock_rate
        missing -= self._filled
        self._filled = 0
        if missing >= FRAME_SAMPLES // 2:
            self._silence(min(missing, int(FILL_MOST * SAMPLE_RATE)))

    def _fill_gap(self, first: int, now: float) -> None:
        """The packets before `first` will not come: put something in their place."""
        assert self._next is not None
        following = self._buffer[first]
        lost = first - self._next
        if self._expected_timestamp is not None:
            # How much time the gap really holds: a sender that was silent sends fewer packets than it lets time pass.
            samples = (following.timestamp - self._expected_timestamp) * SAMPLE_RATE // self._decoder.clock_rate
        else:
            samples = lost * self._frame
        samples = max(0, min(samples - self._filled, int(FILL_MOST * SAMPLE_RATE)))
        self._filled = 0
        for sequence in range(max(self._next, first - MAX_WAITING), first):
            self._given_up_at[sequence] = now
        while len(self._given_up_at) > 2 * MAX_WAITING:
            del self._given_up_at[next(iter(self._given_up_at))]
        while samples >= FRAME_SAMPLES // 2:
            block = min(samples, self._frame)
            pcm = self._decoder.recover(block, following.payload) if samples <= self._frame else None
            if pcm is not None:
                self.stats.fec += 1
            elif self._lost_in_row < CONCEALED_MOST:
                pcm = self._decoder.conceal(block)
                self.stats.concealed += 1
            else:
                pcm = bytes(2 * block)
                self.stats.silent += 1
            self._lost_in_row += 1
            samples -= max(len(pcm) // 2, FRAME_SAMPLES // 8)
            self._heard(pcm)
        self._next = first
        self._expected_timestamp = following.timestamp

    def _silence(self, samples: int) -> None:
        self.stats.filled_samples += samples
        while samples > 0:
            block = min(samples, FRAME_SAMPLES)
            self._heard(SILENCE[: 2 * block])
            samples -= block

    def _units(self, samples: int) -> int:
        return samples * self._decoder.clock_rate // SAMPLE_RATE

    # ---- time passes ------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Give up gaps whose time is over though nothing came, and let a silent caller be heard as silence."""
        if self._last_arrival is None:
            return
        if self._buffer:
            self._release(now)
        if self.wait > WAIT_SHORTEST and now - self._reordered_at > WAIT_HALF_LIFE:
            self._reordered_at = now
            self.wait = max(WAIT_SHORTEST, self.wait / 2)
        if now - self._held_since >= 1.0:
            self._held_since, self._held_before, self._held_now = now, self._held_now, 0.0
        quiet = now - self._last_arrival
        if quiet > FILL_AFTER and not self._buffer and self._expected_timestamp is not None:
            due = int(min(quiet - FILL_AFTER, FILL_MOST) * SAMPLE_RATE) - self._filled
            if due >= FRAME_SAMPLES:
                self._filled += due
                self._silence(due)

    @property
    def held_s(self) -> float:
        """The longest that a packet has waited behind a gap in the last one to two seconds."""
        return max(self._held_now, self._held_before)

    # ---- reports ----------------------------------------------------------------------------------------------------

    def sender_report(self, report: SenderReport, now: float) -> None:
        """The caller's own report came."""
        if report.ssrc == self.ssrc:
            self._reception.sender_report(report, now)

    def report(self, now: float) -> ReportBlock | None:
        """What to tell the caller about its stream; None before its first packet."""
        return None if self.ssrc is None else self._reception.block(self.ssrc, now)

    @property
    def packets_lost(self) -> int:
        """As in the reports: what has not come, repaired or not."""
        return self._reception.packets_lost

    @property
    def jitter_s(self) -> float:
        return self._reception.jitter_s
