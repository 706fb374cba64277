"""Everything that we use of aiortc and aioice beyond their public interface, in one place.

We use their ICE, DTLS, SCTP and certificates through the object model of ORTC (`RTCIceTransport`, `RTCDtlsTransport`,
`RTCSctpTransport`), but bring our own sockets, SRTP media and SDP. `check()` names what an upgrade has changed; the contract
test runs it, and `pyproject.toml` pins the versions that pass.
"""

from __future__ import annotations

import inspect
import secrets
import struct
from collections.abc import Callable
from typing import Any, Protocol

import pylibsrtp
from aioice import ice, stun
from aioice.candidate import Candidate, candidate_foundation, candidate_priority
from aiortc import RTCDtlsTransport, RTCIceGatherer, RTCIceTransport, RTCSctpTransport, rtcsctptransport
from aiortc.rtcdtlstransport import RTCDtlsFingerprint, RTCDtlsParameters

Address = tuple[str, int]
BINDING_REQUEST = b"\x00\x01"
MALFORMED = (ValueError, KeyError, IndexError, struct.error)
"""What aioice lets out of a STUN message whose attributes have the wrong length or are missing."""
MAX_QUEUED_DATAGRAMS = 512
"""DTLS datagrams that may wait for the DTLS task; more are dropped, as a network would."""
SCTP_RTO_MIN = 0.2
SCTP_RTO_INITIAL = 1.0
"""Seconds. aiortc's 1 and 3 hold events back for a second when a packet is lost."""
MAX_REASSEMBLY = 2 * 1024 * 1024
"""Bytes of unfinished messages that a peer may make us keep, beyond the window that it was given."""


class DatagramTransport(Protocol):
    """What aioice needs of a socket."""

    def sendto(self, data: bytes, addr: Address) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...

    def close(self) -> None: ...


class IceSide:
    """One call's ICE agent on one of our shared sockets."""

    def __init__(self, agent: Any, transport: DatagramTransport, host: str, port: int) -> None:
        self._agent = agent
        self._protocol = ice.StunProtocol(agent)
        self._protocol.connection_made(transport)  # type: ignore[arg-type]
        self._protocol.local_candidate = Candidate(
            foundation=candidate_foundation("host", "udp", host),
            component=1,
            transport="udp",
            priority=candidate_priority(1, "host"),
            host=host,
            port=port,
            type="host",
        )
        agent._protocols.append(self._protocol)
        agent._local_candidates.append(self._protocol.local_candidate)

    def stun(self, data: bytes, address: Address) -> bool:
        """A STUN datagram came: a request whose integrity has been checked, or something else. Malformed ones are ignored.
        Returns whether it is a sign of life: such a request, or the answer to one of ours."""
        wanted = data[:2] == BINDING_REQUEST or data[8:20] in self._protocol.transactions
        try:
            if data[:2] != BINDING_REQUEST:
                stun.parse_message(data)  # what cannot be read, aioice would put into the queue for DTLS, past its bound
            self._protocol.datagram_received(data, address)
        except MALFORMED:
            # aioice trusts attributes to be complete and of the right length.
            return False
        return wanted

    def dtls(self, data: bytes) -> None:
        """A DTLS datagram came. Bound: `MAX_QUEUED_DATAGRAMS`; policy: the newest is dropped."""
        if self._agent._queue.qsize() < MAX_QUEUED_DATAGRAMS:
            self._agent.data_received(data, 1)

    def lost(self) -> None:
        """The transport was closed."""
        self._protocol.connection_lost(None)

    def follow(self, address: Address) -> None:
        """The caller's authenticated media comes from a new address: check it, and take it if it answers (RFC 8445 7.3.1.4)."""
        agent, protocol = self._agent, self._protocol
        if agent._closing or agent.remote_password is None or not agent._nominated:
            return
        for candidate in agent._remote_candidates:
            if (candidate._network_host, candidate.port) == address:
                break
        else:
            candidate = Candidate(
                foundation=secrets.token_hex(5),
                component=1,
                transport="udp",
                priority=candidate_priority(1, "prflx"),
                host=address[0],
                port=address[1],
                type="prflx",
            )
            agent._remote_candidates.append(candidate)
        pair = agent._find_pair(protocol, candidate)
        if pair is None:
            pair = ice.CandidatePair(protocol, candidate)
            agent._check_list.append(pair)
        if pair.task is None and agent._nominated.get(1) is not pair:
            pair.remote_nominated = True
            pair.state = ice.CandidatePair.State.WAITING
            agent.check_start_task(pair)


class IceHandle:
    """A call's ICE agent, seen from the mux."""

    def __init__(self, gatherer: RTCIceGatherer) -> None:
        self._agent = gatherer._connection
        self._agent._local_candidates_start = True

    @property
    def ufrag(self) -> str:
        return str(self._agent.local_username)

    @property
    def password(self) -> str:
        return str(self._agent.local_password)

    def add_side(self, transport: DatagramTransport, host: str, port: int) -> IceSide:
        """Give the agent a socket."""
        return IceSide(self._agent, transport, host, port)

    def gathered(self) -> None:
        """There are no more sockets."""
        self._agent._local_candidates_end = True

    def selected(self) -> tuple[DatagramTransport, Address] | None:
        """Where media goes at present; None while nothing is connected."""
        pair = self._agent._nominated.get(1)
        return None if pair is None else (pair.protocol.transport, pair.remote_addr)


