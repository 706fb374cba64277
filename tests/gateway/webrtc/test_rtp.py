"""RTP packets and redundant audio: what is built is read back, and nothing malformed gets through."""

from __future__ import annotations

from antiphon.gateway.transports.webrtc import rtp
from hypothesis import given
from hypothesis import strategies as st


def test_a_packet_is_read_back_as_it_was_built() -> None:
    packet = rtp.parse(rtp.build(111, True, 65_537, 2**32 + 5, 99, b"abc"))
    assert packet == rtp.RtpPacket(111, True, 1, 5, 99, b"abc")


def test_extensions_sources_and_padding_are_passed_over() -> None:
    head = bytes([0x80 | 0x20 | 0x10 | 1, 96]) + bytes(10)
    extension = b"\xbe\xde\x00\x01" + b"\x10\xaa\x00\x00"
    assert rtp.parse(head + b"\0\0\0\1" + extension + b"payload" + b"\0\0\3").payload == b"payload"  # type: ignore[union-attr]


@given(st.binary(max_size=80))
def test_anything_is_a_packet_or_nothing(data: bytes) -> None:
    packet = rtp.parse(data)
    assert packet is None or len(packet.payload) <= len(data)
    rtp.parse_red(data)


@given(
    primary=st.binary(max_size=200),
    older=st.lists(st.tuples(st.integers(1, (1 << 14) - 1), st.binary(min_size=1, max_size=300)), max_size=3),
)
def test_redundant_audio_is_read_back(primary: bytes, older: list[tuple[int, bytes]]) -> None:
    blocks = rtp.parse_red(rtp.build_red(111, primary, older))
    assert [(b.offset, b.payload) for b in blocks] == [*older, (0, primary)]
    assert {b.payload_type for b in blocks} == {111}


@given(st.integers(0, 1 << 40), st.lists(st.integers(-2000, 2000), max_size=60))
def test_sequence_numbers_count_on_beyond_their_width(start: int, steps: list[int]) -> None:
    unwrapper, value = rtp.Unwrapper(16), start
    offset = unwrapper.unwrap(value & 0xFFFF) - value
    highest = value
    for step in steps:
        value = highest + step
        assert unwrapper.unwrap(value & 0xFFFF) - value == offset
        highest = max(highest, value)


def test_rtcp_is_told_from_media() -> None:
    assert rtp.is_rtcp(bytes([0x80, 200])) is True
    assert rtp.is_rtcp(rtp.build(111, True, 1, 1, 1, b"")) is False
    assert rtp.is_rtcp(b"\x80") is False
