"""Who gets a place, who loses it, and how everybody is told: eviction beside speech, idle time, keys of every form, other kinds of
sessions."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest
import websockets
from antiphon.tests.gateway.conftest import Client, RunningServer, connected, serving
from antiphon.tests.gateway.outside import QUIET, TONE

LONG = "This is a rather long sentence, so that the tone goes on for a good while, longer than the lead. " * 3


async def speak(client: Client, loud: int = 8, quiet: int = 8) -> None:
    for audio in [QUIET] * 3 + [TONE] * loud + [QUIET] * quiet:
        await client.send(type="input_audio_buffer.append", audio=audio)
        await asyncio.sleep(0.1)


async def test_the_longest_idle_is_evicted_and_never_one_that_speaks_or_is_spoken_to() -> None:
    async with (
        serving(registry={"capacity": 4, "waiting": 0, "evict_after_s": 0.5}) as server,
        connected(server) as speaking,
        connected(server) as heard,
        connected(server) as older,
        connected(server) as newer,
    ):
        await speaking.ask(LONG)  # its own last event is then the oldest of all
        await speaking.until("response.output_audio.delta")
        talk = asyncio.create_task(speak(heard, loud=40))
        await heard.until("input_audio_buffer.speech_started")
        await newer.send(type="input_audio_buffer.clear")
        await asyncio.sleep(0.8)
        for victim in (older, newer):
            newcomer = await websockets.connect(f"{server.ws}?model=tone")
            assert (await victim.until("error"))["error"]["code"] == "session_evicted"
            assert await victim.closed() == 4000
            await newcomer.send('{"type":"response.cancel"}')
        with pytest.raises(websockets.InvalidStatus) as refusal:
            async with connected(server):
                pass
        assert refusal.value.response.status_code == 429
        assert len(server.gateway.sessions.all()) == 4
        assert not [event for client in (speaking, heard) for event in client.events if event["type"] == "error"]
        talk.cancel()
        assert server.gateway.metrics.value("antiphon_evictions_total", {"reason": "capacity"}) == 2


async def test_who_has_just_begun_to_speak_is_not_evicted() -> None:
    """The registry looks at the sessions only now and then; an eviction looks at once."""
    async with serving(registry={"capacity": 1, "waiting": 0, "evict_after_s": 0.1}) as server, connected(server) as first:
        await asyncio.sleep(0.3)
        server.gateway.sessions.sweep()  # the next look is a quarter of a second away
        await first.ask("Hello.")
        await first.until("response.created")
        with pytest.raises(websockets.InvalidStatus):
            async with connected(server):
                pass
        assert (await first.until("response.done"))["response"]["status"] == "completed"


async def test_an_idle_session_is_warned_saved_by_activity_and_ends_in_the_end() -> None:
    async with serving(registry={"idle_s": 1.6, "warn_s": 0.8}) as server, connected(server) as client:
        began = time.monotonic()
        warning = await client.until("session.expiring")
        assert warning["seconds"] <= 0.8
        await client.send(type="input_audio_buffer.clear")
        await client.until("session.expiring")
        assert time.monotonic() - began > 1.5
        assert (await client.until("error"))["error"]["code"] == "session_expired"
        assert await client.closed() == 1000
    assert server.gateway.metrics.value("antiphon_evictions_total", {"reason": "idle"}) == 1


async def test_silence_on_the_microphone_is_no_activity_but_speech_is() -> None:
    async with serving(registry={"idle_s": 2.0, "warn_s": 0.5}) as server, connected(server) as quiet, connected(server) as loud:
        streams = [asyncio.create_task(speak(quiet, 0, 40)), asyncio.create_task(speak(loud, 40, 0))]
        assert (await quiet.until("error"))["error"]["code"] == "session_expired"
        assert not [event for event in loud.events if event["type"] in ("error", "session.expiring")]
        for stream in streams:
            stream.cancel()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"additional_headers": {"authorization": "Bearer beta"}},
        {"additional_headers": {"authorization": "Basic alpha"}},
        {"additional_headers": {"authorization": "Bearer "}},
        {"additional_headers": {"authorization": "Bearer alpha alpha"}},
        {"subprotocols": ["realtime"]},
        {"subprotocols": ["realtime", "openai-insecure-api-key."]},
        {"subprotocols": ["realtime", "openai-insecure-api-key.beta", "openai-insecure-api-key.alpha"]},
        {"additional_headers": {"authorization": "Bearer beta"}, "subprotocols": ["realtime", "openai-insecure-api-key.alpha"]},
    ],
)
async def test_a_wrong_key_is_refused_in_every_form_and_takes_no_place(options: dict[str, Any]) -> None:
    async with serving(server={"api_keys": ("alpha",)}, registry={"capacity": 1, "waiting": 0}) as server:
        with pytest.raises(websockets.InvalidStatus) as refusal:
            async with connected(server, **options):
                pass
        assert refusal.value.response.status_code == 401
        assert refusal.value.response.headers["www-authenticate"] == "Bearer"
        async with connected(server, subprotocols=["realtime", "openai-insecure-api-key.alpha", "openai-beta.realtime-v1"]) as client:
            assert client.socket.subprotocol == "realtime"
            await client.ask("Hello.")
            assert (await client.until("response.done"))["response"]["status"] == "completed"


async def test_a_transcription_session_writes_down_and_never_answers(server: RunningServer) -> None:
    async with connected(server, "intent=transcription") as client:
        await client.send(
            type="session.update", session={"type": "transcription", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}
        )
        await client.until("session.updated")
        talk = asyncio.create_task(speak(client))
        done = await client.until("conversation.item.input_audio_transcription.completed")
        assert done["transcript"]
        await client.send(type="response.create", event_id="mine")
        error = (await client.until("error"))["error"]
        assert error["event_id"] == "mine"
        await talk
        assert not [event for event in client.events if event["type"].startswith("response.")]


async def test_a_beta_client_has_a_spoken_turn_in_the_betas_words(server: RunningServer) -> None:
    async with connected(server, additional_headers={"OpenAI-Beta": "realtime=v1"}) as client:
        talk = asyncio.create_task(speak(client))
        await client.until("response.done")
        await talk
        kinds = {event["type"] for event in client.events}
        assert kinds >= {"conversation.item.created", "response.audio.delta", "response.audio_transcript.delta", "response.audio.done"}
        assert not [kind for kind in kinds if ".output_" in kind and "output_item" not in kind]
        assert "conversation.item.added" not in kinds


async def test_two_clients_at_once_doing_the_same_do_not_mix() -> None:
    """Same item ids, same words, the same moment: each gets its own answers."""
    async with serving() as server, connected(server) as one, connected(server) as two:

        async def live(client: Client, name: str) -> str:
            text = f"My name is {name} and nothing else."
            item = {"id": "same", "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
            for _ in range(5):
                await client.send(type="conversation.item.create", item=item)
                await client.until("conversation.item.done")
                await client.send(type="response.create", response={"output_modalities": ["text"]})
                done = await client.until("response.done")
                said = str(done["response"]["output"][0]["content"][0]["text"])
                assert said == text
                await client.send(type="conversation.item.delete", item_id="same")
                await client.until("conversation.item.deleted")
            return said

        said = await asyncio.gather(live(one, "Ann"), live(two, "Bob"))
        assert len(set(said)) == 2
        ids = [{event["event_id"] for event in client.events} for client in (one, two)]
        assert not ids[0] & ids[1]


async def test_a_refused_client_is_told_when_to_come_again_and_then_let_in() -> None:
    async with serving(registry={"capacity": 1, "waiting": 0, "evict_after_s": 1.0}) as server, connected(server):
        with pytest.raises(websockets.InvalidStatus) as refusal:
            async with connected(server):
                pass
        wait = int(refusal.value.response.headers["retry-after"])
        assert wait == 1
        await asyncio.sleep(wait)
        async with connected(server) as second:
            assert second.events[0]["type"] == "session.created"
        async with httpx.AsyncClient(trust_env=False) as http:
            text = (await http.get(f"{server.url}/metrics")).text
        assert 'antiphon_refusals_total{code="rate_limit_exceeded"} 1.0' in text
