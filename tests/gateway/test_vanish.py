"""Clients that vanish, at any point and in any way, leave nothing behind: five hundred of them, against a server of eight places."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from antiphon.tests.gateway.outside import TONE, Footprint, Outside, RawSocket, append, ask, eventually, frame, handshake

CYCLES = 500
AT_ONCE = 12
RSS_MARGIN_MB = 24.0
"""What the allocators may keep of the rush; a session that stayed would hold some 0.3 MB."""
LONG = "This is a rather long sentence, so that the tone goes on for a good while, longer than the lead. " * 3


def half_a_handshake(raw: RawSocket, chance: random.Random) -> None:
    request = handshake()
    raw.sock.sendall(request[: chance.randrange(len(request))])


def handshake_without_waiting(raw: RawSocket, chance: random.Random) -> None:
    raw.sock.sendall(handshake())


def hello_only(raw: RawSocket, chance: random.Random) -> None:
    raw.handshake()


def half_an_event(raw: RawSocket, chance: random.Random) -> None:
    raw.handshake()
    data = frame(json.dumps(append(TONE)).encode())
    raw.sock.sendall(data[: chance.randrange(len(data))])


def in_the_middle_of_speech(raw: RawSocket, chance: random.Random) -> None:
    raw.handshake()
    for _ in range(chance.randrange(1, 15)):
        raw.send(append(TONE))


def in_the_middle_of_a_response(raw: RawSocket, chance: random.Random) -> None:
    raw.handshake()
    for event in ask(LONG):
        raw.send(event)
    wanted = chance.choice([b"response.created", b"response.output_audio.delta"])
    seen = b""
    while wanted not in seen and (part := raw.sock.recv(65536)):
        seen = seen[-100:] + part


def with_many_responses(raw: RawSocket, chance: random.Random) -> None:
    raw.handshake()
    for _ in range(4):
        for event in ask(LONG, conversation="none"):
            raw.send(event)
    time.sleep(chance.random() * 0.1)


def after_a_close_frame(raw: RawSocket, chance: random.Random) -> None:
    raw.handshake()
    raw.send(ask(LONG)[0])
    raw.sock.sendall(frame(b"\x03\xe8", 8))


MANNERS: list[Callable[[RawSocket, random.Random], None]] = [
    half_a_handshake,
    handshake_without_waiting,
    hello_only,
    half_an_event,
    in_the_middle_of_speech,
    in_the_middle_of_a_response,
    with_many_responses,
    after_a_close_frame,
]


def vanish(server: Outside, number: int) -> None:
    """Come, do something, and go without a word: by RST, or by FIN with the reading side open for a while."""
    chance = random.Random(number)
    raw = server.raw()
    raw.sock.settimeout(5)
    with contextlib.suppress(OSError):  # refused, since the server is full: that is a way to come, too
        MANNERS[number % len(MANNERS)](raw, chance)
        if number // len(MANNERS) % 2:
            raw.sock.shutdown(socket.SHUT_WR)
            raw.drain(chance.random() * 0.2)
    raw.reset()


def rush(server: Outside, numbers: range) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(lambda number: vanish(server, number), numbers):
            pass


def at_rest(server: Outside) -> Footprint:
    """The footprint once every session and every connection is gone."""
    eventually(lambda: (now := server.footprint()).sessions == 0 and now.running == 0 and now.tasks <= 15)
    time.sleep(0.5)
    return server.footprint()


@pytest.mark.timeout(180)
def test_five_hundred_vanish_and_nothing_stays(tone_server: Outside) -> None:
    rush(tone_server, range(64))  # warms up pools and allocators
    base = at_rest(tone_server)
    rush(tone_server, range(64, 64 + CYCLES))
    after = at_rest(tone_server)
    assert after.tasks <= base.tasks
    assert after.descriptors <= base.descriptors
    assert after.threads <= base.threads
    assert after.rss_mb <= base.rss_mb + RSS_MARGIN_MB, (base, after)
    metrics = tone_server.metrics()
    ended = sum(value for name, value in metrics.items() if name.startswith("antiphon_sessions_ended_total"))
    assert ended == metrics["antiphon_sessions_started_total"]
    assert metrics["antiphon_sessions_waiting"] == 0


def test_who_vanishes_while_waiting_for_a_place_takes_none(tone_server: Outside) -> None:
    base = at_rest(tone_server)
    holders = [tone_server.raw() for _ in range(8)]
    for holder in holders:
        assert holder.handshake().startswith(b"HTTP/1.1 101")
    for number in range(12):
        waiting = tone_server.raw()
        waiting.sock.sendall(handshake())
        eventually(lambda: tone_server.metrics()["antiphon_sessions_waiting"] == 1)
        if number % 2:
            waiting.sock.shutdown(socket.SHUT_WR)
        else:
            waiting.reset()
        eventually(lambda: tone_server.metrics()["antiphon_sessions_waiting"] == 0)
        waiting.sock.close()
    # Three wait and one of them vanishes in the very moment in which a place becomes free: the place goes to the next.
    waiters = [tone_server.raw() for _ in range(3)]
    for waiter in waiters:
        waiter.sock.sendall(handshake())
    eventually(lambda: tone_server.metrics()["antiphon_sessions_waiting"] == 3)
    holders[0].reset()
    waiters[0].reset()
    holders[1].reset()
    assert waiters[1].sock.recv(12) == b"HTTP/1.1 101"
    for raw in (*holders[2:], *waiters[1:]):
        raw.reset()
    after = at_rest(tone_server)
    assert after.descriptors <= base.descriptors
    assert after.tasks <= base.tasks


def test_a_client_that_closes_without_reading_is_cut(tone_server: Outside) -> None:
    """Its answer does not fit into the kernel's buffers any more, so the connection cannot close by itself."""
    base = at_rest(tone_server)
    raw = tone_server.raw(receive_buffer=4096)
    raw.handshake()
    for _ in range(3):
        raw.send({"type": "session.update", "session": {"type": "realtime", "instructions": "word " * 100_000}})
    time.sleep(0.5)
    raw.sock.sendall(frame(b"\x03\xe8", 8))
    eventually(lambda: tone_server.footprint().descriptors <= base.descriptors, within=15)
    at_rest(tone_server)
    raw.reset()
