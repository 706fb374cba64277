"""The stock `openai` client against a server started as a user starts it, on real models."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from antiphon.scenarios.server import Server
from antiphon.tests.contract.events import Listener, kinds, say
from openai import AsyncOpenAI

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@asynccontextmanager
async def connected(server: Server, **session: object) -> AsyncIterator[Listener]:
    client = AsyncOpenAI(api_key="unused", base_url=f"{server.url}/v1")
    async with client.realtime.connect(model="gpt-realtime") as connection:
        listener = Listener(connection)
        first = await listener.next()
        assert first.type == "session.created"
        if session:
            await connection.session.update(session={"type": "realtime", **session})  # type: ignore[typeddict-item]
            await listener.until("session.updated")
        yield listener


async def ask(listener: Listener, text: str) -> None:
    content = [{"type": "input_text", "text": text}]
    await listener.connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})  # type: ignore[arg-type]
    await listener.until("conversation.item.done")


async def test_a_text_conversation(server: Server) -> None:
    async with connected(server, output_modalities=["text"]) as listener:
        await ask(listener, "What is the capital of France?")
        await listener.connection.response.create(response={"metadata": {"purpose": "test"}})
        events = await listener.until("response.done")
        assert [k for k in kinds(events) if k != "rate_limits.updated"] == [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ]
        done = events[-1].response
        assert done.status == "completed"
        assert done.metadata == {"purpose": "test"}
        assert done.usage.output_tokens > 0
        assert done.usage.input_tokens > 0
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        assert text.strip()
        assert done.output[0].content[0].text == text


async def test_a_spoken_question_is_answered_in_speech(server: Server, speak: Callable[[str], bytes]) -> None:
    transcription = {"input": {"transcription": {"model": "whisper-1"}}}
    async with connected(server, audio=transcription) as listener:
        sending = asyncio.create_task(say(listener.connection, speak("What is the capital of France?"), 2500))
        events = await listener.until("response.done")
        await sending
        order = [k for k in kinds(events) if k.startswith("input_audio_buffer")]
        assert order == ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "input_audio_buffer.committed"]
        item_id = next(e.item_id for e in events if e.type == "input_audio_buffer.committed")
        heard = next(e for e in events if e.type == "conversation.item.input_audio_transcription.completed")
        assert heard.item_id == item_id
        assert "capital of france" in heard.transcript.lower()
        audio = b"".join(base64.b64decode(e.delta) for e in events if e.type == "response.output_audio.delta")
        assert len(audio) > 24_000
        assert len(set(audio)) > 100, "the answer is silence"
        transcript = next(e.transcript for e in events if e.type == "response.output_audio_transcript.done")
        assert transcript == "".join(e.delta for e in events if e.type == "response.output_audio_transcript.delta")
        assert transcript.strip()


async def test_a_function_call_and_its_result(server: Server) -> None:
    async with connected(server, output_modalities=["text"], tools=[WEATHER], tool_choice="required") as listener:
        await ask(listener, "What is the weather in Paris?")
        await listener.connection.response.create()
        events = await listener.until("response.done", timeout=120)
        call = events[-1].response.output[0]
        assert call.type == "function_call"
        assert call.name == "get_weather"
        assert isinstance(json.loads(call.arguments)["city"], str)
        streamed = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
        assert streamed == call.arguments
        output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"temperature": "21 degrees", "sky": "sunny"}'}
        await listener.connection.conversation.item.create(item=output)  # type: ignore[arg-type]
        await listener.connection.response.create(response={"tool_choice": "none"})
        events = await listener.until("response.done", timeout=120)
        assert events[-1].response.status == "completed"
        assert events[-1].response.output[0].content[0].text.strip()


async def test_cancel_ends_the_response_once(server: Server) -> None:
    async with connected(server) as listener:
        await ask(listener, "Tell me a long story about a dragon.")
        await listener.connection.response.create()
        await listener.until("response.output_audio.delta")
        await listener.connection.response.cancel()
        events = await listener.until("response.done")
        done = events[-1].response
        assert done.status == "cancelled"
        assert done.status_details.reason == "client_cancelled"
        after = await listener.quiet(1.0)
        assert not [e for e in after if e.type.startswith("response.")]
        await listener.connection.response.cancel()
        error = (await listener.until("error"))[-1].error
        assert error.code == "response_cancel_not_active"


async def test_truncate_keeps_what_was_heard(server: Server) -> None:
    async with connected(server) as listener:
        await ask(listener, "Tell me a story about a dragon who was afraid of fire.")
        await listener.connection.response.create()
        delta = (await listener.until("response.output_audio.delta"))[-1]
        await asyncio.sleep(2.0)
        await listener.connection.conversation.item.truncate(item_id=delta.item_id, content_index=0, audio_end_ms=1200)
        truncated = (await listener.until("conversation.item.truncated"))[-1]
        assert truncated.audio_end_ms == 1200
        await listener.until("response.done")
        spoken = "".join(e.delta for e in listener.log if e.type == "response.output_audio_transcript.delta")
        await listener.connection.conversation.item.retrieve(item_id=delta.item_id)
        part = (await listener.until("conversation.item.retrieved"))[-1].item.content[0]
        assert part.transcript
        assert spoken.startswith(part.transcript)
        assert len(part.transcript) < len(spoken)
        assert len(base64.b64decode(part.audio)) == 1200 * 48


async def test_out_of_band_responses_leave_the_conversation_alone(server: Server) -> None:
    async with connected(server, output_modalities=["text"]) as listener:
        await ask(listener, "My name is Ada.")
        question = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Say hello."}]}
        for name in ("one", "two"):
            await listener.connection.response.create(
                response={"conversation": "none", "input": [question], "metadata": {"name": name}}  # type: ignore[typeddict-item,list-item]
            )
        events = [*await listener.until("response.done"), *await listener.until("response.done")]
        done = [e.response for e in events if e.type == "response.done"]
        assert {d.metadata["name"] for d in done} == {"one", "two"}
        assert all(d.conversation_id is None and d.status == "completed" for d in done)
        assert not [e for e in events if e.type.startswith("conversation.")]
        await listener.connection.conversation.item.retrieve(item_id=done[0].output[0].id)
        assert (await listener.until("error"))[-1].error.code == "item_retrieve_invalid_item_id"


async def test_talking_over_the_assistant_stops_it(server: Server, speak: Callable[[str], bytes]) -> None:
    detection = {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}}
    async with connected(server, audio=detection, instructions="Tell long stories of many sentences.") as listener:
        await ask(listener, "Tell me a very long story about a dragon who was afraid of fire.")
        await listener.connection.response.create()
        first = (await listener.until("response.output_audio.delta"))[-1]
        await listener.quiet(0.8)
        sending = asyncio.create_task(say(listener.connection, speak("Hold on, I would rather hear about the weather today."), 3000))
        events = await listener.until("response.done")
        order = [k for k in kinds(events) if k != "rate_limits.updated"]
        assert order.index("input_audio_buffer.speech_started") < order.index("response.done")
        done = events[-1].response
        assert done.status == "cancelled"
        assert done.status_details.reason == "turn_detected"
        answer = await listener.until("response.done")
        while answer[-1].response.status == "cancelled":  # begun in a pause of the sentence, and withdrawn
            assert answer[-1].response.status_details.reason == "turn_detected"
            answer += await listener.until("response.done")
        await sending
        stale = [e for e in answer if getattr(e, "response_id", None) == first.response_id]
        assert not stale
        assert answer[-1].response.status in ("completed", "incomplete")


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        ({"type": "no.such.event", "event_id": "e1"}, "invalid_value", "type"),
        ({"type": "response.create", "event_id": "e2", "response": {"nonsense": 1}}, "unknown_parameter", "response.nonsense"),
        ({"type": "input_audio_buffer.append", "event_id": "e3", "audio": "@@@"}, "invalid_value", "audio"),
        ({"type": "input_audio_buffer.commit", "event_id": "e4"}, "input_audio_buffer_commit_empty", None),
        ({"type": "conversation.item.delete", "event_id": "e5", "item_id": "nope"}, "item_delete_invalid_item_id", "item_id"),
    ],
)
async def test_errors_name_the_event_and_the_session_lives_on(
    server: Server, event: dict[str, object], code: str, param: str | None
) -> None:
    async with connected(server) as listener:
        await listener.connection.send_raw(json.dumps(event))
        error = (await listener.until("error"))[-1].error
        assert (error.code, error.param, error.event_id) == (code, param, event["event_id"])
        await listener.connection.session.update(session={"type": "realtime", "instructions": "Be brief."})
        assert (await listener.until("session.updated"))[-1].session.instructions == "Be brief."
