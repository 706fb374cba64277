"""Whole connections with a stock aiortc caller, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading

import psutil
import pytest
from aiortc import RTCRtpSender
from antiphon.codecs import pcm
from antiphon.gateway.transports.webrtc.errors import PeerFailed
from antiphon.gateway.transports.webrtc.udp_mux import CLOCKED_FROM, MAX_ADDRESSES
from antiphon.tests.gateway.webrtc.caller import TONE, Caller, answer, eventually, house, in_call


async def test_audio_and_events_go_both_ways() -> None:
    async with house() as home, in_call(home) as (caller, call):
        caller.microphone.put(TONE)
        call.peer.sender.play(TONE, epoch=0, response_id="r")
        call.channels[0].send("hello")
        await eventually(lambda: caller.messages == ["hello"])
        await asyncio.sleep(1.2)
        assert call.seconds > 1
        assert sum(samples for _, samples in call.delivered) == 24_000
        await eventually(lambda: len(caller.heard) > 50)
        assert call.peer.receiver.stats.concealed == 0
        assert call.peer.receiver.packets_lost == 0


async def test_a_caller_without_opus_speaks_g711() -> None:
    async with house(connect_timeout_s=5) as home:
        caller = Caller()
        caller.connection.getTransceivers()[0].setCodecPreferences(
            [codec for codec in RTCRtpSender.getCapabilities("audio").codecs if codec.mimeType == "audio/PCMU"]
        )
        call = answer(home, await caller.offer())
        assert "a=rtpmap:0 PCMU/8000" in call.answer
        await caller.take(call.answer)
        await call.peer.connect()
        caller.microphone.put(TONE)
        call.peer.sender.play(TONE, epoch=0, response_id="r")
        await eventually(lambda: call.seconds > 1)
        assert max(pcm.rms(block) for block in call.heard) > 0.15
        await eventually(lambda: caller.level > 4000)
        await call.peer.close()
        await caller.close()


async def test_a_purge_is_heard_as_silence_at_once() -> None:
    async with house() as home, in_call(home) as (caller, call):
        call.peer.sender.play(TONE + TONE[:24_000], epoch=0, response_id="r")
        await eventually(lambda: caller.level > 1000)
        encoded = call.peer.sender.stats.encoded
        call.peer.sender.purge(1)
        assert call.peer.sender.queued == 0
        await asyncio.sleep(0.5)
        delivered = sum(samples for _, samples in call.delivered)
        assert delivered <= encoded * 480
        await eventually(lambda: caller.level < 50)


async def test_a_caller_who_hangs_up_ends_the_call_at_once() -> None:
    async with house() as home, in_call(home) as (caller, call):
        await caller.connection.close()
        async with asyncio.timeout(3):
            await call.peer.ended()
        assert call.peer.reason == "closed"


async def test_a_server_that_hangs_up_is_noticed() -> None:
    async with house() as home, in_call(home) as (caller, call):
        await call.peer.close()
        await eventually(lambda: caller.connection.connectionState == "closed")
        assert len(home.mux) == 0
        assert len(home.ticker) == 0


async def test_a_caller_who_never_comes_is_given_up() -> None:
    async with house(connect_timeout_s=0.3) as home:
        caller = Caller()
        call = answer(home, await caller.offer())
        with pytest.raises(PeerFailed) as failure:
            await call.peer.connect()
        assert failure.value.reason == "timeout"
        await call.peer.close()
        await caller.close()
        assert len(home.mux) == 0


async def test_a_wrong_fingerprint_closes_the_call() -> None:
    async with house(connect_timeout_s=5) as home:
        caller = Caller()
        offer = await caller.offer()
        lines = [
            line if not line.startswith("a=fingerprint") else line[:-2] + ("00" if line[-2:] != "00" else "11")
            for line in offer.split("\r\n")
        ]
        call = answer(home, "\r\n".join(lines))
        await caller.take(call.answer)
        with pytest.raises(PeerFailed) as failure:
            await call.peer.connect()
        assert failure.value.reason == "dtls"
        await call.peer.close()
        await caller.close()


async def test_a_caller_who_falls_silent_is_suspected_then_given_up() -> None:
    async with house(suspect_after_s=0.5, close_after_s=1.2) as home, in_call(home) as (caller, call):
        call.peer.sender.play(TONE, epoch=0, response_id="r")
        for protocol in caller.connection.getTransceivers()[0].sender.transport.transport._connection._protocols:
            protocol.transport.abort()  # as if the process had been killed
        async with asyncio.timeout(5):
            await call.peer.ended()
        assert call.peer.reason == "silent"
        assert call.lives == ["suspect"]


async def test_a_nat_that_gives_the_caller_a_new_port_goes_unnoticed() -> None:
    """The caller's socket is replaced mid-call: what it says arrives without a gap, and what it hears follows within a moment."""
    async with house() as home, in_call(home) as (caller, call):
        for _ in range(3):
            caller.microphone.put(TONE)
        await eventually(lambda: call.seconds > 0.5)
        agent = caller.connection.getTransceivers()[0].sender.transport.transport._connection
        side = agent._nominated[1].protocol
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: Redirect(side), local_addr=(side.local_candidate.host, 0))
        old, side.transport = side.transport, transport
        before, heard = call.peer.receiver.packets_lost, len(caller.heard)
        for _ in range(50):
            await asyncio.sleep(0.02)
        assert call.peer.receiver.packets_lost - before <= 1
        new = transport.get_extra_info("sockname")[1]
        await eventually(lambda: call.peer._handle.selected()[1][1] == new)  # type: ignore[index]
        call.peer.sender.play(TONE, epoch=0, response_id="r")
        await eventually(lambda: len(caller.heard) > heard + 20)
        old.close()


