"""Reports: built, read back, and computed as RFC 3550 says; aiortc's parser agrees."""

from __future__ import annotations

from antiphon.gateway.transports.webrtc import rtcp
from hypothesis import given
from hypothesis import strategies as st

BLOCK = rtcp.ReportBlock(7, 0.25, -3, 70_000, 12, 0xABCD, 65_536)


def test_a_sender_report_is_read_back() -> None:
    report = rtcp.SenderReport(1, rtcp.ntp_now(1_700_000_000.5), 2, 3, 4, (BLOCK,))
    assert rtcp.parse(rtcp.build_sender_report(report, "name")) == [report]


def test_a_receiver_report_is_read_back_with_its_bye() -> None:
    assert rtcp.parse(rtcp.build_receiver_report(5, (BLOCK,), "x")) == [rtcp.ReceiverReport(5, (BLOCK,))]
    assert rtcp.parse(rtcp.build_bye(5, "x"))[-1] == rtcp.Bye((5,))


def test_another_implementation_reads_them() -> None:
    from aiortc.rtp import RtcpByePacket, RtcpPacket, RtcpSdesPacket, RtcpSrPacket

    report = rtcp.SenderReport(1, rtcp.ntp_now(), 2, 3, 4, (BLOCK,))
    sender, description = RtcpPacket.parse(rtcp.build_sender_report(report, "name"))
    assert isinstance(sender, RtcpSrPacket)
    assert sender.reports[0].packets_lost == -3
    assert isinstance(description, RtcpSdesPacket)
    assert isinstance(RtcpPacket.parse(rtcp.build_bye(5, "x"))[-1], RtcpByePacket)


@given(st.binary(max_size=120))
def test_anything_may_come(data: bytes) -> None:
    rtcp.parse(data)
    rtcp.parse(b"\x81\xc8\x00\x06" + data)


def test_loss_is_counted_between_reports() -> None:
    statistics = rtcp.ReceptionStatistics(48_000)
    assert statistics.block(1, 0.0) is None
    for number in range(100):
        if number % 10:
            statistics.packet(number, number * 960, number * 0.02)
    first = statistics.block(1, 2.0)
    assert first is not None
    assert round(first.fraction_lost, 2) == 0.09
    for number in range(100, 150):
        statistics.packet(number, number * 960, number * 0.02)
    second = statistics.block(1, 3.0)
    assert second is not None
    assert second.fraction_lost == 0
    assert second.packets_lost == first.packets_lost == statistics.packets_lost


def test_jitter_is_that_of_the_arrivals() -> None:
    even, uneven = rtcp.ReceptionStatistics(48_000), rtcp.ReceptionStatistics(48_000)
    for number in range(200):
        even.packet(number, number * 960, number * 0.02)
        uneven.packet(number, number * 960, number * 0.02 + (0.01 if number % 2 else 0))
    assert even.jitter_s < 0.0001
    assert 0.008 < uneven.jitter_s < 0.011
