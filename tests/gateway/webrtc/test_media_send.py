"""The server's audio: even RTP time, silence, purges that fade, protection while packets are lost."""

from __future__ import annotations

import itertools
import random

import numpy as np
from antiphon.codecs import opus, pcm
from antiphon.gateway.transports.webrtc import rtp
from antiphon.gateway.transports.webrtc.media_send import MediaSender
from antiphon.gateway.transports.webrtc.rtcp import ReportBlock
from antiphon.gateway.transports.webrtc.track_codecs import FRAME_BYTES, G711TrackEncoder, OpusTrackEncoder, TrackEncoder
from hypothesis import given, settings
from hypothesis import strategies as st

TONE = pcm.from_float(0.4 * np.sin(2 * np.pi * 440 * np.arange(24_000) / 24_000).astype(np.float32))


class PlainEncoder:
    """Payloads that are the PCM itself, to look into."""

    clock_rate = 48_000
    discontinuous = True

    def encode(self, frame: bytes) -> bytes:
        assert len(frame) == FRAME_BYTES
        return frame if any(frame) else b"\0"

    def protect(self, loss_percent: int) -> None:
        pass


class Track:
    """A sender and everything that left it."""

    def __init__(self, encoder: TrackEncoder | None = None, red: int | None = None) -> None:
        self.packets: list[rtp.RtpPacket] = []
        self.delivered: list[tuple[str, int]] = []
        self.encoder = encoder or PlainEncoder()
        self.sender = MediaSender(
            self.encoder,
            payload_type=111,
            red_type=red,
            send=self._leave,
            delivered=lambda response, samples: self.delivered.append((response, samples)),
            max_samples=48_000,
            generator=random.Random(1),
        )
        self.now = 0.0

    def _leave(self, data: bytes) -> bool:
        packet = rtp.parse(data)
        assert packet is not None
        self.packets.append(packet)
        return True

    def tick(self, count: int = 1, missed: int = 0) -> None:
        for _ in range(count):
            self.now += 0.02
            self.sender.tick(self.now, missed)


def test_every_tick_carries_a_frame_and_time_steps_evenly() -> None:
    track = Track()
    track.sender.play(TONE, epoch=0, response_id="r")
    track.tick(50)
    stamps = [packet.timestamp for packet in track.packets]
    assert {(b - a) % 2**32 for a, b in itertools.pairwise(stamps)} == {960}
    assert [packet.marker for packet in track.packets] == [True] + 49 * [False]
    assert b"".join(packet.payload for packet in track.packets) == TONE
    assert sum(samples for _, samples in track.delivered) == 24_000
    assert track.sender.queued == 0


def test_missed_ticks_are_skipped_in_time_not_sent_at_once() -> None:
    track = Track()
    track.sender.play(TONE)
    track.tick()
    track.tick(missed=7)
    assert len(track.packets) == 2
    assert (track.packets[1].timestamp - track.packets[0].timestamp) % 2**32 == 8 * 960
    assert track.packets[1].sequence == track.packets[0].sequence + 1


def test_silence_is_discontinuous_and_speech_resumes_with_a_marker() -> None:
    track = Track(OpusTrackEncoder(bitrate=48_000, complexity=5))
    track.sender.play(TONE)
    track.tick(50)
    track.packets.clear()
    track.tick(200)
    assert len(track.packets) <= 40
    assert [len(packet.payload) for packet in track.packets[-8:]] == 8 * [len(track.packets[-1].payload)]
    assert len(track.packets[-1].payload) <= 2
    track.packets.clear()
    track.sender.play(TONE)
    track.tick()
    assert track.packets[0].marker


def test_g711_is_160_bytes_a_frame_and_never_discontinuous() -> None:
    track = Track(G711TrackEncoder("PCMA"))
    track.sender.play(TONE)
    track.tick(120)
    assert {len(packet.payload) for packet in track.packets} == {160}
    assert len(track.packets) == 120
    assert (track.packets[1].timestamp - track.packets[0].timestamp) % 2**32 == 160


def test_a_purge_leaves_one_frame_that_fades_within_5_ms() -> None:
    track = Track()
    track.sender.play(TONE, epoch=3, response_id="old")
    track.tick(10)
    purged = track.sender.purge(4)
    sent = sum(samples for _, samples in track.delivered)
    assert purged.samples == 24_000 - sent
    assert track.sender.queued == 0
    track.packets.clear()
    track.tick(3)
    tail = pcm.to_int16(track.packets[0].payload)
    assert np.abs(tail[:60]).max() > 1000
    assert not tail[120:].any()
    assert track.packets[1].payload == b"\0"
    assert sum(samples for _, samples in track.delivered) == sent


def test_stale_audio_is_not_even_queued_and_other_audio_stays() -> None:
    track = Track()
    track.sender.play(TONE[:960], epoch=None, response_id="aside")
    track.sender.play(TONE[:960], epoch=1, response_id="old")
    track.sender.purge(2)
    track.sender.play(TONE[:960], epoch=1, response_id="old")
    track.sender.play(TONE[:960], epoch=2, response_id="new")
    track.tick(5)
    assert track.delivered == [("aside", 480), ("new", 480)]


