"""Every call of a process on one UDP port.

A datagram belongs to the call whose ICE user name it carries (STUN), else to the call that has been heard from its source
address. A source address is only believed after a STUN message with the call's password, or media that the call's keys
authenticate: so a caller whose NAT gives it a new port goes on talking, and nobody else can take the call over. Nothing is ever
sent to an address that was merely named.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import ifaddr

from .aiortc_hooks import BINDING_REQUEST, Address, IceHandle, IceSide, authentic

DRAIN = 256
"""Datagrams read in one go before others have the event loop."""
CLOCKED_FROM = 8
"""Calls from which on the socket is looked at by the clock: packets then wait 2 ms on average."""
RECEIVE_BUFFER = 4 * 1024 * 1024
MAX_ADDRESSES = 16
"""Source addresses that one call may have; more are ignored, so that a call cannot be made to send STUN to the whole world."""
_COOKIE = b"\x21\x12\xa4\x42"
_USERNAME = 6


class Receiver(Protocol):
    """A call, as the mux sees it."""

    def media(self, data: bytes) -> bool:
        """An SRTP or SRTCP datagram; whether the call's keys authenticated it."""

    def alive(self) -> None:
        """Something authentic came."""


@dataclass(frozen=True, slots=True)
class LocalCandidate:
    """Where callers are told to find us."""

    host: str
    port: int


@dataclass(slots=True, eq=False)
class Member:
    """A call's place on the mux."""

    handle: IceHandle
    receiver: Receiver
    sides: dict[int, IceSide]
    addresses: set[tuple[int, Address]]
    ssrc: int | None = None


class _Socket:
    """One bound socket; aioice's transport for every call's agent at once is `_SharedTransport`."""

    def __init__(self, sock: socket.socket, index: int) -> None:
        self.sock = sock
        self.index = index
        self.host, self.port = sock.getsockname()[:2]
        self.paused = False
        """Whether the socket is looked at by the clock."""


class _SharedTransport:
    """What one call's ICE agent believes to be its own socket."""

    def __init__(self, mux: UdpMux, sock: socket.socket, closed: Callable[[], None]) -> None:
        self._mux = mux
        self._send = sock.sendto
        self._sockname = sock.getsockname()
        self._closed: Callable[[], None] | None = closed

    def sendto(self, data: bytes, addr: Address) -> None:
        try:
            self._send(data, addr)
        except OSError:
            # A full socket buffer or an unreachable host: lost, as any datagram may be.
            self._mux.unsent += 1

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._sockname if name == "sockname" else default

    def is_closing(self) -> bool:
        return self._closed is None

    def close(self) -> None:
        if self._closed is not None:
            closed, self._closed = self._closed, None
            asyncio.get_running_loop().call_soon(closed)


