"""A caller made of stock aiortc, and the server's side of a call without a server, both in the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiortc import RTCBundlePolicy, RTCCertificate, RTCConfiguration, RTCDataChannel, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from antiphon.clients.webrtc import Microphone
from antiphon.gateway.transports.webrtc import sdp
from antiphon.gateway.transports.webrtc.limits import WebRtcLimits
from antiphon.gateway.transports.webrtc.peer import Peer, PeerEvents
from antiphon.gateway.transports.webrtc.ticker import Ticker
from antiphon.gateway.transports.webrtc.udp_mux import UdpMux

TONE = (9000 * np.sin(2 * np.pi * 440 * np.arange(24_000) / 24_000)).astype("<i2").tobytes()
"""A second."""


@dataclass
class House:
    """What the calls of a server share."""

    limits: WebRtcLimits
    mux: UdpMux
    ticker: Ticker
    certificate: RTCCertificate = field(default_factory=RTCCertificate.generateCertificate)


@asynccontextmanager
async def house(**limits: Any) -> AsyncIterator[House]:
    mux = UdpMux("127.0.0.1", 0)
    ticker = Ticker(ticked=mux.clocked)
    try:
        yield House(WebRtcLimits(**limits), mux, ticker)
    finally:
        ticker.close()
        mux.close()


class Caller:
    """A stock aiortc peer with a microphone and the data channel."""

    def __init__(self) -> None:
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
        self.microphone = Microphone()
        self.connection.addTrack(self.microphone)
        self.channel = self.connection.createDataChannel("oai-events")
        self.messages: list[Any] = []
        self.heard: list[np.ndarray] = []
        self.opened = asyncio.Event()
        self.reader: asyncio.Task[None] | None = None
        self.channel.on("open", self.opened.set)
        self.channel.on("message", self.messages.append)
        self.connection.on("track", self._track)

    def _track(self, track: Any) -> None:
        async def read() -> None:
            while True:
                try:
                    self.heard.append((await track.recv()).to_ndarray().reshape(-1)[::2])
                except MediaStreamError:
                    return

        self.reader = asyncio.create_task(read())

    async def offer(self) -> str:
        await self.connection.setLocalDescription(await self.connection.createOffer())
        return str(self.connection.localDescription.sdp)

    async def take(self, answer: str) -> None:
        await self.connection.setRemoteDescription(RTCSessionDescription(sdp=answer, type="answer"))

    async def close(self) -> None:
        if self.reader is not None:
            self.reader.cancel()
            await asyncio.gather(self.reader, return_exceptions=True)
        await self.connection.close()

    @property
    def level(self) -> float:
        """Root mean square of what was heard last (a quarter of a second)."""
        return float(np.sqrt((np.concatenate(self.heard[-12:]).astype(float) ** 2).mean())) if self.heard else 0.0


@dataclass
class Answered:
    """The server's side of a call."""

    peer: Peer
    answer: str
    heard: list[bytes] = field(default_factory=list)
    delivered: list[tuple[str, int]] = field(default_factory=list)
    channels: list[RTCDataChannel] = field(default_factory=list)
    lives: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(map(len, self.heard)) / 48_000


def answer(home: House, offer: str) -> Answered:
    """Answer an offer as the server does."""
    call = Answered.__new__(Answered)
    call.heard, call.delivered, call.channels, call.lives = [], [], [], []
    events = PeerEvents(
        heard=call.heard.append,
        delivered=lambda response, samples: call.delivered.append((response, samples)),
        channel=call.channels.append,
        life=lambda life: call.lives.append(life.value),
    )
    call.peer = Peer(
        sdp.parse_offer(offer, home.limits),
        mux=home.mux,
        ticker=home.ticker,
        certificate=home.certificate,
        limits=home.limits,
        events=events,
    )
    call.answer = call.peer.answer(home.certificate)
    return call


@asynccontextmanager
async def in_call(home: House) -> AsyncIterator[tuple[Caller, Answered]]:
    """A caller and the server, connected, the data channel open."""
    caller = Caller()
    call = answer(home, await caller.offer())
    try:
        await caller.take(call.answer)
        await call.peer.connect()
        async with asyncio.timeout(10):
            await caller.opened.wait()
            while not call.channels:  # noqa: ASYNC110 - aiortc has no event for it
                await asyncio.sleep(0.01)
        yield caller, call
    finally:
        await call.peer.close()
        await caller.close()


async def eventually(true: Any, within: float = 5.0) -> None:
    """Wait until something holds; fail when it does not in time."""
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110 - works for anything
            await asyncio.sleep(0.01)
