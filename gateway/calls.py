"""The WebRTC calls of one server: what they share (UDP port, clock, certificate), and each call from its offer to its end."""

from __future__ import annotations

import asyncio
import datetime
import gc
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from aiortc import RTCCertificate
from prometheus_client.core import Metric

from ..engines.orchestrator import Orchestrator
from ..sessions.ids import Ids
from ..sessions.recording import header_of, session_of
from ..sessions.session_config import SessionConfig
from .conductor import Conductor
from .errors import ApiError, SettingsError
from .figures import Figures
from .live_sessions import LiveSession, LiveSessions
from .logs import logger
from .metrics import Metrics, gauge
from .recordings import start_recording
from .settings import Settings
from .tasks import TaskOwner
from .transports.webrtc import sdp
from .transports.webrtc.connection import WebRtcConnection, encode_for_track
from .transports.webrtc.errors import BadOffer
from .transports.webrtc.limits import WebRtcLimits
from .transports.webrtc.peer import Peer, PeerEvents
from .transports.webrtc.ticker import Ticker
from .transports.webrtc.udp_mux import UdpMux

log = logger("gateway.calls")

CLOSE_TIMEOUT = 10.0
"""Seconds that all calls together have to end when the server stops."""
RENEW_BEFORE = datetime.timedelta(days=2)


@dataclass(slots=True)
class Call:
    """A call and its session."""

    call_id: str
    session_id: str
    model: str
    conductor: Conductor
    connection: WebRtcConnection
    expires_at: int
    """Unix seconds."""
    started: float = field(default_factory=time.time)

    def report(self) -> dict[str, Any]:
        """For whoever operates or tests the server."""
        peer = self.connection.peer
        return {
            "id": self.call_id,
            "object": "realtime.call",
            "session_id": self.session_id,
            "model": self.model,
            "started_at": int(self.started),
            "life": peer.life.value,
            "received": {
                **asdict(peer.receiver.stats),
                "lost": peer.receiver.packets_lost,
                "jitter_ms": round(peer.receiver.jitter_s * 1000, 2),
                "held_ms": round(peer.receiver.held_s * 1000, 1),
                "wait_ms": round(peer.receiver.wait * 1000, 1),
            },
            "sent": {**asdict(peer.sender.stats), "queued_ms": peer.sender.queued / 24},
        }


