"""Callers, pages and strangers who mean no good: nothing goes where it should not, nothing stops, nothing grows."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jwt
import pytest
import websockets
from antiphon.gateway import routes_calls
from antiphon.gateway.transports.webrtc.aiortc_hooks import MAX_QUEUED_DATAGRAMS
from antiphon.scenarios.impairment import bad_offers
from antiphon.tests.gateway.conftest import RunningServer, eventually, serving
from antiphon.tests.gateway.webrtc.caller import house, in_call
from antiphon.tests.gateway.webrtc.capture import capturing
from antiphon.tests.gateway.webrtc.offers import CHROMIUM

AUDIO_ONLY = CHROMIUM.split("m=application")[0].replace("BUNDLE 0 1", "BUNDLE 0")
SDP = {"Content-Type": "application/sdp"}
FOREIGN = ("198.51.100.7", "203.0.113.9", "192.0.2.44")


def http(server: RunningServer, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=15, **options)


# ---- not one packet to a foreign address ------------------------------------------------------------------------------


def test_the_capture_sees_what_is_sent() -> None:
    with capturing() as capture, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.sendto(b"x", sock.getsockname())
        assert capture.udp == [sock.getsockname()]
        assert capture.named == {"127.0.0.1"}


async def test_whatever_an_offer_names_gets_not_one_packet() -> None:
    candidates = (
        *(f"a=candidate:1 1 udp 2130706431 {host} 9 typ host" for host in FOREIGN),
        "a=candidate:2 1 udp 1 203.0.113.9 9 typ srflx raddr 192.0.2.44 rport 9",
        "a=candidate:3 1 udp 1 203.0.113.9 9 typ relay raddr 192.0.2.44 rport 9",
        "a=candidate:4 1 tcp 1 203.0.113.9 9 typ host tcptype passive",
        "a=candidate:5 1 udp 1 some-name.example 9 typ host",
        "a=remote-candidates:1 203.0.113.9 9",
        "a=rtcp:9 IN IP4 203.0.113.9",
    )
    foreign = CHROMIUM.replace("IN IP4 0.0.0.0", "IN IP4 203.0.113.9").replace("m=audio 9 ", "m=audio 4000 ")
    offers = [foreign.replace("a=setup:actpass", f"{line}\r\na=setup:{role}") for line in candidates for role in ("active", "passive")]
    async with serving(webrtc={"connect_timeout_s": 0.6}, registry={"capacity": 64}) as server, http(server, headers=SDP) as client:
        with capturing() as capture:
            for offer in offers:
                assert (await client.post("/v1/realtime/calls", content=offer)).status_code == 201
            for bad in bad_offers():
                assert 400 <= (await client.post("/v1/realtime/calls", content=bad)).status_code < 500
            await eventually(lambda: len(server.gateway.sessions) == 0, within=10)
            assert capture.udp == []
            assert capture.named <= {"127.0.0.1"}
            assert capture.on_the_wire().isdisjoint(FOREIGN)


# ---- datagrams --------------------------------------------------------------------------------------------------------


def stun(kind: int, *attributes: tuple[int, bytes]) -> bytes:
    body = b"".join(
        number.to_bytes(2, "big") + len(value).to_bytes(2, "big") + value + bytes(-len(value) % 4) for number, value in attributes
    )
    return kind.to_bytes(2, "big") + len(body).to_bytes(2, "big") + bytes.fromhex("2112a442") + bytes(12) + body


async def test_malformed_stun_breaks_nothing_and_is_not_kept() -> None:
    """Nobody needs a key to send these: the user name goes in the clear over the network."""
    async with house() as home, in_call(home) as (_, call):
        name = (6, f"{call.peer._handle.ufrag}:x".encode())
        (index, known), *_ = call.peer._member.addresses
        queue = call.peer._handle._agent._queue
        for kind in (0x0001, 0x0003, 0x0011, 0x0101, 0x0111):
            for wrong in ((0x24, b"\0\0"), (0x8029, b"\0"), (0x802A, b""), (0x20, b"\0"), (0x09, b"\0"), (0x13, b"\xff"), (0x08, b"\0")):
                for address in (known, ("127.0.0.1", 9)):
                    home.mux._datagram(index, stun(kind, name, wrong), address)
                    home.mux._datagram(index, stun(kind, name, wrong)[:-3], address)
        for _ in range(2 * MAX_QUEUED_DATAGRAMS):
            home.mux._datagram(index, stun(0x0011, (0x24, b"")), known)
        assert queue.qsize() <= MAX_QUEUED_DATAGRAMS // 2
        assert ("127.0.0.1", 9) not in {address for _, address in call.peer._member.addresses}


async def test_a_call_whose_address_another_claims_gets_it_back() -> None:
    """With a forged source address a caller can make the mux take somebody's address for its own: the next media settles it."""
    async with house() as home, in_call(home) as (_, victim), in_call(home) as (_, thief):
        await eventually(lambda: victim.seconds > 0.2)
        selected = victim.peer._handle.selected()
        assert selected is not None
        key = (0, selected[1])
        home.mux._learn(thief.peer._member, *key)
        assert home.mux._by_address[key] is thief.peer._member
        await eventually(lambda: home.mux._by_address[key] is victim.peer._member, within=1)
        assert victim.peer.receiver.packets_lost <= 1


