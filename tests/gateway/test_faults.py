"""What fails under a session ends a response or a question, never the session; what fails in the house closes it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from antiphon.codecs.pcm import silence
from antiphon.engines.errors import EngineError
from antiphon.gateway import listening
from antiphon.tests.gateway.conftest import Client, RunningServer, connected, eventually

TONE = base64.b64encode(b"\x00\x40\x00\xc0" * 1200).decode()
QUIET = base64.b64encode(silence(100)).decode()
LONG = "This is a rather long sentence, so that the tone goes on for a good while, longer than the lead."


def breaks(server: RunningServer, engine: str, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this engine fails at its first step."""

    async def stream(_: Any) -> AsyncIterator[Any]:
        raise error
        yield

    monkeypatch.setattr(server.gateway.pool.engine(engine), "stream", stream)


async def speak(client: Client, loud: int = 8, quiet: int = 10) -> None:
    """Send audio in real time: quiet, loud, quiet, in units of 100 ms."""
    for audio in [QUIET] * 3 + [TONE] * loud + [QUIET] * quiet:
        await client.send(type="input_audio_buffer.append", audio=audio)
        await asyncio.sleep(0.1)


async def test_a_spoken_turn_is_transcribed_and_answered(server: RunningServer) -> None:
    async with connected(server) as client:
        speaking = asyncio.create_task(speak(client))
        done = await client.until("response.done")
        await speaking
    assert done["response"]["status"] == "completed"
    kinds = [event["type"] for event in client.events]
    turn = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "input_audio_buffer.committed", "response.created"]
    assert [kind for kind in kinds if kind in turn] == turn
    assert "conversation.item.input_audio_transcription.completed" in kinds
    assert server.gateway.metrics.value("antiphon_ttfp_seconds_count", {"pipeline": "tone"}) == 1
    share = server.gateway.metrics.value("antiphon_gateway_share_seconds_sum", {"pipeline": "tone"})
    assert 0 < share < 0.1


async def test_an_interruption_purges_and_is_measured(server: RunningServer) -> None:
    async with connected(server) as client:
        await client.ask(LONG)
        await client.until("response.output_audio.delta")
        speaking = asyncio.create_task(speak(client, loud=14, quiet=2))
        done = await client.until("response.done")
        assert done["response"]["status"] == "cancelled"
        assert done["response"]["status_details"]["reason"] == "turn_detected"
        await speaking
        after = client.events[client.events.index(done) + 1 :]
        assert not [event for event in after if event.get("response_id") == done["response"]["id"]]
    metrics = server.gateway.metrics
    assert metrics.value("antiphon_onset_to_withheld_seconds_count", {"pipeline": "tone"}) == 1
    assert metrics.value("antiphon_onset_to_withheld_seconds_sum", {"pipeline": "tone"}) < 1.6
    assert metrics.value("antiphon_barge_ins_total", {"kind": "interruption"}) == 1


@pytest.mark.parametrize(("engine", "code"), [("echo", "chat_failed"), ("tone", "speech_failed")])
async def test_a_failing_engine_fails_the_response_only(
    server: RunningServer, engine: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server) as client:
        with monkeypatch.context() as broken:
            breaks(server, engine, EngineError("it is broken"), broken)
            await client.ask("Hello.")
            done = await client.until("response.done")
        assert done["response"]["status"] == "failed"
        assert done["response"]["status_details"]["error"]["code"] == code
        await client.ask("Hello again.")
        assert (await client.until("response.done"))["response"]["status"] == "completed"


async def test_a_failing_asr_fails_the_transcription_only(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(server, "echo-asr", EngineError("it is broken"), monkeypatch)
    async with connected(server) as client:
        speaking = asyncio.create_task(speak(client))
        failed = await client.until("conversation.item.input_audio_transcription.failed")
        assert failed["error"]["code"] == "asr_failed"
        await speaking
        await client.send(type="input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")


async def test_a_lost_vad_is_told_and_comes_back(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "RETRY_FIRST", 0.2)
    async with connected(server) as client:
        with monkeypatch.context() as broken:
            breaks(server, "energy", EngineError("it is broken"), broken)
            await client.send(type="input_audio_buffer.append", audio=QUIET)
            assert (await client.until("error"))["error"]["code"] == "vad_failed"
        await asyncio.sleep(0.3)
        speaking = asyncio.create_task(speak(client))
        await client.until("input_audio_buffer.speech_started")
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        await speaking


async def test_a_fault_in_the_session_closes_it_with_1011(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(server) as client:
        session = server.gateway.sessions.all()[0].conductor.session

        def fault(*_: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(session, "handle", fault)
        await client.send(type="input_audio_buffer.clear")
        assert await client.closed() == 1011
    assert server.gateway.metrics.value("antiphon_crashes_total", {"where": "session"}) == 1
    await eventually(lambda: not server.gateway.sessions.all())


async def test_a_long_answer_holds_the_pipeline_back(server: RunningServer) -> None:
    async with connected(server) as client:
        await client.ask(LONG * 20)
        await client.until("response.output_audio.delta")
        await asyncio.sleep(1.0)
        live = server.gateway.sessions.all()[0]
        response = live.conductor.session._coordinator.current
        assert response is not None
        assert response._queued_bytes < 30 * 48_000
        await client.send(type="response.cancel")
        await client.until("response.done")
        await eventually(lambda: len(live.conductor._responder) == 0)


async def test_a_beta_client_is_spoken_to_in_beta(server: RunningServer) -> None:
    async with connected(server, additional_headers={"OpenAI-Beta": "realtime=v1"}) as client:
        assert "modalities" in client.events[0]["session"]
        await client.send(type="session.update", session={"modalities": ["text"], "turn_detection": None})
        assert (await client.until("session.updated"))["session"]["modalities"] == ["text"]
        await client.ask("Hello.")
        await client.until("response.text.delta")
        await client.until("response.done")