class UdpMux:
    """See the module's docstring. Made on the event loop that it serves."""

    def __init__(self, host: str, port: int, advertised: Sequence[str] = ()) -> None:
        """Bind. `host` "0.0.0.0" without `advertised` means every IPv4 address of this machine. Raises OSError."""
        self.unsent = 0
        self.stray = 0
        """Datagrams that belong to no call."""
        self._by_ufrag: dict[str, Member] = {}
        self._by_address: dict[tuple[int, Address], Member] = {}
        self._by_ssrc: dict[int, Member] = {}
        wildcard = host in ("0.0.0.0", "")
        hosts = _own_addresses() if wildcard and not advertised else [host or "0.0.0.0"]
        self._sockets = [_Socket(sock, index) for index, sock in enumerate(_bind(hosts, port))]
        self.port = self._sockets[0].port
        self.candidates = [LocalCandidate(name, self.port) for name in (advertised or [s.host for s in self._sockets])]
        self._loop = asyncio.get_running_loop()
        for entry in self._sockets:
            self._loop.add_reader(entry.sock.fileno(), self._drain, entry)

    def __len__(self) -> int:
        return len(self._by_ufrag)

    def close(self) -> None:
        """Stop reading and close the sockets."""
        for entry in self._sockets:
            self._loop.remove_reader(entry.sock.fileno())
            entry.sock.close()

    def join(self, handle: IceHandle, receiver: Receiver) -> Member:
        """Give a call's ICE agent its sides of our sockets."""
        member = Member(handle, receiver, {}, set())
        for entry in self._sockets:
            shared = _SharedTransport(self, entry.sock, lambda index=entry.index: self._left(member, index))  # type: ignore[misc]
            host = self.candidates[0].host if entry.host == "0.0.0.0" else entry.host
            member.sides[entry.index] = handle.add_side(shared, host, self.port)
        handle.gathered()
        self._by_ufrag[handle.ufrag] = member
        return member

    def expect_ssrc(self, member: Member, ssrc: int) -> None:
        """Media with this SSRC from an unknown address may be this call's."""
        if member.ssrc is not None and self._by_ssrc.get(member.ssrc) is member:
            del self._by_ssrc[member.ssrc]
        member.ssrc = ssrc
        self._by_ssrc.setdefault(ssrc, member)

    def leave(self, member: Member) -> None:
        """The call is over."""
        if self._by_ufrag.get(member.handle.ufrag) is member:
            del self._by_ufrag[member.handle.ufrag]
        if member.ssrc is not None and self._by_ssrc.get(member.ssrc) is member:
            del self._by_ssrc[member.ssrc]
        for key in member.addresses:
            if self._by_address.get(key) is member:
                del self._by_address[key]
        member.addresses.clear()

    def _left(self, member: Member, index: int) -> None:
        side = member.sides.pop(index, None)
        if side is not None:
            side.lost()
        if not member.sides:
            self.leave(member)

    # ---- datagrams --------------------------------------------------------------------------------------------------

    def clocked(self, calls: int) -> None:
        """The media clock has ticked, with so many calls on it. With many calls it is the clock that has the socket looked at,
        every few ms, and not each packet that wakes the process: waking costs more than a packet does."""
        paused = calls >= CLOCKED_FROM
        for entry in self._sockets:
            if paused is not entry.paused:
                entry.paused = paused
                if paused:
                    self._loop.remove_reader(entry.sock.fileno())
                else:
                    self._loop.add_reader(entry.sock.fileno(), self._drain, entry)
            if paused:
                self._drain(entry)

    def _drain(self, entry: _Socket) -> None:
        """Handle what has come."""
        receive = entry.sock.recvfrom
        for _ in range(DRAIN):
            try:
                data, address = receive(2048)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                continue  # an ICMP error of an earlier datagram
            if data:
                self._datagram(entry.index, data, address)

    def _datagram(self, index: int, data: bytes, address: Address) -> None:
        member = self._by_address.get((index, address))
        first = data[0]
        if 127 < first < 192:
            if member is not None and member.receiver.media(data):
                member.receiver.alive()
            else:
                self._moved(index, data, address, member)
        elif first < 4:
            self._stun(index, data, address, member)
        elif member is not None and 19 < first < 64 and index in member.sides:
            member.sides[index].dtls(data)
        else:
            self.stray += 1

    def _stun(self, index: int, data: bytes, address: Address, member: Member | None) -> None:
        if len(data) < 20 or data[4:8] != _COOKIE:
            self.stray += 1
            return
        if data[:2] == BINDING_REQUEST:
            owner = self._by_ufrag.get(_local_ufrag(data) or "")
            if owner is None or not authentic(data, owner.handle.password):
                self.stray += 1
                return
            if owner is not member and not self._learn(owner, index, address):
                return
            member = owner
        if member is None or index not in member.sides:
            self.stray += 1
        elif member.sides[index].stun(data, address):
            member.receiver.alive()

    def _moved(self, index: int, data: bytes, address: Address, known: Member | None) -> None:
        """Media from an address that nobody knows: a caller whose NAT has given it a new port, if its keys say so. Also from
        that of another call (`known`), which may have claimed it with a forged source address."""
        member = self._by_ssrc.get(int.from_bytes(data[8:12], "big")) if len(data) >= 12 else None
        if member is None or member is known or index not in member.sides or not member.receiver.media(data):
            self.stray += known is None
            return
        member.receiver.alive()
        if self._learn(member, index, address):
            member.sides[index].follow(address)

    def _learn(self, member: Member, index: int, address: Address) -> bool:
        key = (index, address)
        if len(member.addresses) >= MAX_ADDRESSES and key not in member.addresses:
            self.stray += 1
            return False
        member.addresses.add(key)
        before = self._by_address.get(key)
        if before is not None and before is not member:
            before.addresses.discard(key)
        self._by_address[key] = member
        return True


def _local_ufrag(data: bytes) -> str | None:
    """Our half of the USERNAME attribute of a STUN message."""
    position = 20
    while position + 4 <= len(data):
        kind, length = int.from_bytes(data[position : position + 2], "big"), int.from_bytes(data[position + 2 : position + 4], "big")
        if kind == _USERNAME:
            return data[position + 4 : position + 4 + length].split(b":", 1)[0].decode("ascii", "replace")
        position += 4 + length + (-length % 4)
    return None


def _own_addresses() -> list[str]:
    """The IPv4 addresses of this machine, 127.0.0.1 last."""
    found = [ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips if isinstance(ip.ip, str)]
    addresses = [address for address in dict.fromkeys(found) if not ipaddress.ip_address(address).is_loopback]
    return [*addresses, "127.0.0.1"]


def _bind(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """A non-blocking socket on each host, all on the same port. Raises OSError."""
    sockets: list[socket.socket] = []
    try:
        for host in hosts:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sockets.append(sock)
            sock.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                sock.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BUFFER)
            sock.bind((host, port))
            port = sock.getsockname()[1]
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets
