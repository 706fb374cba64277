"""The caller's audio through loss, reordering, silence and damage."""

from __future__ import annotations

import random

import numpy as np
import pytest
from antiphon.codecs import opus, pcm
from antiphon.gateway.transports.webrtc import rtp
from antiphon.gateway.transports.webrtc.media_receive import MAX_WAITING, WAIT_LONGEST, MediaReceiver
from antiphon.gateway.transports.webrtc.track_codecs import G711TrackDecoder, OpusTrackDecoder
from hypothesis import given, settings
from hypothesis import strategies as st

PT, RED, SSRC = 111, 63, 5
FRAME = 480


def speech(frames: int) -> list[bytes]:
    """Encoded frames of a buzz with FEC."""
    t = np.arange(frames * FRAME) / pcm.SAMPLE_RATE
    wave = sum(np.sin(2 * np.pi * 130 * k * t) / k for k in range(1, 15)) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * t)) * 0.2
    audio = pcm.from_float(wave.astype(np.float32))
    encoder = opus.OpusEncoder(dtx=False)
    encoder.protect(15)
    return [encoder.encode(audio[i * 960 : (i + 1) * 960]) for i in range(frames)]


PACKETS = speech(150)


class Call:
    """A receiver and a network under the test's control."""

    def __init__(self, red: bool = False) -> None:
        self.heard: list[bytes] = []
        self.receiver = MediaReceiver({PT: OpusTrackDecoder()}, self.heard.append, red_type=RED if red else None)
        self.now = 100.0

    @property
    def frames(self) -> float:
        return sum(map(len, self.heard)) / 960

    def arrive(
        self, number: int, payload: bytes | None = None, *, at: float | None = None, timestamp: int | None = None, ssrc: int = SSRC
    ) -> None:
        """Packet `number` of the stream arrives."""
        body = PACKETS[number % len(PACKETS)] if payload is None else payload
        stamp = number * 960 if timestamp is None else timestamp
        packet = rtp.parse(rtp.build(PT, False, 65_500 + number, stamp, ssrc, body))
        assert packet is not None
        self.receiver.packet(packet, self.now if at is None else at)

    def run(self, numbers: list[int]) -> None:
        """Packets at an even 20 ms, ticks between them."""
        for number in numbers:
            self.now += 0.02
            self.arrive(number)
            self.receiver.tick(self.now + 0.01)


def test_packets_in_order_are_heard_the_moment_they_come() -> None:
    call = Call()
    for number in range(50):
        call.now += 0.02
        call.arrive(number)
        assert call.frames == number + 1
    assert call.receiver.stats.held_s == 0


def test_a_single_loss_is_recovered_from_the_next_packet_within_a_frame() -> None:
    call = Call()
    call.run([n for n in range(100) if n != 50])
    assert call.frames == 100
    assert call.receiver.stats.fec == 1
    assert call.receiver.stats.concealed == 0
    assert call.receiver.stats.held_s <= 0.031


def test_loss_at_every_rate_leaves_the_clock_right() -> None:
    for loss in (0.02, 0.05, 0.1, 0.3):
        call, generator = Call(), random.Random(1)
        numbers = [n for n in range(400) if n in (0, 399) or generator.random() > loss]
        call.run(numbers)
        for _ in range(4):
            call.now += 0.02
            call.receiver.tick(call.now)
        assert abs(call.frames - 400) <= 1
        stats = call.receiver.stats
        assert stats.decoded == len(numbers)
        assert stats.fec + stats.concealed + stats.silent == pytest.approx(400 - len(numbers), abs=1)


def test_reordered_packets_are_put_in_order_and_the_wait_grows_no_longer_than_allowed() -> None:
    call = Call()
    order = list(range(200))
    for index in range(10, 190, 7):
        order[index], order[index + 1] = order[index + 1], order[index]
    call.run(order)
    assert call.frames == 200
    assert call.receiver.stats.decoded >= 198
    assert call.receiver.wait <= WAIT_LONGEST


def test_the_wait_shrinks_again_when_the_network_is_in_order() -> None:
    call = Call()
    call.run([0, 1, 2, 3, 7, 8, 9])
    call.arrive(4)
    assert call.receiver.wait > 0.02
    call.run(list(range(10, 400)))
    assert call.receiver.wait == pytest.approx(0.02)


def test_a_burst_does_not_leave_delay_behind() -> None:
    """A loss of 8 frames, then a stall of 300 ms: two seconds later nothing is held."""
    call = Call()
    call.run([n for n in range(100) if not 40 <= n < 48])
    for number in range(100, 115):
        call.arrive(number, at=call.now + 0.3)
    call.now += 0.3
    call.receiver.stats.held_s = 0
    call.run(list(range(115, 215)))
    assert call.receiver.stats.held_s == 0
    assert abs(call.frames - 215) <= 16


