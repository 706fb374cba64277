"""RTP packets (RFC 3550) and redundant audio (RFC 2198), as far as a voice call needs them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

HEADER = struct.Struct("!BBHII")
MARKER = 0x80
_EXTENSION = struct.Struct("!HH")


class RtpPacket(NamedTuple):
    """A packet's header fields and payload. `sequence` has 16 bits, `timestamp` and `ssrc` 32."""

    payload_type: int
    marker: bool
    sequence: int
    timestamp: int
    ssrc: int
    payload: bytes


def is_rtcp(data: bytes) -> bool:
    """Whether a datagram of the RTP range (first byte 128 to 191) is RTCP (RFC 5761)."""
    return len(data) >= 2 and 192 <= data[1] <= 223


def parse(data: bytes) -> RtpPacket | None:
    """A packet, or None for what is not one: lengths are checked, nothing is trusted."""
    if len(data) < HEADER.size:
        return None
    first, second, sequence, timestamp, ssrc = HEADER.unpack_from(data)
    if first >> 6 != 2:
        return None
    start = HEADER.size + 4 * (first & 15)
    if first & 0x10:
        if len(data) < start + 4:
            return None
        start += 4 + 4 * _EXTENSION.unpack_from(data, start)[1]
    end = len(data)
    if first & 0x20:
        end -= data[-1]
    if start > end:
        return None
    return RtpPacket(second & 0x7F, bool(second & MARKER), sequence, timestamp, ssrc, data[start:end])


def build(payload_type: int, marker: bool, sequence: int, timestamp: int, ssrc: int, payload: bytes) -> bytes:
    """A packet without extensions."""
    return HEADER.pack(0x80, (MARKER if marker else 0) | payload_type, sequence & 0xFFFF, timestamp & 0xFFFFFFFF, ssrc) + payload


@dataclass(frozen=True, slots=True)
class RedBlock:
    """A block of a redundant payload; `offset` is how much older than the packet it is, in timestamp units (0: the primary)."""

    payload_type: int
    offset: int
    payload: bytes


def parse_red(payload: bytes) -> list[RedBlock]:
    """The blocks of an RFC 2198 payload, the primary last; an empty list for what is not one."""
    headers: list[tuple[int, int, int]] = []
    position = 0
    while True:
        if position >= len(payload):
            return []
        first = payload[position]
        if not first & 0x80:
            position += 1
            break
        if position + 4 > len(payload):
            return []
        word = int.from_bytes(payload[position + 1 : position + 4], "big")
        headers.append((first & 0x7F, word >> 10, word & 0x3FF))
        position += 4
    blocks = []
    for payload_type, offset, length in headers:
        if position + length > len(payload):
            return []
        blocks.append(RedBlock(payload_type, offset, payload[position : position + length]))
        position += length
    blocks.append(RedBlock(first & 0x7F, 0, payload[position:]))
    return blocks


def build_red(primary_type: int, payload: bytes, older: list[tuple[int, bytes]]) -> bytes:
    """A redundant payload: `older` holds (offset in timestamp units, payload), the oldest first; blocks above 1023 bytes or
    offsets above 14 bits are left out."""
    kept = [(offset, block) for offset, block in older if 0 < offset < 1 << 14 and 0 < len(block) < 1 << 10]
    heads = b"".join(bytes([0x80 | primary_type]) + (offset << 10 | len(block)).to_bytes(3, "big") for offset, block in kept)
    return heads + bytes([primary_type]) + b"".join(block for _, block in kept) + payload


class Unwrapper:
    """Makes 16-bit sequence numbers (or 32-bit timestamps) count on beyond their width."""

    def __init__(self, bits: int) -> None:
        self._modulus = 1 << bits
        self._last: int | None = None

    def unwrap(self, value: int) -> int:
        """The number nearest to the last one that is `value` modulo 2^bits."""
        if self._last is None:
            self._last = value
            return value
        half = self._modulus >> 1
        unwrapped = self._last + ((value - self._last + half) % self._modulus) - half
        self._last = max(self._last, unwrapped)
        return unwrapped
