"""Opus through libopus: round trips, silence, loss and damage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from antiphon.codecs import opus, pcm

FRAME = 480


def voice_like(seconds: float, seed: int = 1) -> bytes:
    """A buzz with moving formants: speech enough for the hybrid mode to code it as speech."""
    t = np.arange(int(seconds * pcm.SAMPLE_RATE)) / pcm.SAMPLE_RATE
    pitch = 120 + 20 * np.sin(2 * math.pi * 0.7 * t)
    phase = 2 * math.pi * np.cumsum(pitch) / pcm.SAMPLE_RATE
    wave = sum(np.sin(k * phase) / k for k in range(1, 20)) * (0.6 + 0.4 * np.sin(2 * math.pi * 3 * t))
    return pcm.from_float((0.2 * wave + 0.002 * np.random.default_rng(seed).standard_normal(len(t))).astype(np.float32))


def frames(audio: bytes) -> list[bytes]:
    step = 2 * FRAME
    return [audio[i : i + step] for i in range(0, len(audio) - step + 1, step)]


def best_snr(reference: bytes, heard: bytes) -> float:
    """Signal to noise in dB at the best delay up to 20 ms."""
    a, b = pcm.to_float(reference), pcm.to_float(heard)
    n = min(len(a), len(b)) - 960
    best = -99.0
    for delay in range(0, 480, 1):
        error = a[:n] - b[delay : delay + n]
        best = max(best, 10 * math.log10(float(np.dot(a[:n], a[:n])) / (float(np.dot(error, error)) + 1e-9)))
    return best


def test_a_round_trip_keeps_the_length_and_the_sound() -> None:
    audio = voice_like(1.0)
    encoder, decoder = opus.OpusEncoder(), opus.OpusDecoder()
    heard = b"".join(decoder.decode(encoder.encode(frame)) for frame in frames(audio))
    assert len(heard) == len(audio)
    assert best_snr(audio, heard) > 10


@pytest.mark.parametrize("loss", [0, 10])
def test_both_modes_code_20_ms_frames_below_the_bitrate_of_pcm(loss: int) -> None:
    encoder = opus.OpusEncoder(bitrate=40_000)
    encoder.protect(loss)
    assert encoder.mode is (opus.Mode.HYBRID if loss else opus.Mode.CELT)
    packets = [encoder.encode(frame) for frame in frames(voice_like(1.0))]
    assert all(opus.packet_samples(packet) == FRAME for packet in packets)
    assert sum(map(len, packets)) * 8 < 64_000
    celt_only = all(packet[0] >> 3 >= 16 for packet in packets[5:])
    assert celt_only is (loss == 0)


def test_silence_becomes_discontinuous_and_speech_ends_it() -> None:
    encoder = opus.OpusEncoder()
    for frame in frames(voice_like(0.4)):
        encoder.encode(frame)
    sizes = [len(encoder.encode(bytes(2 * FRAME))) for _ in range(30)]
    assert min(sizes) <= 2
    assert sizes.index(min(sizes)) <= 16
    assert len(encoder.encode(frames(voice_like(0.1))[2])) > 10


def test_a_lost_frame_is_recovered_from_the_next_packet() -> None:
    encoder, decoder, blind = opus.OpusEncoder(bitrate=40_000), opus.OpusDecoder(), opus.OpusDecoder()
    encoder.protect(20)
    source = frames(voice_like(2.0))
    packets = [encoder.encode(frame) for frame in source]
    lost = next(i for i in range(40, len(packets) - 1) if opus.has_fec(packets[i + 1]))
    whole = opus.OpusDecoder()
    truth = b"".join(whole.decode(packet) for packet in packets)
    for packet in packets[:lost]:
        decoder.decode(packet)
        blind.decode(packet)
    recovered = decoder.recover(packets[lost + 1], FRAME)
    concealed = blind.conceal(FRAME)
    want = pcm.to_float(truth[lost * 2 * FRAME : (lost + 1) * 2 * FRAME])

    def error(block: bytes) -> float:
        return float(np.abs(pcm.to_float(block) - want).mean())

    assert len(recovered) == len(concealed) == 2 * FRAME
    assert error(recovered) < error(concealed)


def test_concealment_fades_away() -> None:
    encoder, decoder = opus.OpusEncoder(), opus.OpusDecoder()
    for frame in frames(voice_like(0.5)):
        decoder.decode(encoder.encode(frame))
    levels = [pcm.rms(decoder.conceal(FRAME)) for _ in range(25)]
    assert levels[0] > 0.01
    assert levels[-1] < levels[0] / 2


def test_damage_is_an_error_and_the_decoder_lives_on() -> None:
    encoder, decoder = opus.OpusEncoder(), opus.OpusDecoder()
    good = encoder.encode(frames(voice_like(0.1))[0])
    for packet in (b"", bytes([0xFF, 0xFF, 0xFF]), bytes([0x03])):
        with pytest.raises(opus.OpusError):
            decoder.decode(packet)
    assert len(decoder.decode(good)) == 2 * FRAME


def test_a_frame_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(opus.OpusError, match="960 bytes"):
        opus.OpusEncoder().encode(bytes(100))


def test_random_bytes_never_crash_the_decoder() -> None:
    decoder, generator = opus.OpusDecoder(), np.random.default_rng(7)
    for _ in range(300):
        packet = generator.bytes(int(generator.integers(1, 400)))
        try:
            decoder.decode(packet)
        except opus.OpusError:
            decoder.conceal(FRAME)


def test_the_library_says_its_version() -> None:
    assert "libopus" in opus.version()