def test_nothing_is_taken_while_the_caller_may_be_gone() -> None:
    track = Track()
    track.sender.play(TONE, epoch=0, response_id="r")
    track.sender.paused = True
    track.tick(20)
    assert track.delivered == []
    track.sender.paused = False
    track.tick(50)
    assert sum(samples for _, samples in track.delivered) == 24_000


def test_the_queue_is_bounded() -> None:
    track = Track()
    for _ in range(5):
        track.sender.play(TONE)
    assert track.sender.queued == 48_000
    assert track.sender.stats.refused_samples == 72_000


def test_reported_loss_turns_protection_on_and_its_end_off() -> None:
    encoder = OpusTrackEncoder(bitrate=48_000, complexity=5)
    track = Track(encoder)

    def report(loss: float, at: float) -> None:
        track.sender.reported(ReportBlock(track.sender.ssrc, loss, 0, 0, 0, 0, 0), at)

    assert encoder.mode is opus.Mode.CELT
    report(0.01, 0)
    assert encoder.mode is opus.Mode.CELT
    report(0.08, 1)
    assert encoder.mode is opus.Mode.HYBRID
    report(0.0, 5)
    assert encoder.mode is opus.Mode.HYBRID
    report(0.0, 12)
    assert encoder.mode is opus.Mode.CELT
    track.sender.reported(ReportBlock(track.sender.ssrc + 1, 0.5, 0, 0, 0, 0, 0), 13)
    assert encoder.mode is opus.Mode.CELT


def test_protected_speech_carries_copies_for_callers_without_redundant_audio() -> None:
    t = np.arange(48_000) / 24_000
    phase = 2 * np.pi * np.cumsum(125 + 25 * np.sin(2 * np.pi * 0.6 * t)) / 24_000
    speech = sum(np.sin(k * phase) / k for k in range(1, 20)) * (0.55 + 0.45 * np.sin(2 * np.pi * 3.5 * t)) * 0.2
    track = Track(OpusTrackEncoder(bitrate=48_000, complexity=5))
    track.sender.play(pcm.from_float(speech.astype(np.float32)))
    track.tick(20)
    assert not any(opus.has_fec(packet.payload) for packet in track.packets)
    track.sender.reported(ReportBlock(track.sender.ssrc, 0.03, 0, 0, 0, 0, 0), 1)
    mark = len(track.packets)
    track.tick(75)
    assert sum(opus.has_fec(packet.payload) for packet in track.packets[mark:]) > 37


def test_while_packets_are_lost_each_carries_the_frame_before_it() -> None:
    track = Track(red=63)
    track.sender.play(TONE)
    track.tick(2)
    assert {packet.payload_type for packet in track.packets} == {111}
    track.sender.reported(ReportBlock(track.sender.ssrc, 0.1, 0, 0, 0, 0, 0), 1)
    track.tick(3)
    assert [packet.payload_type for packet in track.packets[2:]] == 3 * [63]
    for before, packet in itertools.pairwise(track.packets[1:]):
        older, primary = rtp.parse_red(packet.payload)
        assert (older.offset, older.payload_type, primary.payload_type) == (960, 111, 111)
        assert older.payload == (rtp.parse_red(before.payload)[-1].payload if before.payload_type == 63 else before.payload)
    track.sender.reported(ReportBlock(track.sender.ssrc, 0.0, 0, 0, 0, 0, 0), 12)
    track.tick()
    assert track.packets[-1].payload_type == 111


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("play"), st.integers(1, 3000)),
            st.tuples(st.just("tick"), st.integers(1, 6)),
            st.tuples(st.just("fence"), st.just(0)),
        ),
        max_size=60,
    )
)
def test_after_a_fence_nothing_old_leaves_but_the_fade(steps: list[tuple[str, int]]) -> None:
    """Every epoch's audio has its own value: a frame of an older epoch after the fence may only be the one that fades."""
    track, epoch, fenced_at = Track(), 1, 0
    for what, count in steps:
        if what == "play":
            track.sender.play(int(epoch * 100).to_bytes(2, "little") * count, epoch=epoch, response_id=str(epoch))
        elif what == "tick":
            for _ in range(count):
                before = len(track.packets)
                track.tick()
                for packet in track.packets[before:]:
                    samples = pcm.to_int16(packet.payload) if len(packet.payload) > 1 else np.zeros(1, np.int16)
                    stale = samples[(samples != 0) & (samples < epoch * 100)]
                    assert len(stale) <= 120
                    if len(stale):
                        assert len(track.packets) - fenced_at == 1
        else:
            epoch += 1
            track.sender.purge(epoch)
            fenced_at = len(track.packets)
        assert track.sender.queued == sum(piece.left for piece in track.sender._pieces) // 2
