"""What an ear makes of audio: the server's own speech recogniser, asked through a transcription session of its own."""

from __future__ import annotations

from collections.abc import Mapping

from ..clients.call import Call
from ..clients.player import SimulatedPlayer
from ..clients.realtime import connect
from ..codecs.pcm import BYTES_PER_SAMPLE, SAMPLE_RATE, silence

PIECE = SAMPLE_RATE * BYTES_PER_SAMPLE
SHORTEST_MS = 200
"""Less than this holds no word."""


async def listen(url: str, recordings: Mapping[str, bytes]) -> dict[str, str]:
    """The words in each recording (24 kHz PCM), by its name. Raises `CallFailed`."""
    heard: dict[str, str] = {}
    client = await connect(url, model="antiphon-voice", intent="transcription")
    async with Call(client, SimulatedPlayer()) as call:
        audio = {"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}}
        await call.client.send({"type": "session.update", "session": {"type": "transcription", "audio": audio}})
        await call.wait_for(lambda event: event.type == "session.updated", timeout=10)
        for name, pcm in recordings.items():
            if len(pcm) < SHORTEST_MS * SAMPLE_RATE * BYTES_PER_SAMPLE // 1000:
                heard[name] = ""
                continue
            mark = len(call.events)
            padded = silence(200) + pcm + silence(400)
            for at in range(0, len(padded), PIECE):
                await client.send_audio(padded[at : at + PIECE])
            await client.send({"type": "input_audio_buffer.commit"})
            done = await call.wait_for(
                lambda event: event.type.startswith("conversation.item.input_audio_transcription.c"), timeout=30, since=mark
            )
            heard[name] = done.data["transcript"]
    return heard
