"""What fails under a session ends a response or a question, never the session; what fails in the house closes it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from antiphon.codecs.pcm import silence
from antiphon.engines.errors import EngineError
from antiphon.gateway import conductor, listening
from antiphon.tests.gateway.conftest import Client, RunningServer, connected, eventually, serving

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


def breaks_after(server: RunningServer, engine: str, chunks: int, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this engine fails after so many chunks."""
    whole = server.gateway.pool.engine(engine).stream

    async def stream(request: Any) -> AsyncIterator[Any]:
        count = 0
        async for chunk in whole(request):
            if count == chunks:
                raise error
            count += 1
            yield chunk

    monkeypatch.setattr(server.gateway.pool.engine(engine), "stream", stream)


@pytest.mark.parametrize("error", [EngineError("it is broken"), ZeroDivisionError("a fault of the engine's own")])
@pytest.mark.parametrize(("engine", "code"), [("echo", "chat_failed"), ("tone", "speech_failed")])
async def test_an_engine_that_fails_in_the_middle_of_an_answer(
    server: RunningServer, engine: str, code: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made is heard, then the response fails; nothing stays behind, and the next answer is whole."""
    async with connected(server) as client:
        with monkeypatch.context() as broken:
            breaks_after(server, engine, 4 if engine == "echo" else 1, error, broken)
            await client.ask("One, two, three, four, five, six, seven and eight, and many more words after these.")
            done = await client.until("response.done")
        assert done["response"]["status"] == "failed"
        assert done["response"]["status_details"]["error"]["code"] == code
        assert any(event["type"] == "response.output_audio.delta" for event in client.events)
        assert not server.gateway.pool.running()
        await client.ask("Hello again.")
        assert (await client.until("response.done"))["response"]["status"] == "completed"
    assert server.gateway.metrics.value("antiphon_responses_total", {"status": "failed"}) == 1


async def test_an_engine_that_keeps_failing_is_taken_out_mended_and_comes_back(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server) as client, httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        with monkeypatch.context() as broken:
            breaks(server, "echo", EngineError("it is broken"), broken)
            codes = []
            for _ in range(5):
                await client.ask("Hello.")
                done = await client.until("response.done")
                codes.append(done["response"]["status_details"]["error"]["code"])
            assert codes == ["chat_failed"] * 3 + ["chat_unavailable"] * 2
            health = await http.get("/health")
            assert health.status_code == 503
            assert not health.json()["engines"]["echo-0"]["ok"]
        await asyncio.sleep(1.0)
        await client.ask("Hello.")
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        assert (await http.get("/health")).status_code == 200


async def test_a_vad_that_is_lost_in_the_middle_of_a_turn(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is told; when the VAD is back, the next turn is heard and answered as if nothing had been."""
    monkeypatch.setattr(listening, "RETRY_FIRST", 0.3)
    async with connected(server) as client:
        with monkeypatch.context() as broken:
            breaks_after(server, "energy", 8, EngineError("it is broken"), broken)
            talk = asyncio.create_task(speak(client, loud=10, quiet=0))
            await client.until("input_audio_buffer.speech_started")
            assert (await client.until("error"))["error"]["code"] == "vad_failed"
        await talk
        await asyncio.sleep(0.4)
        talk = asyncio.create_task(speak(client))
        await client.until("input_audio_buffer.speech_started")
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        await talk
        kinds = [event["type"] for event in client.events]
        assert kinds.count("input_audio_buffer.committed") == 1
        assert server.gateway.metrics.value("antiphon_crashes_total", {"where": "session"}) == 0


async def test_an_event_above_the_wall_costs_that_event_only(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "MAX_EVENT_BYTES", 2000)
    async with connected(server) as client:
        await client.send(type="session.update", session={"type": "realtime", "instructions": "word " * 1000})
        await client.send(type="input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")
    assert server.gateway.metrics.value("antiphon_crashes_total", {"where": "event_size"}) == 1


async def test_a_sweeper_that_crashes_is_counted_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(registry={"idle_s": 60.0, "lifetime_s": 1.5, "warn_s": 0.0}) as server, connected(server) as client:
        due = server.gateway.sessions.registry.due
        with monkeypatch.context() as broken:

            def fault(_: float) -> Any:
                raise ZeroDivisionError

            broken.setattr(server.gateway.sessions.registry, "due", fault)
            await eventually(lambda: server.gateway.metrics.value("antiphon_crashes_total", {"where": "sweeper"}) >= 1)
        assert server.gateway.sessions.registry.due == due
        assert (await client.until("error"))["error"]["code"] == "session_expired"
