"""The WebSocket transport against a real server: ordering, what is no event, refusals, slow readers, ends."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest
import websockets
from antiphon.codecs.pcm import silence
from antiphon.tests.gateway.conftest import RunningServer, connected, eventually, serving


async def test_a_spoken_answer_comes_in_order(server: RunningServer) -> None:
    async with connected(server) as client:
        await client.ask("Hello there.")
        done = await client.until("response.done")
    kinds = [event["type"] for event in client.events]
    assert done["response"]["status"] == "completed"
    assert kinds[0] == "session.created"
    order = [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.done",
    ]
    after = kinds[kinds.index("response.created") :]
    assert [kind for kind in after if kind in order] == order
    audio = b"".join(base64.b64decode(event["delta"]) for event in client.events if event["type"] == "response.output_audio.delta")
    assert len(audio) > 4800
    assert len({event["event_id"] for event in client.events}) == len(client.events)


async def test_audio_is_paced_to_real_time(server: RunningServer) -> None:
    loop = asyncio.get_running_loop()
    async with connected(server) as client:
        await client.ask("This is a rather long sentence, so that the tone goes on for a good while, longer than the lead.")
        began = loop.time()
        sent_ms = 0.0
        while True:
            event = await client.next()
            if event["type"] == "response.output_audio.delta":
                sent_ms += len(base64.b64decode(event["delta"])) / 48
                assert sent_ms <= (loop.time() - began) * 1000 + 500 + 100 + 50
            if event["type"] == "response.done":
                break
    assert sent_ms > 2000


@pytest.mark.parametrize("raw", ["{", "[]", "null", '"x"', '{"type":"nonsense"}', "{}", '{"type":"response.cancel"}', "\u0000"])
async def test_what_is_no_event_gets_an_error_and_the_session_lives_on(server: RunningServer, raw: str) -> None:
    async with connected(server) as client:
        await client.socket.send(raw)
        error = await client.until("error")
        assert error["error"]["type"] == "invalid_request_error"
        assert error["error"]["message"]
        await client.ask("Hello.")
        assert (await client.until("response.done"))["response"]["status"] == "completed"


async def test_the_error_names_the_clients_event(server: RunningServer) -> None:
    async with connected(server) as client:
        await client.send(type="conversation.item.delete", item_id="nobody", event_id="mine")
        assert (await client.until("error"))["error"]["event_id"] == "mine"


async def test_a_binary_frame_gets_an_error(server: RunningServer) -> None:
    async with connected(server) as client:
        await client.socket.send(b"\x00\x01")
        assert (await client.until("error"))["error"]["code"] == "invalid_frame"
        await client.send(type="input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")


async def test_an_oversized_event_gets_an_error() -> None:
    async with serving(connection={"max_event_bytes": 10_000}) as server, connected(server) as client:
        await client.socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": "A" * 12_000}))
        error = (await client.until("error"))["error"]
        assert error["code"] == "event_too_large"
        assert "10000" in error["message"]
        await client.send(type="input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")


async def test_far_too_large_a_frame_closes_with_1009() -> None:
    async with serving(connection={"max_event_bytes": 10_000}) as server, connected(server) as client:
        await client.socket.send("x" * 30_000)
        assert await client.closed() == 1009


async def test_audio_faster_than_the_cap_is_refused_and_said_once_a_second() -> None:
    async with serving(connection={"audio_burst_s": 2.0}) as server, connected(server) as client:
        second = base64.b64encode(silence(1000)).decode()
        for _ in range(10):
            await client.send(type="input_audio_buffer.append", audio=second)
        error = (await client.until("error"))["error"]
        assert error["code"] == "rate_limit_exceeded"
        assert "2 times real time" in error["message"]
        await client.send(type="input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared", "error")
        assert client.events[-1]["type"] == "input_audio_buffer.cleared"
    assert server.gateway.metrics.value("antiphon_input_audio_seconds_total") <= 4.5


async def test_too_many_errors_close_with_1008() -> None:
    async with serving(connection={"errors_per_minute": 20}) as server, connected(server) as client:
        for _ in range(30):
            await client.send(type="nonsense")
        assert await client.closed() == 1008
        assert sum(event["type"] == "error" for event in client.events) == 21


async def test_a_reader_that_stops_is_bounded_and_closed() -> None:
    async with serving(connection={"send_timeout_s": 1.0}) as server, connected(server, max_queue=1) as client:
        live = server.gateway.sessions.all()[0]
        transport = client.socket.transport
        transport.pause_reading()
        # The kernel's buffers take some seconds of audio: fill them with large events first.
        for _ in range(10):
            await client.send(type="session.update", session={"type": "realtime", "instructions": "word " * 80_000})
        await client.ask("Tell me a very long story, and then another one, and one more. " * 20)
        await eventually(lambda: server.gateway.metrics.value("antiphon_slow_reader_closes_total") == 1, within=10)
        assert live.connection.outbox.samples <= 24_000 // 2
        await eventually(lambda: not server.gateway.sessions.all())
        transport.abort()


async def test_an_interrupted_answer_leaves_nothing_stale(server: RunningServer) -> None:
    async with connected(server) as client:
        await client.ask("This is a rather long sentence, so that the tone goes on for a good while, longer than the lead.")
        await client.until("response.output_audio.delta")
        await client.send(type="response.cancel")
        done = await client.until("response.done")
        assert done["response"]["status"] == "cancelled"
        await client.send(type="input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")
        after = client.events[client.events.index(done) + 1 :]
        assert not [event for event in after if event.get("response_id") == done["response"]["id"]]


async def test_a_full_server_refuses_with_retry_after() -> None:
    async with serving(registry={"capacity": 1, "waiting": 0}) as server, connected(server):
        with pytest.raises(websockets.InvalidStatus) as refusal:
            async with connected(server):
                pass
        response = refusal.value.response
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        assert json.loads(response.body or b"")["error"]["code"] == "rate_limit_exceeded"


async def test_who_waits_gets_the_place_that_becomes_free() -> None:
    async with serving(registry={"capacity": 1, "waiting": 1, "waiting_s": 5.0}) as server:
        async with connected(server) as first:

            async def come() -> str:
                async with connected(server) as second:
                    return str(second.events[0]["type"])

            waiting = asyncio.create_task(come())
            await eventually(lambda: server.gateway.sessions.registry.counts().waiting == 1)
            await first.socket.close()
        assert await asyncio.wait_for(waiting, 5) == "session.created"


async def test_who_waits_in_vain_is_told() -> None:
    async with serving(registry={"capacity": 1, "waiting": 1, "waiting_s": 0.3}) as server, connected(server):
        with pytest.raises(websockets.InvalidStatus) as refusal:
            async with connected(server):
                pass
        assert refusal.value.response.status_code == 429


async def test_an_idle_session_makes_room() -> None:
    async with serving(registry={"capacity": 1, "waiting": 0, "evict_after_s": 0.1}) as server, connected(server) as first:
        await asyncio.sleep(0.2)
        async with connected(server) as second:
            assert second.events[0]["type"] == "session.created"
            assert (await first.until("error"))["error"]["code"] == "session_evicted"
            assert await first.closed() == 4000


async def test_a_session_ends_when_its_time_is_over() -> None:
    async with serving(registry={"idle_s": 60.0, "lifetime_s": 1.0, "warn_s": 0.6}) as server, connected(server) as client:
        warning = await client.until("session.expiring")
        assert warning["seconds"] <= 0.6
        assert (await client.until("error"))["error"]["code"] == "session_expired"
        assert await client.closed() == 1000


async def test_a_missing_key_is_a_401_before_the_handshake() -> None:
    async with serving(server={"api_keys": ("alpha",)}) as server:
        with pytest.raises(websockets.InvalidStatus) as refusal:
            async with connected(server):
                pass
        assert refusal.value.response.status_code == 401
        async with connected(server, additional_headers={"authorization": "Bearer alpha"}):
            pass
        subprotocols = [websockets.Subprotocol("realtime"), websockets.Subprotocol("openai-insecure-api-key.alpha")]
        async with connected(server, subprotocols=subprotocols) as client:
            assert client.socket.subprotocol == "realtime"


async def test_an_unknown_intent_and_a_strict_model_are_refused() -> None:
    async with serving(models={"strict": True}) as server:
        for query, status in (("model=tone&intent=song", 400), ("model=whatever", 404)):
            with pytest.raises(websockets.InvalidStatus) as refusal:
                async with connected(server, query):
                    pass
            assert refusal.value.response.status_code == status


async def test_a_transcription_session_says_so(server: RunningServer) -> None:
    async with connected(server, "intent=transcription") as client:
        assert client.events[0]["session"]["type"] == "transcription"


async def test_drain_lets_an_answer_finish_and_closes_with_1012() -> None:
    async with serving(server={"drain_s": 8.0}) as server, connected(server) as busy, connected(server) as idle:
        await busy.ask("This answer takes a second or two to be spoken.")
        await busy.until("response.output_audio.delta")
        server.stop.set()
        await idle.until("session.draining")
        assert await idle.closed() == 1012
        with pytest.raises(websockets.InvalidStatus) as refusal:
            async with connected(server):
                pass
        assert refusal.value.response.status_code == 503
        assert "retry-after" in refusal.value.response.headers
        assert (await busy.until("response.done"))["response"]["status"] == "completed"
        assert await busy.closed() == 1012


async def test_drain_cuts_an_answer_at_the_deadline() -> None:
    async with serving(server={"drain_s": 0.5}) as server, connected(server) as client:
        await client.ask("A very long answer that goes on and on. " * 20)
        await client.until("response.output_audio.delta")
        server.stop.set()
        assert (await client.until("response.done"))["response"]["status"] == "cancelled"
        assert await client.closed() == 1012


def open_files() -> int:
    """File descriptors of this process, where the system lists them."""
    folder = Path("/proc/self/fd")
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


async def test_connecting_and_vanishing_leaves_nothing_behind(server: RunningServer) -> None:
    async def cycle(number: int) -> None:
        async with connected(server) as client:
            await client.ask("Hello, this is a sentence.")
            await client.send(type="input_audio_buffer.append", audio=base64.b64encode(silence(100)).decode())
            if number % 3:
                await client.until("response.output_audio.delta")
            client.socket.transport.abort()

    await cycle(0)
    await eventually(lambda: not server.gateway.sessions.all())
    await asyncio.sleep(0.3)
    base = len(asyncio.all_tasks())
    descriptors = open_files()
    for start in range(0, 100, 5):
        await asyncio.gather(*(cycle(number) for number in range(start, start + 5)), return_exceptions=True)
    await eventually(lambda: not server.gateway.sessions.all())
    await eventually(lambda: len(asyncio.all_tasks()) <= base)
    await eventually(lambda: open_files() <= descriptors)
    assert all(state.running == 0 for state in (await server.gateway.pool.health()).values())
    counts = server.gateway.sessions.registry.counts()
    assert counts.active == 0
    assert counts.waiting == 0
