"""A server as one would write it with aiortc alone, to measure ours against: it speaks all the time and listens to everything.

`python -m antiphon.scenarios.stock_server` prints its address when it is ready.
"""

from __future__ import annotations

import asyncio
import fractions
import time

import av
import numpy as np
import uvicorn
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError, MediaStreamTrack
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..codecs.pcm import SAMPLE_RATE

FRAME = SAMPLE_RATE // 50


class Speech(AudioStreamTrack):
    """A tone of 24 kHz, 20 ms at a time, paced by the clock: what a text-to-speech engine's output would be."""

    def __init__(self) -> None:
        super().__init__()
        wave = 0.3 * 32767 * np.sin(2 * np.pi * 220 * np.arange(SAMPLE_RATE) / SAMPLE_RATE)
        self._pcm = wave.astype("<i2").tobytes()
        self._position = 0
        self._began = time.monotonic()

    async def recv(self) -> av.AudioFrame:
        wait = self._began + self._position / SAMPLE_RATE - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        start = 2 * (self._position % SAMPLE_RATE)
        frame = av.AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update(self._pcm[start : start + 2 * FRAME])
        frame.sample_rate, frame.pts, frame.time_base = SAMPLE_RATE, self._position, fractions.Fraction(1, SAMPLE_RATE)
        self._position += FRAME
        return frame


async def _listen(track: MediaStreamTrack) -> None:
    """Bring what is heard to 24 kHz mono, as an engine would want it."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE)
    while True:
        try:
            frame = await track.recv()
        except MediaStreamError:
            return
        if isinstance(frame, av.AudioFrame):
            resampler.resample(frame)


def app() -> Starlette:
    """One route, as in the realtime protocol."""
    listeners: set[asyncio.Task[None]] = set()

    async def calls(request: Request) -> Response:
        connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))

        def heard(track: MediaStreamTrack) -> None:
            task = asyncio.create_task(_listen(track))
            listeners.add(task)
            task.add_done_callback(listeners.discard)

        connection.on("track", heard)
        await connection.setRemoteDescription(RTCSessionDescription(sdp=(await request.body()).decode(), type="offer"))
        connection.addTrack(Speech())
        await connection.setLocalDescription(await connection.createAnswer())
        location = {"Location": f"/v1/realtime/calls/{id(connection)}"}
        return Response(connection.localDescription.sdp, status_code=201, media_type="application/sdp", headers=location)

    return Starlette(routes=[Route("/v1/realtime/calls", calls, methods=["POST"])])


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets=sockets)  # type: ignore[arg-type]
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"stock listening on http://127.0.0.1:{port}", flush=True)


if __name__ == "__main__":
    _Server(uvicorn.Config(app(), host="127.0.0.1", port=0, log_level="warning")).run()
