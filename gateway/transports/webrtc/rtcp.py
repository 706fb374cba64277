"""RTCP (RFC 3550): sender and receiver reports, and the statistics that they carry."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass

SENDER_REPORT, RECEIVER_REPORT, DESCRIPTION, BYE = 200, 201, 202, 203
_NTP_EPOCH = 2_208_988_800
_BLOCK = struct.Struct("!IIIIII")
_SENDER = struct.Struct("!IIIII")


@dataclass(frozen=True, slots=True)
class ReportBlock:
    """What a receiver says of one stream. `fraction_lost` 0 to 1 since its last report; `jitter` in timestamp units."""

    ssrc: int
    fraction_lost: float
    packets_lost: int
    highest_sequence: int
    jitter: int
    last_sender_report: int
    delay: int
    """Since that sender report, in 1/65536 s."""


@dataclass(frozen=True, slots=True)
class SenderReport:
    """A sender's clock and counters, with what it says of our stream."""

    ssrc: int
    ntp: int
    timestamp: int
    packets: int
    octets: int
    blocks: tuple[ReportBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class ReceiverReport:
    """What a receiver says of our stream."""

    ssrc: int
    blocks: tuple[ReportBlock, ...]


@dataclass(frozen=True, slots=True)
class Bye:
    """These streams end."""

    ssrcs: tuple[int, ...]


Report = SenderReport | ReceiverReport | Bye


def parse(data: bytes) -> list[Report]:
    """The reports of a compound packet; other kinds are passed over, and what follows something malformed is ignored."""
    reports: list[Report] = []
    position = 0
    while position + 8 <= len(data) and data[position] >> 6 == 2:
        count, kind = data[position] & 31, data[position + 1]
        end = position + 4 + 4 * int.from_bytes(data[position + 2 : position + 4], "big")
        if end > len(data):
            break
        body = data[position + 4 : end]
        ssrc = int.from_bytes(body[:4], "big")
        if kind == SENDER_REPORT and len(body) >= 24 + 24 * count:
            high, low, timestamp, packets, octets = _SENDER.unpack_from(body, 4)
            reports.append(SenderReport(ssrc, high << 32 | low, timestamp, packets, octets, _blocks(body, 24, count)))
        elif kind == RECEIVER_REPORT and len(body) >= 4 + 24 * count:
            reports.append(ReceiverReport(ssrc, _blocks(body, 4, count)))
        elif kind == BYE and len(body) >= 4 * count:
            reports.append(Bye(struct.unpack_from(f"!{count}I", body)))
        position = end
    return reports


def _blocks(body: bytes, start: int, count: int) -> tuple[ReportBlock, ...]:
    blocks = []
    for index in range(count):
        ssrc, loss, highest, jitter, last, delay = _BLOCK.unpack_from(body, start + 24 * index)
        lost = loss & 0xFFFFFF
        blocks.append(ReportBlock(ssrc, (loss >> 24) / 256, lost - (lost >> 23 << 24), highest, jitter, last, delay))
    return tuple(blocks)


def build_sender_report(report: SenderReport, cname: str) -> bytes:
    """A compound packet: the report and the source's name."""
    head = struct.pack("!IIIIII", report.ssrc, report.ntp >> 32, report.ntp & 0xFFFFFFFF, report.timestamp, report.packets, report.octets)
    body = head + b"".join(_packed(block) for block in report.blocks)
    return _packet(SENDER_REPORT, len(report.blocks), body) + _description(report.ssrc, cname)


def build_receiver_report(ssrc: int, blocks: tuple[ReportBlock, ...], cname: str) -> bytes:
    """A compound packet: the report and the source's name."""
    body = ssrc.to_bytes(4, "big") + b"".join(_packed(block) for block in blocks)
    return _packet(RECEIVER_REPORT, len(blocks), body) + _description(ssrc, cname)


def build_bye(ssrc: int, cname: str) -> bytes:
    """A compound packet that ends a stream."""
    return build_receiver_report(ssrc, (), cname) + _packet(BYE, 1, ssrc.to_bytes(4, "big"))


def _packet(kind: int, count: int, body: bytes) -> bytes:
    return struct.pack("!BBH", 0x80 | count, kind, len(body) // 4) + body


def _packed(block: ReportBlock) -> bytes:
    lost = max(-0x800000, min(0x7FFFFF, block.packets_lost)) & 0xFFFFFF
    fraction = min(255, int(block.fraction_lost * 256))
    return _BLOCK.pack(
        block.ssrc, fraction << 24 | lost, block.highest_sequence & 0xFFFFFFFF, block.jitter, block.last_sender_report, block.delay
    )


def _description(ssrc: int, cname: str) -> bytes:
    name = cname.encode()[:255]
    item = ssrc.to_bytes(4, "big") + bytes([1, len(name)]) + name
    return _packet(DESCRIPTION, 1, item + bytes(4 - len(item) % 4))


def ntp_now(unix_time: float | None = None) -> int:
    """The time as a 64-bit NTP timestamp."""
    now = time.time() if unix_time is None else unix_time
    return int((now + _NTP_EPOCH) * (1 << 32)) & 0xFFFFFFFFFFFFFFFF


class ReceptionStatistics:
    """Loss and jitter of a received stream, as RFC 3550 A.3 and A.8 compute them. Sequence numbers come in unwrapped."""

    def __init__(self, clock_rate: int) -> None:
        self._clock_rate = clock_rate
        self._first: int | None = None
        self._highest = 0
        self._received = 0
        self._expected_before = 0
        self._received_before = 0
        self._transit: float | None = None
        self._jitter = 0.0
        self._report_ntp = 0
        self._report_at = 0.0

    def packet(self, sequence: int, timestamp: int, arrival: float) -> None:
        """A packet arrived at `arrival` (seconds)."""
        self._received += 1
        if self._first is None:
            self._first = self._highest = sequence
        elif sequence > self._highest:
            self._highest = sequence
        transit = arrival * self._clock_rate - timestamp
        if self._transit is not None:
            difference = abs(transit - self._transit)
            if difference < self._clock_rate * 5:
                self._jitter += (difference - self._jitter) / 16
        self._transit = transit

    def sender_report(self, report: SenderReport, now: float) -> None:
        """The sender's last report, for the round trip."""
        self._report_ntp = report.ntp >> 16 & 0xFFFFFFFF
        self._report_at = now

    @property
    def jitter_s(self) -> float:
        return self._jitter / self._clock_rate

    @property
    def packets_lost(self) -> int:
        return 0 if self._first is None else self._highest - self._first + 1 - self._received

    def block(self, ssrc: int, now: float) -> ReportBlock | None:
        """The report on the stream since the last call; None before its first packet."""
        if self._first is None:
            return None
        expected = self._highest - self._first + 1
        due, came = expected - self._expected_before, self._received - self._received_before
        self._expected_before, self._received_before = expected, self._received
        fraction = max(0.0, (due - came) / due) if due > 0 else 0.0
        delay = int((now - self._report_at) * 65536) & 0xFFFFFFFF if self._report_ntp else 0
        return ReportBlock(ssrc, fraction, expected - self._received, self._highest, int(self._jitter), self._report_ntp, delay)