def authentic(data: bytes, password: str) -> bool:
    """Whether a STUN request carries the integrity of our password."""
    try:
        return bool(stun.parse_message(data).check_message_integrity(password.encode()))
    except MALFORMED:
        return False


def take_role(dtls: RTCDtlsTransport, role: str) -> None:
    """The DTLS role that the answer named: "client" or "server"."""
    dtls._set_role(role)


class Srtp:
    """The SRTP sessions of a connected DTLS transport. All methods return None for what cannot be protected or trusted."""

    def __init__(self, dtls: RTCDtlsTransport) -> None:
        self._rx, self._tx = dtls._rx_srtp, dtls._tx_srtp

    def open_rtp(self, data: bytes) -> bytes | None:
        return _tried(self._rx.unprotect, data)

    def open_rtcp(self, data: bytes) -> bytes | None:
        return _tried(self._rx.unprotect_rtcp, data)

    def seal_rtp(self, data: bytes) -> bytes | None:
        return _tried(self._tx.protect, data)

    def seal_rtcp(self, data: bytes) -> bytes | None:
        return _tried(self._tx.protect_rtcp, data)


def _tried(operation: Callable[[bytes], bytes], data: bytes) -> bytes | None:
    try:
        return operation(data)
    except (pylibsrtp.Error, ValueError):
        return None


def tune_sctp(sctp: RTCSctpTransport) -> None:
    """Shorter retransmission timers for a channel that carries a conversation."""
    rtcsctptransport.SCTP_RTO_MIN = SCTP_RTO_MIN  # type: ignore[assignment]
    sctp._rto = SCTP_RTO_INITIAL


def hoards(sctp: RTCSctpTransport) -> bool:
    """Whether the peer has ignored its window and made us keep too much."""
    return sctp._advertised_rwnd < -MAX_REASSEMBLY


_AGENT = (
    "_local_candidates_start",
    "_local_candidates_end",
    "_local_candidates",
    "_protocols",
    "_queue",
    "_nominated",
    "_remote_candidates",
    "_check_list",
    "_closing",
    "_find_pair",
    "check_start_task",
    "data_received",
    "local_username",
    "local_password",
    "remote_password",
)


def check() -> list[str]:
    """What of the hook points is not as we know it; empty when all is well."""
    problems: list[str] = []

    def need(what: str, holds: bool) -> None:
        if not holds:
            problems.append(what)

    def source(thing: Any) -> str:
        return inspect.getsource(thing)

    agent = ice.Connection(ice_controlling=False)
    for name in _AGENT:
        need(f"aioice.ice.Connection.{name}", hasattr(agent, name))
    for name in ["connection_made", "connection_lost", "datagram_received", "transport", "transactions"]:
        need(f"aioice.ice.StunProtocol.{name}", name in source(ice.StunProtocol))
    pair = inspect.signature(ice.CandidatePair.__init__).parameters
    need("aioice.ice.CandidatePair(protocol, remote_candidate)", list(pair)[1:] == ["protocol", "remote_candidate"])
    need("aioice.ice.CandidatePair.remote_nominated", "remote_nominated" in source(ice.CandidatePair))
    need("aioice Candidate._network_host", "_network_host" in source(Candidate))
    need("aioice check_start honours remote_nominated", "pair.remote_nominated" in source(ice.Connection.check_start))
    need("RTCIceGatherer._connection", "self._connection" in source(RTCIceGatherer))
    need("RTCIceTransport sends through the gatherer's connection", "gatherer._connection" in source(RTCIceTransport))
    need("RTCDtlsTransport._set_role", hasattr(RTCDtlsTransport, "_set_role"))
    for name in ("_rx_srtp", "_tx_srtp"):
        need(f"RTCDtlsTransport.{name}", f"self.{name}" in source(RTCDtlsTransport))
    need("RTCSctpTransport._advertised_rwnd", "self._advertised_rwnd" in source(RTCSctpTransport))
    need("RTCSctpTransport._rto", "self._rto" in source(RTCSctpTransport))
    need("rtcsctptransport.SCTP_RTO_MIN is read at each update", "max(SCTP_RTO_MIN" in source(RTCSctpTransport))
    for name in ("protect", "unprotect", "protect_rtcp", "unprotect_rtcp"):
        need(f"pylibsrtp.Session.{name}", hasattr(pylibsrtp.Session, name))
    return problems


__all__ = [
    "BINDING_REQUEST",
    "Address",
    "DatagramTransport",
    "IceHandle",
    "IceSide",
    "RTCDtlsFingerprint",
    "RTCDtlsParameters",
    "Srtp",
    "authentic",
    "check",
    "hoards",
    "take_role",
    "tune_sctp",
]
