"""A client for `POST /v1/realtime/calls`: audio over a media track, events over the data channel, by aiortc."""

from __future__ import annotations

import asyncio
import contextlib
import fractions
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

import av
import httpx
import msgspec
import numpy as np
from aiortc import RTCBundlePolicy, RTCConfiguration, RTCDataChannel, RTCIceServer, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError, MediaStreamTrack

from ..codecs.pcm import SAMPLE_RATE
from .errors import CallFailed, CouldNotConnect
from .interface import ServerEvent
from .realtime import parse

LABEL = "oai-events"
FRAME = SAMPLE_RATE // 50
MAX_MICROPHONE = 2 * SAMPLE_RATE
"""Samples that may wait for the track; beyond that the oldest are dropped."""
MAX_EVENTS = 20_000
"""Events that may wait for their reader; beyond that the call ends."""
CLOSE_TIMEOUT = 3.0
HEARD = "response.output_audio.delta"
"""The type under which audio from the track is given to the reader, as it comes over a WebSocket."""

SCHEMES = {"ws": "http", "wss": "https"}

_encode = msgspec.json.Encoder().encode


class Microphone(AudioStreamTrack):
    """The track on which the caller's audio leaves: 20 ms frames on absolute deadlines, silence when nothing was said."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: deque[bytes] = deque()
        self._queued_samples = 0
        self._part = b""
        self._position = 0
        self._began: float | None = None
        self.dropped = 0
        """Samples that were dropped because the queue was full."""

    def put(self, pcm: bytes) -> None:
        """Queue audio."""
        self._queue.append(pcm)
        self._queued_samples += len(pcm) // 2
        while self._queued_samples > MAX_MICROPHONE:
            lost = len(self._queue.popleft()) // 2
            self._queued_samples -= lost
            self.dropped += lost

    async def recv(self) -> av.AudioFrame:
        """The next frame, when it is due."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        due = self._began + self._position / SAMPLE_RATE
        if now > due + 1:
            # After a stall time goes on from here: a burst would only delay what follows.
            self._began += now - due
        elif due > now:
            await asyncio.sleep(due - now)
        while len(self._part) < 2 * FRAME and self._queue:
            block = self._queue.popleft()
            self._queued_samples -= len(block) // 2
            self._part += block
        pcm, self._part = self._part[: 2 * FRAME], self._part[2 * FRAME :]
        frame = av.AudioFrame(format="s16", layout="mono", samples=FRAME)
        frame.planes[0].update(pcm + bytes(2 * FRAME - len(pcm)))
        frame.sample_rate, frame.pts, frame.time_base = SAMPLE_RATE, self._position, fractions.Fraction(1, SAMPLE_RATE)
        self._position += FRAME
        return frame


class WebRtcClient:
    """A `VoiceClient` over WebRTC. Made by `connect`.

    While the server plays (`output_audio_buffer.started` to `.stopped` or `.cleared`), what the track brings is given to the
    reader as `response.output_audio.delta` events with their `audio`; `response.output_audio.done` is given once it was heard.
    """

    server_owns_playback = True

    def __init__(self, connection: RTCPeerConnection, channel: RTCDataChannel, microphone: Microphone) -> None:
        self.call_id = ""
        """The call's id, from the `Location` of the answer."""
        self.audio_frames = 0
        """Frames that the track has brought."""
        self._connection = connection
        self._channel = channel
        self._microphone = microphone
        self._numbers = itertools.count(1)
        self._events: asyncio.Queue[ServerEvent | None] = asyncio.Queue(MAX_EVENTS)
        self._items: dict[str, tuple[str, int]] = {}
        self._playing: str | None = None
        self._held: list[ServerEvent] = []
        self._failure: CallFailed | None = None
        self._ended = False
        self._listener: asyncio.Task[None] | None = None
        self.opened = asyncio.Event()
        channel.on("open", self.opened.set)
        channel.on("message", self._message)
        channel.on("close", self._end)
        connection.on("track", self._track)
        connection.on("connectionstatechange", self._state)

    # ---- VoiceClient ------------------------------------------------------------------------------------------------

    async def send(self, event: Mapping[str, Any]) -> str:
        """See `VoiceClient.send`."""
        if self._ended or self._channel.readyState != "open":
            raise CallFailed("The call is over.")
        event_id = str(event.get("event_id") or f"event_client_{next(self._numbers)}")
        try:
            self._channel.send(_encode({**event, "event_id": event_id}).decode())
        except ValueError as error:
            raise CallFailed(f"The event is too large for the data channel: {error}") from error
        return event_id

    async def send_audio(self, pcm: bytes) -> None:
        """The next piece of the caller's audio, for the track."""
        if self._ended:
            raise CallFailed("The call is over.")
        self._microphone.put(pcm)

    async def __aiter__(self) -> AsyncIterator[ServerEvent]:
        while True:
            event = await self._events.get()
            if event is None:
                if self._failure is not None:
                    raise self._failure
                return
            yield event

    async def close(self) -> None:
        """Hang up."""
        self._end()
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        self._microphone.stop()
        with contextlib.suppress(TimeoutError):  # what does not close in time is dropped all the same
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._connection.close()

    # ---- what comes -------------------------------------------------------------------------------------------------

    def _message(self, message: str | bytes) -> None:
        try:
            event = parse(message, time.monotonic())
        except CallFailed as error:
            self._fail(error)
            return
        data = event.data
        if event.type == "response.content_part.added" and event.item_id is not None and event.response_id is not None:
            self._items[event.response_id] = (event.item_id, int(data.get("content_index", 0)))
        elif event.type == "output_audio_buffer.started":
            self._playing = event.response_id
        elif event.type in ("output_audio_buffer.stopped", "output_audio_buffer.cleared"):
            self._playing = None
            self._put(event)
            self._release()
            return
        if event.type == "response.output_audio.done" and self._playing is not None and self._playing == event.response_id:
            self._held.append(event)
            return
        self._put(event)

    def _release(self) -> None:
        for event in self._held:
            self._put(event)
        self._held.clear()

    def _track(self, track: MediaStreamTrack) -> None:
        if track.kind == "audio" and self._listener is None:
            self._listener = asyncio.create_task(self._listen(track), name="track reader")

    async def _listen(self, track: MediaStreamTrack) -> None:
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:
                self._end()
                return
            self.audio_frames += 1
            if self._playing in self._items and isinstance(frame, av.AudioFrame):
                item_id, index = self._items[self._playing]
                place = {"response_id": self._playing, "item_id": item_id, "content_index": index}
                self._put(ServerEvent(time.monotonic(), HEARD, place, _to_pcm(frame)))

    def _state(self) -> None:
        if self._connection.connectionState == "failed":
            self._fail(CallFailed("The connection to the server was lost."))
        elif self._connection.connectionState == "closed":
            self._end()

    def _put(self, event: ServerEvent) -> None:
        if self._events.qsize() >= MAX_EVENTS - 1:
            self._fail(CallFailed(f"Nobody has read the last {MAX_EVENTS} events: the call is ended."))
        else:
            self._events.put_nowait(event)

    def _fail(self, error: CallFailed) -> None:
        self._failure = self._failure or error
        self._end()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._playing = None
            self._release()
            self._events.put_nowait(None)


