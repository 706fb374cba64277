"""The WebSocket client, its addresses and its errors."""

import asyncio

import pytest
from antiphon.clients.audio_sender import AudioSender
from antiphon.clients.call import Call
from antiphon.clients.errors import CallFailed, CouldNotConnect, NoAnswer
from antiphon.clients.player import SimulatedPlayer
from antiphon.clients.realtime import audio_event, connect, parse, realtime_url
from antiphon.tests.clients.fake_server import fake_server, voice


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://127.0.0.1:8765", "ws://127.0.0.1:8765/v1/realtime?model=m"),
        ("localhost:1", "ws://localhost:1/v1/realtime?model=m"),
        ("wss://host/v1/", "wss://host/v1/realtime?model=m"),
        ("https://host/v1/realtime?model=other", "wss://host/v1/realtime?model=other"),
    ],
)
def test_an_address_in_any_form_leads_to_the_route(given, expected):
    assert realtime_url(given, model="m") == expected


def test_an_audio_delta_is_decoded_and_its_base64_let_go():
    event = parse('{"type":"response.output_audio.delta","item_id":"i","delta":"AAEC"}', 1.0)
    assert (event.audio, event.item_id, "delta" in event.data) == (b"\0\1\2", "i", False)


@pytest.mark.parametrize("message", ["", "[]", '{"no":"type"}', '{"type":"response.output_audio.delta","delta":"**"}'])
def test_what_is_no_event_is_an_error_of_the_call(message):
    with pytest.raises(CallFailed, match="no event"):
        parse(message, 1.0)


def test_audio_goes_out_as_the_protocol_wants_it():
    assert audio_event(b"\0\1\2") == '{"type":"input_audio_buffer.append","audio":"AAEC"}'


async def test_no_server_is_a_sentence():
    with pytest.raises(CouldNotConnect, match="There is no server at"):
        await connect("ws://127.0.0.1:9")


async def test_settings_are_confirmed_or_refused():
    async with fake_server() as (url, _), Call(await connect(url), SimulatedPlayer()) as call:
        assert (await call.update_session(voice="v"))["voice"] == "v"
        with pytest.raises(CallFailed, match=r"refused.*No\."):
            await call.update_session(bad=True)


async def test_waiting_in_vain_ends_by_its_deadline():
    async with fake_server() as (url, _), Call(await connect(url), SimulatedPlayer()) as call:
        with pytest.raises(NoAnswer, match=r"within 0\.1 s"):
            await call.wait_for(lambda event: event.type == "never", timeout=0.1)


async def test_a_call_that_the_server_ends_ends_here():
    async with fake_server() as (url, sessions), Call(await connect(url), SimulatedPlayer()) as call:
        await sessions[0].websocket.close(1012, "restart")
        with pytest.raises(CallFailed, match="1012: restart"):
            await call.wait_for(lambda event: event.type == "never", timeout=5)


async def test_an_interruption_stops_the_player_and_cuts_the_conversation():
    async with fake_server(answer_s=2.0) as (url, sessions):
        client, player = await connect(url), SimulatedPlayer()
        sender = AudioSender(client.send_audio)
        async with Call(client, player, sender=sender) as call:
            sender.say(voice(0.3))
            await call.wait_for(lambda event: bool(event.audio), timeout=5)
            await asyncio.sleep(0.6)
            sender.say(voice(0.6))
            truncated = await call.wait_for(lambda event: event.type == "conversation.item.truncated", timeout=5)
            await call.wait_for(lambda event: event.type == "conversation.item.retrieved", timeout=5)
            ((_, stopped),) = call.cuts
            assert 500 < stopped.heard_ms < 1400
            assert truncated.data["audio_end_ms"] == int(stopped.heard_ms)
            assert call.heard_transcripts[stopped.item_id].startswith("one two three")
            assert not call.heard_transcripts[stopped.item_id].endswith("ten")
            done = await call.wait_for(lambda event: event.type == "response.done", timeout=5)
            assert done.data["response"]["status"] == "cancelled"
        kinds = [event["type"] for event in sessions[0].received]
        assert kinds == ["conversation.item.truncate", "conversation.item.retrieve"]


async def test_a_button_interrupts_too():
    async with fake_server(answer_s=2.0) as (url, sessions):
        client = await connect(url)
        sender = AudioSender(client.send_audio)
        async with Call(client, SimulatedPlayer(), sender=sender) as call:
            sender.say(voice(0.3))
            await call.wait_for(lambda event: bool(event.audio), timeout=5)
            assert call.responding
            await call.interrupt()
            await call.wait_for(lambda event: event.type == "response.done", timeout=5)
            assert len(call.cuts) == 1
        assert [event["type"] for event in sessions[0].received][:2] == ["response.cancel", "conversation.item.truncate"]