async def test_audio_far_beyond_real_time_is_dropped_and_counted(server: RunningServer) -> None:
    assert server.gateway.calls is not None
    async with http(server, headers=SDP) as client:
        assert (await client.post("/v1/realtime/calls", content=CHROMIUM)).status_code == 201
    (call,) = server.gateway.calls.all()
    await eventually(lambda: call.connection._feed is not None)
    fed: list[Any] = []
    call.connection._feed = fed.append
    for _ in range(300):
        call.connection._heard(bytes(48_000))
    caps = server.gateway.settings.websocket_limits()
    assert caps.audio_burst_s - 1 <= len(fed) <= caps.audio_burst_s + 10
    assert call.report()["received"]["excess"] == 300 - len(fed)


# ---- the body of an offer -----------------------------------------------------------------------------------------------


async def test_a_form_of_unknown_length_is_measured_as_it_comes(server: RunningServer) -> None:
    async def form() -> AsyncIterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="sdp"; filename="offer.sdp"\r\n\r\n'
        for _ in range(20):
            yield bytes(64 * 1024)

    async with http(server) as client:
        response = await client.post("/v1/realtime/calls", content=form(), headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "offer_too_large")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"garbage", "multipart/form-data; boundary=x"),
        (b"--x\r\ngarbage", "multipart/form-data; boundary=x"),
        (b"--x", "multipart/form-data"),
        (
            b"".join(b'--x\r\nContent-Disposition: form-data; name="sdp"\r\n\r\nv=0\r\n' for _ in range(20)),
            "multipart/form-data; boundary=x",
        ),
        (
            b'--x\r\nContent-Disposition: form-data; name="sdp"; filename="a"\r\n\r\n\xff\xfe\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
        ),
        (b"sdp=%ff&session=[", "application/x-www-form-urlencoded"),
    ],
)
async def test_a_broken_form_is_a_json_error(server: RunningServer, content: bytes, kind: str) -> None:
    async with http(server) as client:
        response = await client.post("/v1/realtime/calls", content=content, headers={"Content-Type": kind})
    assert response.status_code == 400
    assert response.json()["error"]["message"]


async def test_a_session_nested_without_end_is_a_json_error(server: RunningServer) -> None:
    async with http(server) as client:
        response = await client.post("/v1/realtime/calls", files={"sdp": (None, CHROMIUM), "session": (None, "[" * 100_000)})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "session")


