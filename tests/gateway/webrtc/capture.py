"""What this process sends: every socket call as Python's audit events tell it, and packets off the wire where that is allowed."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from typing import Any

EVENTS = ("socket.sendto", "socket.sendmsg", "socket.connect", "socket.getaddrinfo", "socket.gethostbyname")
ALL_PROTOCOLS = 3

_listening: list[list[tuple[str, Any]]] = []
_hooked: list[bool] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _listening and event in EVENTS:
        target = arguments[1] if event in EVENTS[:3] else arguments[0]
        for calls in _listening:
            calls.append((event, target))


class Capture:
    """See `capturing`."""

    def __init__(self, wire: socket.socket | None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._wire = wire
        self._on_the_wire: set[str] = set()

    @property
    def udp(self) -> list[Any]:
        """Where datagrams were sent by this process, in order."""
        return [target for event, target in self.calls if event in ("socket.sendto", "socket.sendmsg")]

    @property
    def named(self) -> set[str]:
        """Every host that this process asked for, connected to or sent to."""
        hosts = [target[0] if isinstance(target, tuple) else target for _, target in self.calls]
        return {host.decode() if isinstance(host, bytes) else str(host) for host in hosts}

    def on_the_wire(self) -> set[str]:
        """IPv4 destinations of every packet of the machine since the start; empty without the right to look."""
        while self._wire is not None:
            try:
                packet = self._wire.recv(64)
            except BlockingIOError:
                break
            if len(packet) >= 20 and packet[0] >> 4 == 4:
                self._on_the_wire.add(socket.inet_ntoa(packet[16:20]))
        return self._on_the_wire


@contextlib.contextmanager
def capturing() -> Iterator[Capture]:
    """Look at what is sent while this lasts."""
    if not _hooked:
        sys.addaudithook(_hook)  # cannot be taken out again: it is told once, and does nothing while nobody listens
        _hooked.append(True)
    with contextlib.ExitStack() as stack:
        wire = None
        if sys.platform == "linux":
            with contextlib.suppress(PermissionError):
                wire = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PROTOCOLS)))
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * 1024 * 1024)
                wire.setblocking(False)
        capture = Capture(wire)
        _listening.append(capture.calls)
        try:
            yield capture
        finally:
            _listening[:] = [calls for calls in _listening if calls is not capture.calls]