class Redirect(asyncio.DatagramProtocol):
    """Hands datagrams of a new socket to the old one's protocol."""

    def __init__(self, side: asyncio.DatagramProtocol) -> None:
        self._side = side

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self._side.datagram_received(data, address)


async def test_candidates_of_an_offer_are_never_dialled() -> None:
    async with house(connect_timeout_s=0.6) as home:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim:
            victim.bind(("127.0.0.1", 0))
            victim.setblocking(False)
            caller = Caller()
            lines = (await caller.offer()).split("\r\n")
            foreign = f"a=candidate:1 1 udp 2130706431 127.0.0.1 {victim.getsockname()[1]} typ host"
            lines = [foreign if line.startswith("a=candidate") else line for line in lines]
            call = answer(home, "\r\n".join([line for line in lines if line != "a=end-of-candidates"]))
            with pytest.raises(PeerFailed):
                await call.peer.connect()
            await call.peer.close()
            await caller.close()
            with pytest.raises(BlockingIOError):
                victim.recv(2000)


async def test_strangers_get_nothing_and_change_nothing() -> None:
    async with house() as home, in_call(home) as (_, call):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.setblocking(False)
            stranger.bind(("127.0.0.1", 0))
            address = ("127.0.0.1", home.mux.port)
            media = bytes([0x80, 111]) + bytes(6) + (call.peer.receiver.ssrc or 0).to_bytes(4, "big") + bytes(60)
            request = bytes.fromhex("000100082112a442") + bytes(12) + bytes.fromhex("00060004") + b"abcd"
            for data in (b"x", b"", media, request, bytes([22]) + bytes(50), bytes(20), bytes([0, 1, 0, 200]) + bytes(16)):
                stranger.sendto(data, address)
            await asyncio.sleep(0.2)
            with pytest.raises(BlockingIOError):
                stranger.recv(2000)
        assert home.mux.stray >= 4
        assert {a for _, a in call.peer._member.addresses if a[1] == stranger} == set()
        assert len(call.peer._member.addresses) <= MAX_ADDRESSES


async def test_with_many_calls_the_clock_looks_at_the_socket_and_with_few_the_loop_does() -> None:
    async with house() as home, contextlib.AsyncExitStack() as calls:
        pairs = [await calls.enter_async_context(in_call(home)) for _ in range(CLOCKED_FROM)]
        await eventually(lambda: all(entry.paused for entry in home.mux._sockets))
        for caller, _ in pairs:
            caller.microphone.put(TONE[:24_000])
        await eventually(lambda: all(call.seconds > 0.5 for _, call in pairs), within=10)
        await calls.aclose()
        assert not any(entry.paused for entry in home.mux._sockets)
        async with in_call(home) as (caller, call):
            caller.microphone.put(TONE[:24_000])
            await eventually(lambda: call.seconds > 0.3)


def threads() -> list[str]:
    """All but those of the stock caller's encoders."""
    return sorted(thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio_"))


async def test_many_calls_come_and_go_without_a_trace() -> None:
    process = psutil.Process()
    async with house() as home:

        async def one() -> None:
            async with in_call(home) as (caller, call):
                caller.microphone.put(TONE[:9600])
                call.peer.sender.play(TONE[:9600], epoch=0, response_id="r")
                await asyncio.sleep(0.1)

        await one()
        gc.collect()
        base = (len(asyncio.all_tasks()), process.num_fds(), threads())
        for _ in range(5):
            await asyncio.gather(*(one() for _ in range(3)))
        await asyncio.sleep(0.3)
        gc.collect()
        now = (len(asyncio.all_tasks()), process.num_fds(), threads())
        assert now[0] <= base[0]
        assert now[1] <= base[1] + 1
        assert now[2] == base[2]
        assert len(home.mux) == 0
        assert home.mux._by_address == {}
        assert home.mux._by_ssrc == {}
