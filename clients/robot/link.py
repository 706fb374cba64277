"""One connection to the policy's server, opened again whenever it is lost, and at most one request on it at a time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from .connection import PolicyConnection
from .errors import NoReply, PolicyUnreachable, Refused
from .policy import PolicyInfo

Open = Callable[[], Awaitable[PolicyConnection]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Seconds to wait before the next try: doubled each time, up to a limit, and of that a random half to whole."""

    first_s: float = 0.1
    most_s: float = 5.0

    def wait(self, failures: int, random_: random.Random) -> float:
        """After so many failures in a row (at least 1)."""
        whole = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30))
        return whole * random_.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A request on its way; its reply is given up after `timeout_s`."""

    sequence: int
    frame: bytes
    timeout_s: float


class Listener(Protocol):
    """Who is told what happens on the link, from the link's task."""

    def opened(self, policy: PolicyInfo) -> None:
        """There is a connection. May raise what ends the link for good."""

    def replied(self, sequence: int, frame: bytes) -> bool:
        """The reply of a request; is it a good one? Raises `PolicyUnreachable` if the connection is of no use any more."""

    def lost(self, error: PolicyUnreachable | None) -> None:
        """There is none any more (or none could be opened); what was on its way will not come. None: by our own wish."""


class Link:
    """See the module's docstring. `run` is its life: it ends by being cancelled, or with an error for which trying again is no remedy."""

    def __init__(self, open_: Open, listener: Listener, backoff: Backoff, random_: random.Random) -> None:
        self._open = open_
        self._listener = listener
        self._backoff = backoff
        self._random = random_
        self._connection: PolicyConnection | None = None
        self._request: Outgoing | None = None
        self._abandoned = 0
        """Replies that are still to come and that nobody waits for. They come in order, before that of the request on its way."""
        self._wanted = asyncio.Event()
        self._answered = asyncio.Event()
        self._leaving = asyncio.Event()
        self._failures = 0

    async def run(self) -> None:
        """Keep a connection. Raises `Refused` and whatever the listener raises."""
        while True:
            try:
                connection = await self._open()
            except PolicyUnreachable as error:
                self._listener.lost(error)
            else:
                if await self._use(connection):
                    continue
            self._failures += 1
            await asyncio.sleep(self._backoff.wait(self._failures, self._random))

    def send(self, request: Outgoing) -> None:
        """Send a request. Raises `RuntimeError` while another is on its way."""
        if self._request is not None or self._leaving.is_set():
            raise RuntimeError("a request is on its way: its reply could be taken for this one's")
        self._request = request
        self._wanted.set()

    def renew(self) -> bool:
        """If a request is on its way: give it up with its connection, so that its reply cannot be taken for a later one's.
        Was there one?"""
        if self._request is None:
            return False
        self._leaving.set()
        return True

    def abandon(self) -> None:
        """If a request is on its way: its reply will not be listened to. Only for servers that answer each request, in order, and say
        which one they answer; see `renew` for others."""
        if self._request is None:
            return
        if self._wanted.is_set():  # it has not left yet
            self._wanted.clear()
        else:
            self._abandoned += 1
            self._answered.set()
        self._request = None

    async def last_word(self, frame: bytes, timeout_s: float) -> None:
        """Send a request whose reply does not matter, if there is a connection: nothing follows it, not even a request that has not left
        yet. The link is to be cancelled then."""
        self.abandon()
        if self._connection is None:
            return
        with contextlib.suppress(TimeoutError, PolicyUnreachable, Refused):
            async with asyncio.timeout(timeout_s):
                await self._connection.send(frame)

    async def _use(self, connection: PolicyConnection) -> bool:
        """Use a connection until it ends; True: by our own wish. Raises `Refused`, or what the listener raises."""
        why: PolicyUnreachable | None = None
        try:
            self._listener.opened(connection.policy)
            self._connection = connection
            await self._serve(connection)
        except PolicyUnreachable as error:
            why = error
        finally:
            self._connection = self._request = None
            self._abandoned = 0
            self._wanted.clear()
            self._leaving.clear()
            self._listener.lost(why)
            await connection.close()
        return why is None

    async def _serve(self, connection: PolicyConnection) -> None:
        parts = [
            asyncio.create_task(part, name=f"robot link: {name}")
            for part, name in (
                (self._write(connection), "write"),
                (self._read(connection), "read"),
                (self._leaving.wait(), "leave"),
            )
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for task in parts:  # in this order: a time-out or a wrong message is the cause, the closing its effect
                if task in done:
                    task.result()
        finally:
            for task in parts:
                task.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _write(self, connection: PolicyConnection) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._answered.clear()
            request = self._request
            if request is None:
                continue
            try:
                async with asyncio.timeout(request.timeout_s):
                    await connection.send(request.frame)
                    await self._answered.wait()
            except TimeoutError:
                # The next frame would be this request's chunk: the connection must go.
                raise NoReply(f"No reply came within {request.timeout_s:g} s.") from None

    async def _read(self, connection: PolicyConnection) -> None:
        while True:
            frame = await connection.receive()
            if self._leaving.is_set():
                return
            if self._abandoned:
                self._abandoned -= 1
                continue
            request, self._request = self._request, None
            if request is None:
                raise PolicyUnreachable("The server sent a reply that nobody had asked for.")
            self._answered.set()
            if self._listener.replied(request.sequence, frame):
                self._failures = 0
