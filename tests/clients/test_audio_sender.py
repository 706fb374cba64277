"""The sender: frames on absolute deadlines, sounds mixed where they belong."""

import asyncio

import numpy as np
import pytest
from antiphon.clients.audio_sender import AudioSender
from antiphon.codecs.pcm import from_int16, to_int16


async def run_for(sender: AudioSender, seconds: float) -> None:
    task = asyncio.create_task(sender.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_frames_keep_to_absolute_deadlines_whatever_each_send_takes():
    times: list[float] = []
    loop = asyncio.get_running_loop()

    async def slow(frame: bytes) -> None:
        assert len(frame) == 960
        times.append(loop.time())
        await asyncio.sleep(0.008)

    sender = AudioSender(slow, frame_ms=20)
    await run_for(sender, 0.5)
    assert 22 <= len(times) <= 25
    assert times[-1] - times[0] == pytest.approx(0.02 * (len(times) - 1), abs=0.03)


async def test_what_is_said_lies_in_the_stream_where_the_sender_says():
    sender = AudioSender(lambda frame: asyncio.sleep(0), frame_ms=20)
    voice = from_int16(np.full(1000, 500))
    said = sender.say(voice, delay_ms=25)
    assert sender.speaking
    await run_for(sender, 0.15)
    track = to_int16(bytes(sender.sent))
    assert said.end - said.start == 1000
    assert (track[said.start : said.end] == 500).all()
    assert not track[: said.start].any()
    assert not track[said.end :].any()
    assert not sender.speaking


async def test_background_goes_on_beneath_and_clips():
    sender = AudioSender(lambda frame: asyncio.sleep(0), frame_ms=20)
    sender.background(from_int16([30_000, 100]))
    sender.say(from_int16([10_000] * 480))
    await run_for(sender, 0.1)
    track = to_int16(bytes(sender.sent))
    assert list(track[:4]) == [32_767, 10_100, 32_767, 10_100]
    assert list(track[480:484]) == [30_000, 100, 30_000, 100]


async def test_what_is_kept_is_bounded():
    sender = AudioSender(lambda frame: asyncio.sleep(0), frame_ms=10, keep_s=0.03)
    await run_for(sender, 0.12)
    assert len(sender.sent) == 3 * 480
    assert sender.position > 3 * 240


async def test_an_error_of_the_connection_comes_out_of_run():
    async def broken(frame: bytes) -> None:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await AudioSender(broken, frame_ms=10).run()


def test_a_frame_must_have_a_length():
    with pytest.raises(ValueError, match="positive"):
        AudioSender(lambda frame: asyncio.sleep(0), frame_ms=0)
