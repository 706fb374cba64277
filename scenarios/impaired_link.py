"""A bad network between a caller and a server, in user space: loss, bursts, delay, jitter, reordering, and a NAT that moves.

`ImpairedLink.rewrite` puts the link's address into an answer, so that every datagram of the call crosses it.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

_CANDIDATE = re.compile(r"(a=candidate:\S+ 1 udp \d+ )(\S+) (\d+)( typ host)")
Address = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class Impairment:
    """What happens to datagrams in one direction. Probabilities 0 to 1, times in seconds."""

    loss: float = 0.0
    burst: tuple[float, float] | None = None
    """(good to bad, bad to good) of a two-state channel that loses everything while it is bad."""
    delay: float = 0.0
    jitter: float = 0.0
    """Mean of an exponentially distributed extra delay."""
    reorder: bool = False
    """Whether jitter may change the order."""
    duplicate: float = 0.0
    blackout: bool = False
    """Lose everything, signalling of the connection included."""
    media_only: bool = True
    """Lose RTP only, not STUN, DTLS and RTCP."""


class ImpairedLink:
    """One call's link. `up` is from the caller to the server."""

    def __init__(self, *, seed: int = 1, up: Impairment | None = None, down: Impairment | None = None) -> None:
        self.up = up or Impairment()
        self.down = down or Impairment()
        self.passed = {"up": 0, "down": 0}
        self.dropped = {"up": 0, "down": 0}
        self._random = random.Random(seed)
        self._bad = {"up": False, "down": False}
        self._last_due = {"up": 0.0, "down": 0.0}
        self._server: Address = ("", 0)
        self._caller: Address | None = None
        self._front: asyncio.DatagramTransport | None = None
        self._back: asyncio.DatagramTransport | None = None

    async def rewrite(self, answer: str) -> str:
        """Open the link towards the server that `answer` names, and give the answer with the link's own address."""
        found = _CANDIDATE.search(answer)
        if found is None:
            raise ValueError("the answer names no host candidate")
        self._server = (found[2], int(found[3]))
        loop = asyncio.get_running_loop()
        self._front, _ = await loop.create_datagram_endpoint(lambda: _Side(self._from_caller), local_addr=("127.0.0.1", 0))
        await self.rebind()
        port = self._front.get_extra_info("sockname")[1]
        return _CANDIDATE.sub(rf"\g<1>127.0.0.1 {port}\g<4>", answer)

    async def rebind(self) -> None:
        """Give the caller a new source port towards the server, as a NAT does that forgot its mapping."""
        old = self._back
        loop = asyncio.get_running_loop()
        self._back, _ = await loop.create_datagram_endpoint(lambda: _Side(self._from_server), local_addr=("127.0.0.1", 0))
        if old is not None:
            old.close()

    def close(self) -> None:
        """Cut the link."""
        for transport in (self._front, self._back):
            if transport is not None:
                transport.close()

    def _from_caller(self, data: bytes, address: Address) -> None:
        self._caller = address
        self._carry("up", self.up, data, self._to_server)

    def _from_server(self, data: bytes, address: Address) -> None:
        self._carry("down", self.down, data, self._to_caller)

    def _to_server(self, data: bytes) -> None:
        if self._back is not None and not self._back.is_closing():
            self._back.sendto(data, self._server)

    def _to_caller(self, data: bytes) -> None:
        if self._front is not None and self._caller is not None and not self._front.is_closing():
            self._front.sendto(data, self._caller)

    def _carry(self, way: str, impairment: Impairment, data: bytes, send: Callable[[bytes], None]) -> None:
        if impairment.blackout or ((_is_media(data) or not impairment.media_only) and self._loses(way, impairment)):
            self.dropped[way] += 1
            return
        self.passed[way] += 1
        delay = impairment.delay + (self._random.expovariate(1 / impairment.jitter) if impairment.jitter else 0.0)
        if delay and not impairment.reorder:
            now = time.monotonic()
            due = max(now + delay, self._last_due[way] + 1e-5)
            self._last_due[way] = due
            delay = due - now
        for _ in range(2 if self._random.random() < impairment.duplicate else 1):
            if delay:
                asyncio.get_running_loop().call_later(delay, send, data)
            else:
                send(data)

    def _loses(self, way: str, impairment: Impairment) -> bool:
        if impairment.burst is not None:
            to_bad, to_good = impairment.burst
            self._bad[way] = self._random.random() > to_good if self._bad[way] else self._random.random() < to_bad
            if self._bad[way]:
                return True
        return self._random.random() < impairment.loss


class _Side(asyncio.DatagramProtocol):
    def __init__(self, received: Callable[[bytes, Address], None]) -> None:
        self._received = received

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._received(data, addr)


def _is_media(data: bytes) -> bool:
    """RTP, and not RTCP, STUN or DTLS."""
    return len(data) > 1 and 127 < data[0] < 192 and not 192 <= data[1] <= 223
