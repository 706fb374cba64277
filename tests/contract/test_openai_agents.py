"""The stock `openai-agents` realtime session against the server: a tool, and an interruption."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession
from antiphon.scenarios.server import Server

FRAME_MS = 40


@asynccontextmanager
async def conversation(server: Server, agent: RealtimeAgent[Any], **settings: Any) -> AsyncIterator[RealtimeSession]:
    runner = RealtimeRunner(agent)
    url = server.url.replace("http", "ws") + "/v1/realtime?model=gpt-realtime"
    session = await runner.run(
        model_config={"api_key": "unused", "url": url, "initial_model_settings": settings}  # type: ignore[typeddict-item]
    )
    async with session:
        yield session


async def wait_for(session: RealtimeSession, seen: list[Any], wanted: Callable[[Any], bool], timeout: float = 90) -> Any:
    async with asyncio.timeout(timeout):
        async for event in session:
            seen.append(event)
            if wanted(event):
                return event
    raise AssertionError(f"the session ended; seen: {[e.type for e in seen]}")


def no_errors(seen: list[Any]) -> bool:
    return not [e for e in seen if e.type == "error"]


async def test_the_agent_calls_its_tool_and_answers(server: Server) -> None:
    asked: list[str] = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        asked.append(city)
        return f"It is sunny and 21 degrees in {city}."

    agent = RealtimeAgent(name="Weather", instructions="You tell the weather. Use your tool.", tools=[get_weather])
    async with conversation(server, agent, tool_choice="required") as session:
        seen: list[Any] = []
        await session.send_message("What is the weather in Paris?")
        ended = await wait_for(session, seen, lambda e: e.type == "tool_end")
        assert asked
        assert "21 degrees" in str(ended.output)
        assert no_errors(seen), seen


async def test_talking_over_the_agent_interrupts_it(server: Server, speak: Callable[[str], bytes]) -> None:
    agent = RealtimeAgent(name="Storyteller", instructions="Tell long stories of many sentences.")
    async with conversation(server, agent) as session:
        seen: list[Any] = []
        await session.send_message("Tell me a very long story about a dragon who was afraid of fire.")
        await wait_for(session, seen, lambda e: e.type == "audio")
        sending = asyncio.create_task(_say(session, speak("Hold on, I would rather hear about the weather today.")))
        await wait_for(session, seen, lambda e: e.type == "audio_interrupted")
        first = next(e.audio.response_id for e in seen if e.type == "audio")
        await wait_for(session, seen, lambda e: e.type == "audio" and e.audio.response_id != first)
        await sending
        await wait_for(session, seen, lambda e: e.type == "agent_end")
        interrupted = next(i for i, e in enumerate(seen) if e.type == "audio_interrupted")
        later = [e.audio.response_id for e in seen[interrupted:] if e.type == "audio"]
        assert first not in later, "audio of the interrupted answer came after the interruption"
        assert no_errors(seen), [e for e in seen if e.type == "error"]


async def _say(session: RealtimeSession, pcm: bytes) -> None:
    audio = pcm + bytes(48 * 2500)
    start = time.monotonic()
    for index, position in enumerate(range(0, len(audio), 48 * FRAME_MS)):
        await session.send_audio(audio[position : position + 48 * FRAME_MS])
        await asyncio.sleep(max(0.0, start + (index + 1) * FRAME_MS / 1000 - time.monotonic()))
