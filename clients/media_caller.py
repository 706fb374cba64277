"""A caller for measurements: dozens of calls in one process, every packet under control.

aiortc makes the connection; the media is ours: frames that were encoded once go out as they are, and of what comes in the
headers are noted. It reaches into aiortc for that (`_nominated`, `data_received`, the SRTP sessions), as no user of a
client should have to; `clients.webrtc` is the client for people.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import struct
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pylibsrtp
from aiortc import RTCBundlePolicy, RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from .webrtc import LABEL, calls_url, post_offer

RED_TYPE = 63
STEP = 960
"""Timestamp units of a frame: 20 ms at 48 kHz."""
REPORT_EVERY = 1.0
_HEADER = struct.Struct("!BBHII")

Rewrite = Callable[[str], Awaitable[str]]
"""Changes an answer on its way to the caller: an impaired link puts its own address into it."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An RTP packet that came. `at` on `time.monotonic`."""

    at: float
    sequence: int
    timestamp: int
    marker: bool
    payload: bytes
    """Without the wrapping of redundant audio."""
    redundant: bool = False
    """Whether the frame before came along with it."""


class MediaCaller:
    """`connect`, then `send_frame` every 20 ms; `arrivals` and `events` hold what came (when `keep` is set)."""

    def __init__(self, *, red: bool = False, keep: bool = True) -> None:
        self.red = red
        self.keep = keep
        self.received = 0
        self.arrivals: list[Arrival] = []
        self.events: list[tuple[float, dict[str, Any]]] = []
        self.call_id = ""
        self.sent = 0
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
        self._connected = asyncio.Event()
        self._opened = asyncio.Event()
        self._sequence, self._timestamp = random.randrange(1 << 15), random.randrange(1 << 30)
        self._older = b""
        self._payload_type = 0
        self._lost_base: tuple[int, int] | None = None
        self._highest = 0
        self._came = 0
        self._ssrc_heard = 0
        self._reporter: asyncio.Task[None] | None = None

    async def connect(
        self,
        url: str,
        *,
        model: str,
        session: Mapping[str, Any] | None = None,
        api_key: str | None = None,
        rewrite: Rewrite | None = None,
        timeout: float = 20.0,
    ) -> None:
        """Call a server. Raises `CouldNotConnect`, TimeoutError."""
        connection = self._connection
        transceiver = connection.addTransceiver("audio", direction="sendrecv")

        async def nothing(*_: object) -> None:
            """aiortc's media loops stay off."""

        transceiver.sender.send = nothing  # type: ignore[method-assign, assignment]
        transceiver.receiver.receive = nothing  # type: ignore[method-assign, assignment]
        self._channel = connection.createDataChannel(LABEL)
        self._channel.on("open", self._opened.set)
        self._channel.on("message", self._message)
        connection.on("connectionstatechange", self._state)
        async with asyncio.timeout(timeout):
            await connection.setLocalDescription(await connection.createOffer())
            offer = connection.localDescription.sdp
            response = await post_offer(calls_url(url), self._with_red(offer), model, api_key, session, timeout)
            self.call_id = response.headers["location"].rpartition("/")[2]
            answer = response.text if rewrite is None else await rewrite(response.text)
            await connection.setRemoteDescription(RTCSessionDescription(sdp=self._without_red(answer), type="answer"))
            await self._connected.wait()
            self._take_over(transceiver)
            await self._opened.wait()
        self._reporter = asyncio.create_task(self._report(), name="caller's reports")

    def send_frame(self, payload: bytes) -> None:
        """Send an encoded frame of 20 ms."""
        body = payload
        kind = self._payload_type
        if self.red:
            head = bytes([0x80 | kind]) + (STEP << 10 | len(self._older)).to_bytes(3, "big") if self._older else b""
            body = head + bytes([kind]) + self._older + payload
            self._older, kind = payload, RED_TYPE
        self._sequence, self._timestamp = (self._sequence + 1) & 0xFFFF, (self._timestamp + STEP) & 0xFFFFFFFF
        self.sent += 1
        self._send(_HEADER.pack(0x80, kind, self._sequence, self._timestamp, self._ssrc) + body, rtcp=False)

    def skip_frame(self) -> None:
        """Let 20 ms pass unsent, as discontinuous transmission does."""
        self._timestamp = (self._timestamp + STEP) & 0xFFFFFFFF

    def send_event(self, event: Mapping[str, Any]) -> None:
        """Send a client event."""
        self._channel.send(json.dumps(event))

    async def wait_for(self, *kinds: str, since: int = 0, timeout: float = 10.0) -> tuple[float, dict[str, Any]]:
        """The first event of one of these types from index `since` of `events` on. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while True:
                for at, event in self.events[since:]:
                    if event["type"] in kinds:
                        return at, event
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        """Hang up."""
        if self._reporter is not None:
            self._reporter.cancel()
            await asyncio.gather(self._reporter, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await self._connection.close()

    @property
    def ended(self) -> bool:
        """Whether the server has ended the call."""
        return self._connection.connectionState in ("closed", "failed")

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _with_red(self, offer: str) -> str:
        found = re.search(r"a=rtpmap:(\d+) opus/48000/2\r\n", offer)
        assert found is not None
        self._payload_type = int(found[1])
        if not self.red:
            return offer
        lines = f"a=rtpmap:{RED_TYPE} red/48000/2\r\na=fmtp:{RED_TYPE} {found[1]}/{found[1]}\r\n"
        return offer.replace(f"SAVPF {found[1]}", f"SAVPF {found[1]} {RED_TYPE}", 1).replace(found[0], found[0] + lines, 1)

    def _without_red(self, answer: str) -> str:
        self.red = self.red and f"a=rtpmap:{RED_TYPE} red" in answer
        return re.sub(rf"a=(rtpmap|fmtp):{RED_TYPE} .*\r\n", "", answer).replace(f"SAVPF {RED_TYPE} ", "SAVPF ")

    def _take_over(self, transceiver: Any) -> None:
        dtls = transceiver.sender.transport
        self._srtp_in, self._srtp_out = dtls._rx_srtp, dtls._tx_srtp
        self._agent = dtls.transport._connection
        self._ssrc = transceiver.sender._ssrc
        others = self._agent.data_received

        def received(data: bytes, component: int) -> None:
            if not 127 < data[0] < 192:
                others(data, component)
            elif not 192 <= data[1] <= 223:
                self._rtp(data)

        self._agent.data_received = received

    def _rtp(self, data: bytes) -> None:
        self.received += 1
        _, second, sequence, timestamp, self._ssrc_heard = _HEADER.unpack_from(data)
        if self._lost_base is None:
            self._lost_base = (sequence, 0)
            self._highest = sequence
        self._came += 1
        ahead = (sequence - self._highest) & 0xFFFF
        if ahead < 0x8000:
            self._highest += ahead
        if self.keep:
            try:
                plain = self._srtp_in.unprotect(data)
            except pylibsrtp.Error:
                return
            payload, redundant = plain[12:], second & 0x7F == RED_TYPE
            if redundant:
                payload, redundant = _primary(payload)
            self.arrivals.append(Arrival(time.monotonic(), sequence, timestamp, bool(second & 0x80), payload, redundant))

    async def _report(self) -> None:
        """Tell the server once a second what was lost."""
        before = (0, 0)
        while True:
            await asyncio.sleep(REPORT_EVERY)
            if self._lost_base is None:
                continue
            expected = self._highest - self._lost_base[0] + 1
            due, came = expected - before[0], self._came - before[1]
            before = (expected, self._came)
            fraction = min(255, int(256 * max(0, due - came) / due)) if due > 0 else 0
            lost = max(0, expected - self._came) & 0xFFFFFF
            block = struct.pack("!IIIIII", self._ssrc_heard, fraction << 24 | lost, self._highest & 0xFFFFFFFF, 0, 0, 0)
            self._send(struct.pack("!BBHI", 0x81, 201, 7, self._ssrc) + block, rtcp=True)

    def _send(self, packet: bytes, *, rtcp: bool) -> None:
        pair = self._agent._nominated.get(1)
        if pair is not None:
            sealed = self._srtp_out.protect_rtcp(packet) if rtcp else self._srtp_out.protect(packet)
            pair.protocol.transport.sendto(sealed, pair.remote_addr)

    def _message(self, message: str | bytes) -> None:
        if self.keep:
            self.events.append((time.monotonic(), json.loads(message)))

    def _state(self) -> None:
        if self._connection.connectionState == "connected":
            self._connected.set()


def _primary(payload: bytes) -> tuple[bytes, bool]:
    """The newest frame of a redundant payload (RFC 2198), and whether an older one is with it."""
    position, older = 0, 0
    while payload[position] & 0x80:
        older += int.from_bytes(payload[position + 2 : position + 4], "big") & 0x3FF
        position += 4
    return payload[position + 1 + older :], older > 0


async def keep_talking(callers: Sequence[MediaCaller], frames: Sequence[bytes], until: float) -> float:
    """Let every caller send `frames` over and over, at real time, until `until`; the worst lateness in seconds.

    Callers are spread over the 20 ms and over the frames.
    """
    slots, began, number, worst = 10, time.monotonic(), 0, 0.0
    while (now := time.monotonic()) < until:
        due = began + number * 0.002
        if due > now:
            await asyncio.sleep(due - now)
        worst = max(worst, time.monotonic() - due)
        for index in range(number % slots, len(callers), slots):
            callers[index].send_frame(frames[(number // slots + 37 * index) % len(frames)])
        number += 1
    return worst
