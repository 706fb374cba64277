"""The settings and caps of WebRTC calls: the table `[webrtc]`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRtcLimits:
    """Where calls meet, how long things may take, how much may wait."""

    enabled: bool = True
    """Serve `POST /v1/realtime/calls`."""
    udp_host: str = ""
    """The address that UDP is bound to; "": that of the web server."""
    udp_port: int = 0
    """One UDP port for every call; 0: any free port (fix it to open a firewall or to publish it from a container)."""
    advertised_addresses: tuple[str, ...] = ()
    """Addresses that callers are told, where they differ from the machine's own (1:1 NAT, containers)."""
    connect_timeout_s: float = 15.0
    """A caller who has not connected by then is given up."""
    suspect_after_s: float = 5.0
    """Without a packet for so long the caller may be gone: no more audio is made until one comes."""
    close_after_s: float = 15.0
    """Without a packet for so long the call ends."""
    close_timeout_s: float = 2.0
    """How long hanging up may take."""
    stun_urls: tuple[str, ...] = ()
    """STUN servers announced to callers (`stun:host:port`). The server itself uses none."""
    turn_urls: tuple[str, ...] = ()
    """TURN servers announced to callers (`turn:host:port?transport=udp`, `turns:…`)."""
    turn_username: str = ""
    turn_credential: str = ""
    """With `turn_username`: fixed credentials of the TURN servers."""
    turn_secret: str = ""
    """The `static-auth-secret` of a coturn server: callers get credentials that expire."""
    turn_ttl_s: int = 86_400
    """How long those credentials are good for."""
    offer_bytes: int = 64 * 1024
    """A longer offer is refused."""
    offer_sections: int = 16
    """An offer with more media sections is refused."""
    playout_ms: int = 2_000
    """Audio that may wait for the track. Each response keeps to `limits.undelivered_ms`; this is the wall behind it."""
    channel_buffer_bytes: int = 64 * 1024
    """Events handed to the data channel but not acknowledged yet; the rest waits in the outbox, where a fence can drop it."""
    transcript_ms: int = 100
    """Transcript deltas are joined over so long before they are sent."""
    red: bool = True
    """Ask callers that can for redundant audio (RFC 2198)."""
    opus_bitrate: int = 48_000
    """Bits per second of the server's audio."""
    opus_complexity: int = 5