def _to_pcm(frame: av.AudioFrame) -> bytes:
    """A decoded frame (48 kHz, interleaved stereo) as mono PCM at 24 kHz. Opus at our bitrates holds nothing above 12 kHz, so
    every other sample is enough."""
    channels = len(frame.layout.channels)
    samples = frame.to_ndarray().reshape(-1, channels).astype(np.int32).sum(axis=1) // channels
    pcm: bytes = samples[:: max(1, frame.sample_rate // SAMPLE_RATE)].astype("<i2").tobytes()
    return pcm


async def connect(
    url: str = "http://127.0.0.1:8765",
    *,
    model: str = "antiphon-voice",
    api_key: str | None = None,
    session: Mapping[str, Any] | None = None,
    ice_servers: list[RTCIceServer] | None = None,
    timeout: float = 15.0,
) -> WebRtcClient:
    """Call a server.

    `url` is its address in any form; `session` a configuration for the call; `ice_servers` only for networks that need STUN or
    TURN; `timeout` in seconds. Raises `CouldNotConnect`.
    """
    address = calls_url(url)
    configuration = RTCConfiguration(iceServers=ice_servers or [], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE)
    connection, microphone = RTCPeerConnection(configuration), Microphone()
    connection.addTrack(microphone)
    client = WebRtcClient(connection, connection.createDataChannel(LABEL), microphone)
    try:
        async with asyncio.timeout(timeout):
            await connection.setLocalDescription(await connection.createOffer())
            answer = await post_offer(address, connection.localDescription.sdp, model, api_key, session, timeout)
            client.call_id = answer.headers.get("location", "").rpartition("/")[2]
            await connection.setRemoteDescription(RTCSessionDescription(sdp=answer.text, type="answer"))
            await client.opened.wait()
    except TimeoutError:
        await client.close()
        raise CouldNotConnect(f"The call to {url} was not established within {timeout:g} s. Is UDP blocked on the way?") from None
    except BaseException:
        await client.close()
        raise
    return client


async def post_offer(
    address: str, offer: str, model: str, api_key: str | None, session: Mapping[str, Any] | None, timeout: float
) -> httpx.Response:
    """Send an offer, with `session` as a form. The answer has status 201; raises `CouldNotConnect` for anything else."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with httpx.AsyncClient(timeout=timeout, trust_env=False) as http:
            if session is None:
                sdp_headers = {**headers, "Content-Type": "application/sdp"}
                response = await http.post(address, params={"model": model}, content=offer, headers=sdp_headers)
            else:
                parts = {
                    "sdp": (None, offer, "application/sdp"),
                    "session": (None, _encode({"type": "realtime", "model": model, **session}).decode(), "application/json"),
                }
                response = await http.post(address, files=parts, headers=headers)
    except httpx.HTTPError as error:
        raise CouldNotConnect(f"There is no server at {address} ({error}). Start one with: antiphon serve") from error
    if response.status_code != 201:
        raise CouldNotConnect(f"The server refused the call: {_refusal(response)}", response.status_code)
    return response


def _refusal(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"


def calls_url(url: str) -> str:
    """The address of the calls route for a server's address in any form."""
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "http", url
    base = rest.split("?")[0].rstrip("/").removesuffix("/realtime").removesuffix("/v1")
    return f"{SCHEMES.get(scheme, scheme)}://{base}/v1/realtime/calls"
