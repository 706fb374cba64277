"""Calls through the server's public routes: signalling, events, audio, interruptions, ends."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import websockets
from antiphon.clients.interface import ServerEvent
from antiphon.clients.webrtc import WebRtcClient, connect
from antiphon.codecs import pcm
from antiphon.scenarios.impairment import bad_offers
from antiphon.tests.gateway.conftest import RunningServer, eventually, serving
from antiphon.tests.gateway.webrtc.caller import Caller
from antiphon.tests.gateway.webrtc.offers import CHROMIUM

NOISE = (np.random.default_rng(1).standard_normal(24_000) * 6000).clip(-32768, 32767).astype("<i2").tobytes()
"""A second that the tone pipeline takes for speech."""
LONG = "This answer is a tone, and it goes on long enough to be cut short in the middle, which is what it is here for. " * 2


class Line:
    """A call and every event that came over it."""

    def __init__(self, client: WebRtcClient) -> None:
        self.client = client
        self.events: list[ServerEvent] = []

    async def read(self) -> None:
        async for event in self.client:
            self.events.append(event)

    def kinds(self) -> list[str]:
        return [event.type for event in self.events]

    async def until(self, wanted: str | Callable[[ServerEvent], bool], since: int = 0, within: float = 10.0) -> ServerEvent:
        test = (lambda event: event.type == wanted) if isinstance(wanted, str) else wanted
        async with asyncio.timeout(within):
            while True:
                for event in self.events[since:]:
                    if test(event):
                        return event
                await asyncio.sleep(0.01)

    async def ask(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        await self.client.send({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}})
        await self.client.send({"type": "response.create"})


@asynccontextmanager
async def calling(server: RunningServer, **options: Any) -> AsyncIterator[Line]:
    """A call that has said hello."""
    line = Line(await connect(server.url, model="tone", **options))
    reader = asyncio.create_task(line.read())
    try:
        await line.until("session.created")
        yield line
    finally:
        await line.client.close()
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


def http(server: RunningServer, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=15, **options)


# ---- signalling -----------------------------------------------------------------------------------------------------


async def test_a_raw_offer_is_answered_with_the_calls_location(server: RunningServer) -> None:
    async with http(server) as client:
        response = await client.post("/v1/realtime/calls?model=tone", content=CHROMIUM, headers={"Content-Type": "application/sdp"})
        assert response.status_code == 201
        assert response.headers["content-type"] == "application/sdp"
        assert response.text.startswith("v=0\r\n")
        location = response.headers["location"]
        assert location.startswith("/v1/realtime/calls/rtc_")
        assert (await client.get(location)).json()["object"] == "realtime.call"


async def test_forms_with_and_without_content_types_are_understood(server: RunningServer) -> None:
    session = json.dumps({"type": "realtime", "model": "tone", "instructions": "Be brief."})
    sdk = {"sdp": (None, CHROMIUM, "application/sdp"), "session": (None, session, "application/json")}
    browser = {"sdp": (None, CHROMIUM), "session": (None, session)}
    uploaded = {"sdp": ("offer.sdp", CHROMIUM, "application/sdp"), "session": ("session.json", session, "application/json")}
    async with http(server) as client:
        for form in (sdk, browser, uploaded):
            response = await client.post("/v1/realtime/calls", files=form)
            assert response.status_code == 201, response.text
        sessions = [live.conductor.session for live in server.gateway.sessions.all()]
        assert [session.config.instructions for session in sessions] == 3 * ["Be brief."]


async def test_the_openai_library_makes_and_ends_a_call(server: RunningServer) -> None:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        answer = await client.realtime.calls.create(sdp=CHROMIUM, session={"type": "realtime", "model": "tone"})
        call_id = answer.response.headers["location"].rpartition("/")[2]
        assert "m=audio" in answer.text
        await client.realtime.calls.hangup(call_id)
    assert server.gateway.calls is not None
    await eventually(lambda: len(server.gateway.calls or ()) == 0)


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        (CHROMIUM, "application/json", 415, "unsupported_content_type"),
        (b"", "application/sdp", 400, "invalid_offer"),
        (b"\xff\xfe", "application/sdp", 400, "invalid_offer"),
        (b"x" * 600_000, "application/sdp", 413, "offer_too_large"),
    ],
)
async def test_what_is_no_offer_is_a_json_error(server: RunningServer, content: Any, kind: str, status: int, code: str) -> None:
    async with http(server) as client:
        response = await client.post("/v1/realtime/calls", content=content, headers={"Content-Type": kind})
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert response.json()["error"]["message"].endswith(".")


@pytest.mark.parametrize(
    ("session", "param"),
    [("{", "session"), ("[]", "session"), ('{"instructions": 5}', "session.instructions"), ('{"bogus": 1}', "session.bogus")],
)
async def test_a_bad_session_is_a_json_error_that_names_it(server: RunningServer, session: str, param: str) -> None:
    async with http(server) as client:
        response = await client.post("/v1/realtime/calls", files={"sdp": (None, CHROMIUM), "session": (None, session)})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param
        missing = await client.post("/v1/realtime/calls", files={"session": (None, "{}")})
        assert missing.json()["error"]["code"] == "missing_required_parameter"


async def test_offers_that_nobody_means_well_with_are_refused(server: RunningServer) -> None:
    async with http(server, headers={"Content-Type": "application/sdp"}) as client:
        for offer in bad_offers():
            response = await client.post("/v1/realtime/calls", content=offer)
            assert 400 <= response.status_code < 500
            assert response.json()["error"]["message"]
    assert len(server.gateway.sessions) == 0


async def test_a_full_server_refuses_with_retry_after() -> None:
    async with serving(registry={"capacity": 1, "waiting": 0}) as server, http(server) as client:
        post = {"content": CHROMIUM, "headers": {"Content-Type": "application/sdp"}}
        assert (await client.post("/v1/realtime/calls", **post)).status_code == 201
        refusal = await client.post("/v1/realtime/calls", **post)
        assert refusal.status_code == 429
        assert int(refusal.headers["retry-after"]) > 0


async def test_pages_of_allowed_origins_may_read_the_location() -> None:
    async with serving(server={"cors_origins": ("https://page.example",)}) as server, http(server) as client:
        origin = {"Origin": "https://page.example"}
        ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type,x-openai-agents-sdk"}
        before = await client.options("/v1/realtime/calls", headers={**origin, **ask})
        assert before.status_code == 200
        assert "x-openai-agents-sdk" in before.headers["access-control-allow-headers"].lower()
        response = await client.post("/v1/realtime/calls", content=CHROMIUM, headers={**origin, "Content-Type": "application/sdp"})
        assert "location" in response.headers["access-control-expose-headers"].lower()


async def test_calls_can_be_switched_off() -> None:
    async with serving(webrtc={"enabled": False}) as server, http(server) as client:
        response = await client.post("/v1/realtime/calls", content=CHROMIUM, headers={"Content-Type": "application/sdp"})
        assert (response.status_code, response.json()["error"]["code"]) == (404, "calls_not_enabled")


async def test_turn_servers_are_announced_with_credentials_that_expire() -> None:
    table = {"stun_urls": ("stun:stun.example:3478",), "turn_urls": ("turns:turn.example:443?transport=tcp",), "turn_secret": "s"}
    async with serving(webrtc=table) as server, http(server) as client:
        stun, turn = (await client.get("/v1/realtime/ice-servers")).json()["ice_servers"]
        assert stun == {"urls": ["stun:stun.example:3478"]}
        assert turn["urls"] == ["turns:turn.example:443?transport=tcp"]
        assert int(turn["username"].split(":")[0]) > 1_700_000_000
        assert len(turn["credential"]) == 28


# ---- conversations --------------------------------------------------------------------------------------------------


async def test_a_spoken_turn_is_answered_by_voice(server: RunningServer) -> None:
    async with calling(server) as line:
        await line.client.send_audio(NOISE)
        done = await line.until("response.done", within=15)
        await line.until("output_audio_buffer.stopped")
        assert done.data["response"]["status"] == "completed"
        kinds = line.kinds()
        assert "response.output_audio.delta" not in [event.type for event in line.events if not event.audio]
        assert kinds.index("response.content_part.added") < kinds.index("output_audio_buffer.started") < kinds.index("response.done")
        assert kinds.index("response.done") < kinds.index("output_audio_buffer.stopped")
        heard = b"".join(event.audio for event in line.events)
        assert 0.8 < len(heard) / 48_000 < 2.5
        assert pcm.rms(heard) > 0.02
        assert (
            kinds.index("input_audio_buffer.speech_started") < kinds.index("input_audio_buffer.committed") < kinds.index("response.created")
        )
        await eventually(lambda: line.client.audio_frames > 20)
        call = server.gateway.calls.all()[0]  # type: ignore[union-attr]
        assert call.connection.peer.receiver.stats.concealed == 0
        assert call.connection.peer.sender.stats.refused_samples == 0


async def test_transcript_deltas_are_joined_and_nothing_of_them_is_lost(server: RunningServer) -> None:
    async with calling(server) as line:
        await line.ask("one two three four five six seven eight nine ten.")
        done = await line.until("response.output_audio_transcript.done")
        deltas = [event.data["delta"] for event in line.events if event.type == "response.output_audio_transcript.delta"]
        assert "".join(deltas) == done.data["transcript"]


async def test_clearing_the_output_stops_the_track_within_a_frame(server: RunningServer) -> None:
    async with calling(server) as line:
        await line.ask(LONG)
        await line.until("response.content_part.added")
        await asyncio.sleep(0.8)
        sender = server.gateway.calls.all()[0].connection.peer.sender  # type: ignore[union-attr]
        mark = len(line.events)
        await line.client.send({"type": "output_audio_buffer.clear"})
        await line.until("output_audio_buffer.cleared", mark)
        assert sender.queued == 0
        done = await line.until("response.done", mark)
        assert done.data["response"]["status"] == "cancelled"
        encoded = sender.stats.encoded
        await asyncio.sleep(0.7)
        assert sender.stats.encoded - encoded <= 31  # the fade, then silence until the encoder rests
        assert sender.queued == 0


async def test_speaking_over_the_assistant_interrupts_it(server: RunningServer) -> None:
    async with calling(server) as line:
        await line.ask(LONG)
        await line.until("response.content_part.added")
        await asyncio.sleep(0.5)
        await line.client.send_audio(NOISE + NOISE)
        done = await line.until("response.done")
        assert done.data["response"]["status_details"]["reason"] == "turn_detected"
        kinds = line.kinds()
        truncated = next(event for event in line.events if event.type == "conversation.item.truncated")
        assert 300 < truncated.data["audio_end_ms"] < 2_500
        assert kinds.index("output_audio_buffer.cleared") < kinds.index("response.done")
        assert server.gateway.calls.all()[0].connection.peer.sender.stats.purged_samples > 0  # type: ignore[union-attr]


async def test_bad_events_are_answered_and_the_call_lives_on(server: RunningServer) -> None:
    async with calling(server) as line:
        channel = line.client._channel
        channel.send("no json")
        await line.until(lambda event: event.type == "error" and event.data["error"]["code"] == "invalid_json")
        channel.send(b"\x00\x01")
        await line.until(lambda event: event.type == "error" and event.data["error"]["code"] == "invalid_frame")
        await line.ask("hello")
        await line.until("response.done")


async def test_an_event_above_the_callers_limit_is_refused_with_an_error() -> None:
    """The caller takes 20 kB at most. An item with 2 s of audio is more: it comes without. So is a session with long instructions."""
    async with serving() as server:
        caller = Caller()
        offer = (await caller.offer()).replace("a=max-message-size:262144", "a=max-message-size:20000")
        async with http(server) as client:
            response = await client.post("/v1/realtime/calls?model=tone", content=offer, headers={"Content-Type": "application/sdp"})
            await caller.take(response.text)
        await asyncio.wait_for(caller.opened.wait(), 10)
        audio = base64.b64encode(bytes(48_000)).decode()
        for start in range(0, len(audio), 16_000):
            caller.channel.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio[start : start + 16_000]}))
        caller.channel.send(
            json.dumps({"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"turn_detection": None}}}})
        )
        caller.channel.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio[:16_000]}))
        caller.channel.send(json.dumps({"type": "input_audio_buffer.commit"}))
        events: list[dict[str, Any]] = []

        def seen(kind: str) -> dict[str, Any] | None:
            events[:] = [json.loads(message) for message in caller.messages]
            return next((event for event in events if event["type"] == kind), None)

        await eventually(lambda: seen("input_audio_buffer.committed") is not None)
        committed = seen("input_audio_buffer.committed")
        assert committed is not None
        caller.channel.send(json.dumps({"type": "conversation.item.retrieve", "item_id": committed["item_id"]}))
        await eventually(lambda: seen("conversation.item.retrieved") is not None)
        retrieved = seen("conversation.item.retrieved")
        assert retrieved is not None
        assert "audio" not in retrieved["item"]["content"][0]
        caller.channel.send(json.dumps({"type": "session.update", "session": {"type": "realtime", "instructions": "be brief " * 2_300}}))
        await eventually(lambda: seen("error") is not None)
        error = seen("error")
        assert error is not None
        assert error["error"]["code"] == "event_too_large"
        assert "20000" in error["error"]["message"]
        await caller.close()


# ---- ends -----------------------------------------------------------------------------------------------------------


async def test_hanging_up_by_the_route_ends_the_call(server: RunningServer) -> None:
    async with calling(server) as line, http(server) as client:
        response = await client.post(f"/v1/realtime/calls/{line.client.call_id}/hangup")
        assert (response.status_code, response.content) == (200, b"")
        await eventually(lambda: line.client._ended)
        await eventually(lambda: len(server.gateway.sessions) == 0)
        again = await client.post(f"/v1/realtime/calls/{line.client.call_id}/hangup")
        assert (again.status_code, again.json()["error"]["code"]) == (404, "call_not_found")


async def test_a_caller_who_hangs_up_frees_the_session(server: RunningServer) -> None:
    async with calling(server) as line:
        await line.ask(LONG)
        await line.until("response.content_part.added")
    await eventually(lambda: len(server.gateway.sessions) == 0 and len(server.gateway.calls or ()) == 0)
    assert server.gateway.metrics.value("antiphon_sessions_ended_total", {"reason": "client"}) == 1


async def test_the_operator_can_end_a_call_and_the_caller_is_told(server: RunningServer) -> None:
    async with calling(server) as line, http(server) as client:
        session_id = line.events[0].data["session"]["id"]
        assert (await client.delete(f"/v1/realtime/sessions/{session_id}")).status_code == 204
        await line.until(lambda event: event.type == "error" and event.data["error"]["code"] == "session_ended")
        await eventually(lambda: line.client._ended)


async def test_a_stopping_server_tells_its_calls_and_ends() -> None:
    async with serving() as server, calling(server) as line:
        server.stop.set()
        await line.until("session.draining")
        await eventually(lambda: line.client._ended, within=8)


# ---- keys for browsers ----------------------------------------------------------------------------------------------


async def test_an_ephemeral_key_opens_a_call_with_its_configuration() -> None:
    async with serving(server={"api_keys": ("sk-real",)}) as server, http(server) as client:
        assert (await client.post("/v1/realtime/calls", content=CHROMIUM, headers={"Content-Type": "application/sdp"})).status_code == 401
        owner = {"Authorization": "Bearer sk-real"}
        body = {
            "expires_after": {"anchor": "created_at", "seconds": 60},
            "session": {"type": "realtime", "model": "tone", "instructions": "Sing."},
        }
        made = await client.post("/v1/realtime/client_secrets", json=body, headers=owner)
        secret = made.json()
        assert secret["value"].startswith("ek_")
        assert secret["session"]["instructions"] == "Sing."
        async with calling(server, api_key=secret["value"]) as line:
            assert line.events[0].data["session"]["instructions"] == "Sing."
            guest = {"Authorization": f"Bearer {secret['value']}"}
            assert (await client.get("/v1/realtime/ice-servers", headers=guest)).status_code == 200
            assert (await client.post("/v1/realtime/client_secrets", json=body, headers=guest)).status_code == 401


async def test_an_ephemeral_key_opens_a_websocket_as_a_browser_offers_it() -> None:
    async with serving(server={"api_keys": ("sk-real",)}) as server:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-real") as client:
            secret = await client.realtime.client_secrets.create(
                session={"type": "realtime", "instructions": "Whisper."}, expires_after={"anchor": "created_at", "seconds": 30}
            )
        protocols = ["realtime", f"openai-insecure-api-key.{secret.value}"]
        async with websockets.connect(server.ws, subprotocols=protocols) as socket:  # type: ignore[arg-type]
            hello = json.loads(await socket.recv())
            assert hello["session"]["instructions"] == "Whisper."


@pytest.mark.parametrize("seconds", [5, 10_000])
async def test_a_keys_life_has_bounds(server: RunningServer, seconds: int) -> None:
    async with http(server) as client:
        body = {"expires_after": {"anchor": "created_at", "seconds": seconds}}
        response = await client.post("/v1/realtime/client_secrets", json=body)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "expires_after.seconds"


# ---- sidebands ------------------------------------------------------------------------------------------------------


async def test_a_sideband_hears_the_call_and_changes_its_session(server: RunningServer) -> None:
    async with calling(server) as line:
        url = f"{server.ws}?call_id={line.client.call_id}"
        async with websockets.connect(url, max_size=None) as socket:
            hello = json.loads(await socket.recv())
            assert hello["type"] == "session.created"
            assert hello["session"]["id"] == line.events[0].data["session"]["id"]
            await socket.send(json.dumps({"type": "session.update", "session": {"type": "realtime", "instructions": "From aside."}}))
            updated = await line.until("session.updated")
            assert updated.data["session"]["instructions"] == "From aside."
            await line.ask("hello there")
            kinds = []
            while not kinds or kinds[-1] != "response.done":
                kinds.append(json.loads(await socket.recv())["type"])
            assert "response.output_audio_transcript.delta" in kinds
            assert "response.output_audio.delta" not in kinds
            await line.client.close()
            async with asyncio.timeout(10):
                async for _ in socket:
                    pass
            assert socket.close_code in (1000, 1005)


async def test_a_sideband_to_no_call_is_refused(server: RunningServer) -> None:
    with pytest.raises(websockets.InvalidStatus) as refusal:
        await websockets.connect(f"{server.ws}?call_id=rtc_none")
    assert refusal.value.response.status_code == 404
