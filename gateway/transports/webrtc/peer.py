"""One caller's connection: ICE, DTLS and SCTP of aiortc, on the shared socket, with our own media between SRTP and the session."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiortc import RTCCertificate, RTCDataChannel, RTCDtlsTransport, RTCIceGatherer, RTCIceParameters, RTCIceTransport, RTCSctpTransport
from aiortc.rtcsctptransport import RTCSctpCapabilities

from . import aiortc_hooks as hooks
from . import rtcp, rtp, sdp
from .errors import PeerFailed
from .limits import WebRtcLimits
from .liveness import Life, Liveness
from .media_receive import MediaReceiver
from .media_send import MediaSender
from .ticker import Ticker
from .track_codecs import G711TrackDecoder, G711TrackEncoder, OpusTrackDecoder, OpusTrackEncoder, TrackDecoder, TrackEncoder
from .udp_mux import UdpMux

REPORT_TICKS = 50
"""RTCP reports about once a second."""
STEP_TIMEOUT = 1.0
"""Seconds that each layer has to close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEvents:
    """What a peer tells its owner, on the event loop. None of them may wait."""

    heard: Callable[[bytes], None]
    """PCM at 24 kHz from the caller."""
    delivered: Callable[[str, int], None]
    """(response_id, samples) were handed to the socket."""
    channel: Callable[[RTCDataChannel], None]
    """The caller opened a data channel."""
    life: Callable[[Life], None]
    """The caller has fallen silent, or is back."""