class Calls:
    """See the module's docstring. `open`, `start`, `close`; all on the event loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        limits: WebRtcLimits,
        metrics: Metrics,
        sessions: LiveSessions,
        orchestrator: Orchestrator,
        voices: Callable[[str], tuple[str, ...]],
    ) -> None:
        self.limits = limits
        self._settings = settings
        self._metrics = metrics
        self._sessions = sessions
        self._orchestrator = orchestrator
        self._voices = voices
        self._calls: dict[str, Call] = {}
        self._tasks = TaskOwner()
        self._mux: UdpMux | None = None
        self._ticker = Ticker(failed=self._tick_failed, ticked=self._ticked)
        self._certificate: RTCCertificate | None = None
        self._past: Counter[str] = Counter()
        metrics.watch(self._figures)

    def __len__(self) -> int:
        return len(self._calls)

    def all(self) -> list[Call]:
        return list(self._calls.values())

    def get(self, call_id: str) -> Call:
        """A call that is going on. Raises a 404 `ApiError`."""
        call = self._calls.get(call_id)
        if call is None:
            raise ApiError(404, "call_not_found", f"There is no call '{call_id}' on this server.", param="call_id")
        return call

    def open(self) -> None:
        """Bind the UDP port. Raises `SettingsError` when it cannot be had."""
        host = self.limits.udp_host or self._settings.server.host
        host = {"localhost": "127.0.0.1", "::": "0.0.0.0", "::1": "127.0.0.1"}.get(host, host)
        try:
            self._mux = UdpMux(host, self.limits.udp_port, self.limits.advertised_addresses)
        except OSError as error:
            where = f"{host}:{self.limits.udp_port}"
            raise SettingsError(f"Cannot use UDP {where}: {error}. Choose another webrtc.udp_host or webrtc.udp_port.") from None
        found = ", ".join(f"{candidate.host}:{candidate.port}" for candidate in self._mux.candidates)
        log.info("calls are taken", udp=found)

    async def close(self) -> None:
        """End every call, in bounded time, and free the port."""
        for call in self.all():
            call.connection.finish(1012, "The server stops.")
        stuck = await self._tasks.close(CLOSE_TIMEOUT)
        if stuck:
            log.error("calls would not end", calls=stuck)
        self._ticker.close()
        if self._mux is not None:
            self._mux.close()
            self._mux = None

    async def start(
        self, offer_text: str, config: SessionConfig, *, model: str, pipeline: str, client: str, gone: Coroutine[Any, Any, None]
    ) -> tuple[str, str]:
        """Admit a session and answer an offer: (call id, answer). The call then lives on its own.

        Raises an `ApiError`: 400 for an offer that cannot be answered, 429 when the server is full.
        """
        try:
            offer = sdp.parse_offer(offer_text, self.limits)
        except BadOffer as error:
            gone.close()
            raise ApiError(400, error.code, str(error), param="sdp") from error
        if self._mux is None:
            gone.close()
            raise ApiError(503, "server_starting", "The server does not take calls at present.", headers={"retry-after": "1"})
        ids = Ids(secrets.randbits(64))
        session_id, call_id = ids.make("sess"), ids.make("rtc")
        await self._sessions.admit(session_id, gone)
        reason = "error"
        try:
            call = self._make(offer, config, call_id=call_id, session_id=session_id, model=model, pipeline=pipeline)
            answer = call.connection.peer.answer(self._own_certificate())
            self._calls[call_id] = call
            self._tasks.start(self._carry(call), name=f"call {call_id}", on_crash=lambda error: self._crashed(call_id, error))
            reason = ""
        finally:
            if reason:
                self._sessions.leave(session_id, reason)
        log.info("call answered", call=call_id, session=session_id, model=model, pipeline=pipeline, codec=offer.codec.name, client=client)
        return call_id, answer

    def _make(self, offer: sdp.Offer, config: SessionConfig, *, call_id: str, session_id: str, model: str, pipeline: str) -> Call:
        settings = self._settings
        limits = settings.session_limits()
        # What an item is retrieved with must fit the data channel, in base64 and with room for the rest of the event.
        room = (offer.max_message_size or sdp.LOCAL_MESSAGE_SIZE) * 7 // 10
        header = header_of(
            session_id=session_id,
            seed=secrets.randbits(64),
            expires_at=int(time.time() + settings.registry.lifetime_s),
            config=config,
            policy=settings.turn_taking_policy(),
            limits=replace(limits, retrieve_audio_bytes=min(limits.retrieve_audio_bytes, room)),
            created=time.time(),
            input_is_track=True,
        )
        caps = settings.websocket_limits()
        connection = WebRtcConnection(
            lambda events: self._peer(offer, events),
            self.limits,
            caps,
            max_message_size=offer.max_message_size,
            has_channel=offer.data is not None,
        )
        conductor = Conductor(
            session=session_of(header),
            connection=connection,
            orchestrator=self._orchestrator,
            pipeline=pipeline,
            figures=Figures(self._metrics, pipeline),
            voices=self._voices(pipeline),
            errors_per_minute=caps.errors_per_minute,
            encode=encode_for_track,
            recording=start_recording(settings.recording, header),
        )
        self._sessions.start(LiveSession(session_id, model, pipeline, conductor, connection))
        return Call(call_id, session_id, model, conductor, connection, header.expires_at)

    def _peer(self, offer: sdp.Offer, events: PeerEvents) -> Peer:
        assert self._mux is not None
        return Peer(offer, mux=self._mux, ticker=self._ticker, certificate=self._own_certificate(), limits=self.limits, events=events)

    async def _carry(self, call: Call) -> None:
        """The call, until it ends."""
        by = "error"
        try:
            call.conductor.open()
            closing = await call.connection.run(call.conductor.feed)
            by = closing.by
            if by == "slow_reader":
                self._metrics.slow_readers.inc()
        finally:
            self._calls.pop(call.call_id, None)
            self._remember(call)
            try:
                await call.conductor.close()
            finally:
                self._sessions.leave(call.session_id, by)
            log.info("call ended", call=call.call_id, session=call.session_id, by=by)
            if not len(self._sessions):
                # Calls leave cycles behind; nobody hears the pause of a collection now, and memory goes back to where it was.
                asyncio.get_running_loop().call_soon(self._tidy)

    def _tidy(self) -> None:
        if not len(self._sessions):
            gc.collect()

    def hang_up(self, call: Call) -> None:
        """End a call at its owner's wish."""
        call.connection.finish(1000, "The call was hung up.")

    def _own_certificate(self) -> RTCCertificate:
        """One certificate for all calls, renewed before it expires."""
        now = datetime.datetime.now(tz=datetime.UTC)
        if self._certificate is None or self._certificate.expires - now < RENEW_BEFORE:
            self._certificate = RTCCertificate.generateCertificate()
        return self._certificate

    def _crashed(self, call_id: str, error: BaseException) -> None:
        log.error("call crashed", call=call_id, exc_info=error)
        self._metrics.crashes.labels("call").inc()

    def _ticked(self, calls: int) -> None:
        if self._mux is not None:
            self._mux.clocked(calls)

    def _tick_failed(self, error: Exception) -> None:
        log.error("tick crashed", exc_info=error)
        self._metrics.crashes.labels("tick").inc()

    # ---- metrics ----------------------------------------------------------------------------------------------------

    def _remember(self, call: Call) -> None:
        """Keep a finished call's counters in the totals."""
        for name, count in _counters(call).items():
            self._past[name] += count

    def _figures(self) -> Iterable[Metric]:
        totals = Counter(self._past)
        for call in self._calls.values():
            totals.update(_counters(call))
        yield gauge("antiphon_calls", "WebRTC calls", [({}, len(self._calls))])
        yield gauge(
            "antiphon_call_frames", "Frames of call audio since the start, by what became of them",
            [({"frames": name}, totals[name]) for name in _FRAMES],
        )  # fmt: skip
        yield gauge("antiphon_ticker_lateness_seconds", "Moving average of how late the media clock is", [({}, self._ticker.lateness)])


_RECEIVED = ("decoded", "red", "fec", "concealed", "silent", "late", "foreign", "damaged", "overflow", "excess")
_SENT = ("packets", "skipped_ticks", "refused_samples")
_FRAMES = (*(f"received_{name}" for name in _RECEIVED), *(f"sent_{name}" for name in _SENT))


def _counters(call: Call) -> dict[str, int]:
    received, sent = call.connection.peer.receiver.stats, call.connection.peer.sender.stats
    return {
        **{f"received_{name}": getattr(received, name) for name in _RECEIVED},
        **{f"sent_{name}": getattr(sent, name) for name in _SENT},
    }
