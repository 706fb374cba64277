"""Microphone and loudspeaker, by the `sounddevice` package (extra `mic`)."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections import deque
from types import ModuleType, TracebackType
from typing import Any, Self

from ..codecs.pcm import BYTES_PER_SAMPLE, SAMPLE_RATE
from .errors import NoSoundCard
from .player import SimulatedPlayer

QUEUE_FRAMES = 100
"""Frames of the microphone that may wait for the network (2 s); beyond that the oldest is dropped and counted."""


def sounddevice() -> ModuleType:
    """The `sounddevice` module. Raises `NoSoundCard` with the command that installs it."""
    try:
        return importlib.import_module("sounddevice")
    except ImportError as error:
        raise NoSoundCard(
            "The microphone needs the extra 'mic': pip install 'antiphon[mic]'. (Or speak a file: antiphon talk --file question.wav)"
        ) from error
    except OSError as error:
        raise NoSoundCard(f"The PortAudio library is missing ({error}). On Debian and Ubuntu: sudo apt install libportaudio2") from error


class SoundCard:
    """The default microphone and loudspeaker, open while the context lasts. Wear headphones: there is no echo cancellation.

    `frame()` gives the microphone's next 20 ms of PCM. `player` is what a `Call` plays on.
    """

    def __init__(self, frame_ms: int = 20) -> None:
        self._module = sounddevice()
        self._samples = frame_ms * SAMPLE_RATE // 1000
        self._frames: deque[bytes] = deque(maxlen=QUEUE_FRAMES)
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._streams: list[Any] = []
        self.dropped = 0
        self.player = LoudPlayer()

    async def __aenter__(self) -> Self:
        options = {"samplerate": SAMPLE_RATE, "channels": 1, "dtype": "int16"}
        try:
            self._streams.append(self._module.RawInputStream(blocksize=self._samples, callback=self._recorded, **options))
            self._streams.append(self._module.RawOutputStream(callback=self._wanted, latency="low", **options))
            for stream in self._streams:
                stream.start()
        except self._module.PortAudioError as error:
            self._close()
            raise NoSoundCard(f"The sound card cannot be opened: {error}") from error
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    async def frame(self) -> bytes:
        """The next frame from the microphone."""
        while not self._frames:
            self._arrived.clear()
            await self._arrived.wait()
        return self._frames.popleft()

    def _close(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    def _recorded(self, data: Any, frames: int, time: Any, status: Any) -> None:  # on the sound card's thread
        self._loop.call_soon_threadsafe(self._keep, bytes(data))

    def _keep(self, frame: bytes) -> None:
        self.dropped += len(self._frames) == QUEUE_FRAMES
        self._frames.append(frame)
        self._arrived.set()

    def _wanted(self, data: Any, frames: int, time: Any, status: Any) -> None:  # on the sound card's thread
        data[:] = self.player.pull(frames * BYTES_PER_SAMPLE)


class LoudPlayer(SimulatedPlayer):
    """A `Player` whose audio can also be heard: the sound card's thread pulls it. The ledger of what was heard is the simulated
    player's, which runs ahead of the loudspeaker by the card's own latency (some 10 ms)."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._queue: deque[bytes] = deque()  # bounded by the server's lead (500 ms) and cleared by `stop`

    def play(self, item_id: str, content_index: int, pcm: bytes, now: float) -> bool:
        """See `Player.play`."""
        taken = super().play(item_id, content_index, pcm, now)
        if taken:
            with self._lock:
                self._queue.append(pcm)
        return taken

    def stop(self, now: float) -> Any:
        """See `Player.stop`."""
        with self._lock:
            self._queue.clear()
        return super().stop(now)

    def pull(self, size: int) -> bytes:
        """The next `size` bytes for the loudspeaker, filled up with silence."""
        with self._lock:
            parts: list[bytes] = []
            wanted = size
            while wanted and self._queue:
                piece = self._queue.popleft()
                if len(piece) > wanted:
                    self._queue.appendleft(piece[wanted:])
                    piece = piece[:wanted]
                parts.append(piece)
                wanted -= len(piece)
        return b"".join(parts) + bytes(wanted)