class Peer:
    """See the module's docstring. `answer`, `connect`, wait for `ended`, `close`."""

    def __init__(
        self,
        offer: sdp.Offer,
        *,
        mux: UdpMux,
        ticker: Ticker,
        certificate: RTCCertificate,
        limits: WebRtcLimits,
        events: PeerEvents,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._offer = offer
        self._hears, self._speaks = offer.sends, offer.receives
        self._mux = mux
        self._ticker = ticker
        self._limits = limits
        self._events = events
        self._clock = clock
        self._cname = secrets.token_hex(8)
        gatherer = RTCIceGatherer(iceServers=[])
        self._handle = hooks.IceHandle(gatherer)
        self._member = mux.join(self._handle, self)
        self._ice = RTCIceTransport(gatherer)
        self._dtls = RTCDtlsTransport(self._ice, [certificate])
        hooks.take_role(self._dtls, offer.dtls_role)
        self._sctp: RTCSctpTransport | None = None
        self._srtp: hooks.Srtp | None = None
        decoder, encoder = _codecs(offer.codec, limits)
        self.receiver = MediaReceiver({offer.codec.payload_type: decoder}, events.heard, red_type=offer.codec.red_type)
        self.sender = MediaSender(
            encoder,
            payload_type=offer.codec.payload_type,
            red_type=offer.codec.red_type,
            send=self._send_rtp,
            delivered=events.delivered,
            max_samples=limits.playout_ms * 24,
        )
        self._liveness = Liveness(limits.suspect_after_s, limits.close_after_s)
        self._life = Life.ALIVE
        self._watch: asyncio.TimerHandle | None = None
        self._member_number: int | None = None
        self._ticks = random.randrange(REPORT_TICKS)
        self._ended = asyncio.Event()
        self._closed = False
        self.reason = ""
        """Why the connection ended: closed (by the caller), timeout, ice, dtls, silent."""

    # ---- making the connection --------------------------------------------------------------------------------------

    def answer(self, certificate: RTCCertificate) -> str:
        """The session description that the caller gets."""
        local = sdp.Local(
            session_id=secrets.randbits(62),
            ufrag=self._handle.ufrag,
            password=self._handle.password,
            fingerprints=tuple(
                sdp.Fingerprint(found.algorithm, found.value) for found in certificate.getFingerprints() if found.algorithm == "sha-256"
            ),
            candidates=tuple(self._mux.candidates),
            ssrc=self.sender.ssrc,
            cname=self._cname,
        )
        return sdp.write_answer(self._offer, local)

    async def connect(self) -> None:
        """Wait for the caller to come, and make everything ready. Raises PeerFailed after `connect_timeout_s` at the latest."""
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                await self._connect()
        except TimeoutError:
            self._end("timeout")
            raise PeerFailed("timeout", f"The caller did not connect within {self._limits.connect_timeout_s:g} s.") from None
        except ConnectionError as error:
            self._end("ice")
            raise PeerFailed("ice", f"The connection broke while it was made: {error}.") from error

    async def _connect(self) -> None:
        offer = self._offer
        await self._ice.start(RTCIceParameters(usernameFragment=offer.ufrag, password=offer.password))
        if self._ice.state != "completed":
            raise PeerFailed("ice", "No way to the caller was found.")
        fingerprints = [hooks.RTCDtlsFingerprint(algorithm=f.algorithm, value=f.value) for f in offer.fingerprints]
        await self._dtls.start(hooks.RTCDtlsParameters(fingerprints=fingerprints))
        if self._dtls.state != "connected":
            raise PeerFailed("dtls", "The caller's certificate does not match the fingerprint in the offer, or DTLS failed.")
        self._srtp = hooks.Srtp(self._dtls)
        self._dtls.on("statechange", self._transport_changed)
        self._ice.on("statechange", self._transport_changed)
        self._liveness.last = self._clock()
        self._watch_life()
        self._member_number = self._ticker.add(self._tick)
        if offer.data is not None:
            self._sctp = RTCSctpTransport(self._dtls, sdp.SCTP_PORT)
            hooks.tune_sctp(self._sctp)
            self._sctp.on("datachannel", self._events.channel)
            await self._sctp.start(RTCSctpCapabilities(maxMessageSize=offer.max_message_size), offer.sctp_port)

    def _transport_changed(self) -> None:
        if self._dtls.state in ("closed", "failed"):
            self._end("closed")
        elif self._ice.state in ("failed", "closed"):
            self._end("ice")

    # ---- the connection lives ---------------------------------------------------------------------------------------

    async def ended(self) -> None:
        """Wait until the connection is over; `reason` says why."""
        await self._ended.wait()

    def _end(self, reason: str) -> None:
        if not self._ended.is_set():
            self.reason = reason
            self._ended.set()

    def media(self, data: bytes) -> bool:
        """A datagram of the RTP range from the socket."""
        srtp = self._srtp
        if srtp is None or self._closed:
            return False
        now = self._clock()
        if rtp.is_rtcp(data):
            plain = srtp.open_rtcp(data)
            if plain is None:
                return False
            for report in rtcp.parse(plain):
                self._report(report, now)
            return True
        plain = srtp.open_rtp(data)
        if plain is None:
            return False
        packet = rtp.parse(plain)
        if packet is not None and self._hears:
            known = self.receiver.ssrc
            self.receiver.packet(packet, now)
            if self.receiver.ssrc != known and self.receiver.ssrc is not None:
                self._mux.expect_ssrc(self._member, self.receiver.ssrc)
        return True

    def alive(self) -> None:
        """Something authentic came from the caller."""
        self._liveness.last = self._clock()
        if self._life is Life.SUSPECT:
            self._set_life(Life.ALIVE)

    @property
    def life(self) -> Life:
        """Whether the caller is there."""
        return self._life

    def _watch_life(self) -> None:
        now = self._clock()
        state = self._liveness.state(now)
        if state is Life.DEAD:
            self._end("silent")
            return
        if state is not self._life:
            self._set_life(state)
        wait = max(0.01, self._liveness.next_change(now) - now)
        self._watch = asyncio.get_running_loop().call_later(wait, self._watch_life)

    def _set_life(self, life: Life) -> None:
        self._life = life
        self.sender.paused = life is not Life.ALIVE
        self._events.life(life)

    def _tick(self, now: float, missed: int) -> None:
        self.receiver.tick(now)
        if self._speaks:
            self.sender.tick(now, missed)
        self._ticks += 1 + missed
        if self._ticks >= REPORT_TICKS:
            self._ticks = random.randrange(-5, 5)
            self._send_report(now)
            if self._sctp is not None and hooks.hoards(self._sctp):
                self._end("flooded")

    def _report(self, report: rtcp.Report, now: float) -> None:
        if isinstance(report, rtcp.Bye):
            return  # a source may be replaced; the call ends with DTLS
        if isinstance(report, rtcp.SenderReport):
            self.receiver.sender_report(report, now)
        for block in report.blocks:
            self.sender.reported(block, now)

    def _send_report(self, now: float) -> None:
        own = self.receiver.report(now)
        blocks = () if own is None else (own,)
        if self.sender.stats.packets:
            self._send_rtcp(rtcp.build_sender_report(self.sender.report(blocks), self._cname))
        else:
            self._send_rtcp(rtcp.build_receiver_report(self.sender.ssrc, blocks, self._cname))

    def _send_rtp(self, packet: bytes) -> bool:
        return self._srtp is not None and self._send(self._srtp.seal_rtp(packet))

    def _send_rtcp(self, packet: bytes) -> bool:
        return self._srtp is not None and self._send(self._srtp.seal_rtcp(packet))

    def _send(self, data: bytes | None) -> bool:
        selected = self._handle.selected()
        if data is None or selected is None:
            return False
        transport, address = selected
        transport.sendto(data, address)
        return True

    # ---- the end ----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Say goodbye and let go of everything, in bounded time. May be called twice."""
        if self._closed:
            return
        if self._speaks and self.sender.stats.packets:
            self._send_rtcp(rtcp.build_bye(self.sender.ssrc, self._cname))
        self._closed = True
        self._end("closed")
        if self._watch is not None:
            self._watch.cancel()
        if self._member_number is not None:
            self._ticker.remove(self._member_number)
        steps = [self._dtls.stop, self._ice.stop]
        if self._sctp is not None:
            steps.insert(0, self._sctp.stop)
        try:
            for step in steps:
                try:
                    async with asyncio.timeout(STEP_TIMEOUT):
                        await step()
                except (TimeoutError, ConnectionError):
                    continue  # a layer that does not answer must not keep the others from closing
        finally:
            self._mux.leave(self._member)
            # What holds memory outside Python goes now, and not when the garbage collector next looks.
            self.receiver.close()
            self.sender.close()
            self._srtp = None


def _codecs(codec: sdp.Codec, limits: WebRtcLimits) -> tuple[TrackDecoder, TrackEncoder]:
    if codec.name == "opus":
        return OpusTrackDecoder(), OpusTrackEncoder(bitrate=limits.opus_bitrate, complexity=limits.opus_complexity)
    return G711TrackDecoder(codec.name), G711TrackEncoder(codec.name)