def test_redundant_audio_repairs_single_losses_bit_by_bit() -> None:
    def red(number: int) -> bytes:
        return rtp.build_red(PT, PACKETS[number], [(960, PACKETS[number - 1])] if number else [])

    whole, call = Call(), Call(red=True)
    whole.run(list(range(100)))
    for number in range(100):
        call.now += 0.02
        if number % 7 != 3:
            packet = rtp.parse(rtp.build(RED, False, number, number * 960, SSRC, red(number)))
            assert packet is not None
            call.receiver.packet(packet, call.now)
    assert b"".join(call.heard) == b"".join(whole.heard)
    assert call.receiver.stats.red == 14
    assert call.receiver.stats.held_s == 0


def test_a_long_loss_becomes_silence_after_five_concealed_frames() -> None:
    call = Call()
    call.run([*range(50), *range(70, 100)])
    assert call.frames == 100
    assert call.receiver.stats.concealed == 5
    assert call.receiver.stats.silent + call.receiver.stats.fec == 15


def test_time_that_the_sender_left_out_is_silence() -> None:
    call = Call()
    call.run(list(range(10)))
    for number in range(10, 20):
        call.now += 0.02
        call.arrive(number, timestamp=(number + 25) * 960)
    assert call.frames == 45
    assert call.receiver.stats.filled_samples == 25 * FRAME


def test_a_caller_who_sends_nothing_is_heard_as_silence_in_real_time_and_not_twice() -> None:
    call = Call()
    call.run(list(range(10)))
    for _ in range(50):
        call.now += 0.02
        call.receiver.tick(call.now)
    assert 35 <= call.frames - 10 <= 45
    for number in range(10, 20):
        call.now += 0.02
        call.arrive(number, timestamp=(number + 50) * 960)
    assert abs(call.frames - 70) <= 1


def test_a_silence_of_hours_does_not_fill_the_house() -> None:
    call = Call()
    call.run(list(range(10)))
    for _ in range(100):
        call.now += 60
        call.receiver.tick(call.now)
    call.arrive(10, timestamp=48_000 * 6000)
    assert call.frames < 10 + 2 * 100 + 2


def test_late_and_double_packets_are_counted_and_not_heard() -> None:
    call = Call()
    call.run([0, 1, 2, 4, 5, 6])
    call.arrive(3)
    call.arrive(5)
    assert call.frames == 7
    assert (call.receiver.stats.late, call.receiver.stats.duplicate) == (1, 1)


def test_the_buffer_behind_a_gap_is_bounded() -> None:
    call = Call()
    call.run([0])
    for number in range(10, 10 + 3 * MAX_WAITING):
        call.arrive(number)  # all at once, as after a stall
    assert call.receiver.stats.overflow >= 1
    assert len(call.receiver._buffer) <= MAX_WAITING + 1


def test_foreign_payloads_and_sources_are_ignored_until_the_source_is_gone() -> None:
    call = Call()
    call.run(list(range(5)))
    call.arrive(5, ssrc=6)
    assert call.receiver.stats.foreign == 1
    packet = rtp.parse(rtp.build(96, False, 1, 1, SSRC, b"video"))
    assert packet is not None
    call.receiver.packet(packet, call.now)
    assert call.receiver.stats.foreign == 2
    call.now += 1
    call.arrive(900, ssrc=6)
    assert call.receiver.ssrc == 6
    assert call.frames == 6


def test_damaged_packets_are_concealed() -> None:
    call = Call()
    call.run(list(range(5)))
    call.now += 0.02
    call.arrive(5, payload=b"\xff\xff\xff")
    assert call.receiver.stats.damaged == 1
    assert call.frames == 6


def test_g711_is_heard_at_24_khz() -> None:
    from antiphon.codecs import g711

    heard: list[bytes] = []
    receiver = MediaReceiver({0: G711TrackDecoder("PCMU")}, heard.append)
    tone = pcm.from_float(0.3 * np.sin(2 * np.pi * 440 * np.arange(8000) / 8000).astype(np.float32))
    data = g711.encode_mu_law(tone)
    for number in range(50):
        if number == 20:
            continue
        packet = rtp.parse(rtp.build(0, False, number, number * 160, SSRC, data[number * 160 : (number + 1) * 160]))
        assert packet is not None
        receiver.packet(packet, 100 + number * 0.02)
        receiver.tick(100.01 + number * 0.02)
    assert abs(sum(map(len, heard)) / 48_000 - 1.0) < 0.01
    assert receiver.stats.concealed == 1
    assert pcm.rms(b"".join(heard)) > 0.15


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 40), st.booleans()), max_size=80))
def test_whatever_order_packets_come_in_the_receiver_keeps_its_bounds(steps: list[tuple[int, int, bool]]) -> None:
    call = Call()
    for number, wait, damaged in steps:
        call.now += wait / 1000
        call.arrive(number, payload=b"\xff\x00\x01" if damaged else None)
        call.receiver.tick(call.now)
        assert len(call.receiver._buffer) <= MAX_WAITING + 1
        assert all(len(block) % 2 == 0 for block in call.heard)
    assert call.frames <= 121 + 2 * 100 + len(steps)
