"""The HTTP routes: health, models, the operator's view, speech, recordings."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from antiphon.codecs import wav
from antiphon.codecs.pcm import silence
from antiphon.sessions.recording import read_recording, replay
from antiphon.tests.gateway.conftest import RunningServer, connected, eventually, serving


@pytest.fixture
async def http(server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        yield client


async def test_it_is_alive_ready_and_well(http: httpx.AsyncClient) -> None:
    assert (await http.get("/livez")).status_code == 200
    assert (await http.get("/readyz")).json() == {"ready": True}
    health = (await http.get("/health")).json()
    assert health["status"] == "ok"
    assert {name.rpartition("-")[0] for name in health["engines"]} == {"energy", "echo-asr", "echo", "tone"}


async def test_it_is_not_ready_while_it_drains(server: RunningServer, http: httpx.AsyncClient) -> None:
    server.gateway.draining = True
    response = await http.get("/readyz")
    assert response.status_code == 503
    assert response.json()["reason"] == "draining"
    assert (await http.get("/livez")).status_code == 200


async def test_models(http: httpx.AsyncClient) -> None:
    models = (await http.get("/v1/models")).json()["data"]
    assert [model["id"] for model in models] == ["tone", "antiphon-tone"]
    assert (await http.get("/v1/models/tone")).json()["engines"]["speech"] == "tone"
    missing = await http.get("/v1/models/gpt-9")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"
    assert (await http.get("/version")).json()["version"]


async def test_the_operator_sees_a_session_and_its_turns_and_can_end_it(server: RunningServer, http: httpx.AsyncClient) -> None:
    async with connected(server) as client:
        await client.ask("Hello.")
        await client.until("response.done")
        listed = (await http.get("/v1/realtime/sessions")).json()["data"]
        assert len(listed) == 1
        report = (await http.get(f"/v1/realtime/sessions/{listed[0]['id']}")).json()
        assert report["pipeline"] == "tone"
        assert report["turns"][-1]["status"] == "completed"
        assert "chat" in report["turns"][-1]["stages_ms"]
        assert (await http.delete(f"/v1/realtime/sessions/{listed[0]['id']}")).status_code == 204
        assert (await client.until("error"))["error"]["code"] == "session_ended"
        assert await client.closed() == 4001
    assert (await http.get("/v1/realtime/sessions/nobody")).status_code == 404


async def test_routes_want_the_key() -> None:
    async with serving(server={"api_keys": ("alpha",)}) as server, httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        for path in ("/v1/models", "/v1/realtime/sessions"):
            assert (await http.get(path)).status_code == 401
            assert (await http.get(path, headers={"authorization": "Bearer alpha"})).status_code == 200
        assert (await http.get("/livez")).status_code == 200
        refused = await http.post("/v1/audio/speech", json={"input": "Hello."})
        assert refused.status_code == 401


async def test_speech_as_wav_and_pcm(http: httpx.AsyncClient) -> None:
    body = {"model": "tone", "input": "Hello there.", "voice": "alloy"}
    response = await http.post("/v1/audio/speech", json=body)
    assert response.headers["content-type"] == "audio/wav"
    sound = wav.decode(response.content)
    assert sound.sample_rate == 24_000
    assert len(sound.samples) > 10_000
    raw = await http.post("/v1/audio/speech", json={**body, "response_format": "pcm"})
    assert len(raw.content) == 2 * len(sound.samples)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": "x" * 5000}, "input"),
        ({"input": "x", "response_format": "mp3"}, "response_format"),
        ({"input": "x", "speed": 9}, "speed"),
    ],
)
async def test_a_bad_speech_request_names_the_field(http: httpx.AsyncClient, body: dict[str, object], param: str) -> None:
    response = await http.post("/v1/audio/speech", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


async def test_errors_have_one_shape(http: httpx.AsyncClient) -> None:
    for response in (await http.get("/nowhere"), await http.put("/v1/models"), await http.post("/v1/audio/speech", content=b"{")):
        assert response.status_code in (400, 404, 405)
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_recorded_session_replays_byte_for_byte(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    async with serving(recording={"on": True, "folder": str(folder)}) as server:
        async with connected(server) as client:
            tone = base64.b64encode(b"\x00\x40\x00\xc0" * 1200).decode()
            quiet = base64.b64encode(silence(100)).decode()
            for audio in [quiet] * 3 + [tone] * 10 + [quiet] * 10:
                await client.send(type="input_audio_buffer.append", audio=audio)
                await asyncio.sleep(0.1)
            await client.until("response.done")
            await client.send(type="nonsense")
            await client.until("error")
        await eventually(lambda: not server.gateway.sessions.all())
    (file,) = folder.glob("*.antiphon")
    await eventually(lambda: file.stat().st_size > 0)
    await asyncio.sleep(0.2)
    header, steps = read_recording(file.read_bytes())
    report = replay(header, steps)
    assert report.same, report.first_difference
    assert report.events > 10