async def slow_caller(server: RunningServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A caller who has sent half of its offer."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/realtime/calls HTTP/1.1\r\nHost: x\r\nContent-Type: application/sdp\r\nContent-Length: {len(CHROMIUM)}\r\n\r\n"
    writer.write(head.encode() + CHROMIUM[:100].encode())
    await writer.drain()
    return reader, writer


async def test_an_offer_must_arrive_in_time(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_calls, "BODY_TIMEOUT", 0.2)
    reader, writer = await slow_caller(server)
    async with asyncio.timeout(5):
        assert (await reader.readline()).split()[1] == b"408"
    writer.close()


async def test_a_caller_who_vanishes_amid_its_offer_leaves_no_trace(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        _, writer = await slow_caller(server)
        await asyncio.sleep(0.1)
        writer.transport.abort()
        await asyncio.sleep(0.2)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(server.gateway.sessions) == 0


async def test_an_offer_that_began_before_the_drain_is_not_taken_after_it(server: RunningServer) -> None:
    reader, writer = await slow_caller(server)
    await asyncio.sleep(0.1)
    server.gateway.draining = True
    writer.write(CHROMIUM[100:].encode())
    async with asyncio.timeout(5):
        assert (await reader.readline()).split()[1] == b"503"
    writer.close()
    assert len(server.gateway.sessions) == 0


# ---- events -------------------------------------------------------------------------------------------------------------


async def test_a_call_without_a_data_channel_keeps_no_events_for_it(server: RunningServer) -> None:
    """They would pile up until the call was ended for not reading them; a sideband gets them."""
    assert server.gateway.calls is not None
    async with http(server, headers=SDP) as client:
        assert (await client.post("/v1/realtime/calls", content=AUDIO_ONLY)).status_code == 201
    (call,) = server.gateway.calls.all()
    async with websockets.connect(f"{server.ws}?call_id={call.call_id}") as socket_:
        assert json.loads(await socket_.recv())["type"] == "session.created"
        await socket_.send(json.dumps({"type": "session.update", "session": {"type": "realtime", "instructions": "Hm."}}))
        assert json.loads(await socket_.recv())["type"] == "session.updated"
    assert len(call.connection.outbox) == 0


async def test_nobody_joins_a_call_that_is_closing() -> None:
    async with serving(webrtc={"connect_timeout_s": 0.2}) as server, http(server, headers=SDP) as client:
        assert server.gateway.calls is not None
        assert (await client.post("/v1/realtime/calls", content=CHROMIUM)).status_code == 201
        (call,) = server.gateway.calls.all()
        await eventually(lambda: len(server.gateway.calls or ()) == 0)
        assert not call.connection.attach(call.connection)


# ---- foreign pages ------------------------------------------------------------------------------------------------------


async def test_a_foreign_page_can_neither_call_nor_join_nor_hang_up() -> None:
    """A form needs no leave of the browser's (it is a "simple request"): the server itself must look at where it comes from."""
    page = {"Origin": "https://page.example"}
    form = {"sdp": (None, CHROMIUM), "session": (None, '{"type": "realtime", "model": "tone"}')}
    async with serving() as server, http(server) as client:
        for options in ({"files": form}, {"content": CHROMIUM, "headers": {"Content-Type": "text/plain"}}, {"data": {"sdp": CHROMIUM}}):
            headers = {**options.pop("headers", {}), **page}  # type: ignore[dict-item]
            response = await client.post("/v1/realtime/calls", headers=headers, **options)
            assert (response.status_code, response.json()["error"]["code"]) == (403, "origin_not_allowed")
        assert len(server.gateway.sessions) == 0
        location = (await client.post("/v1/realtime/calls", files=form)).headers["location"]
        assert (await client.post(f"{location}/hangup", headers=page)).status_code == 403
        for route in ("/v1/realtime/calls", location, "/v1/realtime/ice-servers"):
            assert (await client.get(route, headers=page)).status_code == 403
        with pytest.raises(websockets.InvalidStatus) as refusal:
            await websockets.connect(f"{server.ws}?call_id={location.rpartition('/')[2]}", origin="https://page.example")  # type: ignore[arg-type]
        assert refusal.value.response.status_code == 403


async def test_a_page_of_an_allowed_origin_calls_with_a_form() -> None:
    page = {"Origin": "https://page.example"}
    async with serving(server={"cors_origins": ("https://page.example",)}) as server, http(server) as client:
        response = await client.post("/v1/realtime/calls", files={"sdp": (None, CHROMIUM)}, headers=page)
        assert response.status_code == 201
        assert response.headers["access-control-allow-origin"] == "https://page.example"
        assert "location" in response.headers["access-control-expose-headers"].lower()
        refused = await client.post("/v1/realtime/calls", files={"session": (None, "{}")}, headers=page)
        assert refused.headers["access-control-allow-origin"] == "https://page.example"  # or the page could not read why


# ---- forged keys --------------------------------------------------------------------------------------------------------


async def test_forged_keys_open_nothing() -> None:
    def part(value: Any) -> str:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    far = {"aud": "antiphon.realtime", "iat": 0, "exp": int(time.time()) + 10**9, "session": {"type": "realtime"}}
    forged = [
        f"ek_{part({'alg': 'none'})}.{part(far)}.",
        f"ek_{part({'alg': 'HS256', 'kid': '../../dev/null'})}.{part(far)}.{part(b'x' * 32)}",
        f"ek_{part({'alg': 'HS256', 'kid': 5})}.{part(far)}.AA",
        f"ek_{part(b'[' * 5_000)}.{part(far)}.AA",
        f"ek_{part([])}.{part(far)}.AA",
        "ek_" + jwt.encode(far, "not the server's secret, but long", algorithm="HS256"),
        "ek_",
        "ek_..",
        "ek_\u00e9.\u00ff.\u00fe",
    ]
    async with serving(server={"api_keys": ("sk-real",)}) as server, http(server, headers=SDP) as client:
        for key in forged:
            headers = {"Authorization": f"Bearer {key}".encode("latin-1")}
            response = await client.post("/v1/realtime/calls", content=CHROMIUM, headers=headers)  # type: ignore[arg-type]
            assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
        own = server.gateway.client_secrets.issue({"type": "realtime"}, 60)[0]
        head, body, signature = own.removeprefix("ek_").split(".")
        longer = json.loads(base64.urlsafe_b64decode(body + "=="))
        longer["exp"] += 10**6
        for key in (f"ek_{head}.{part(longer)}.{signature}", own[:-2], own + "A"):
            response = await client.post("/v1/realtime/calls", content=CHROMIUM, headers={"Authorization": f"Bearer {key}"})
            assert response.status_code == 401
