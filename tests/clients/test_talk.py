"""`antiphon talk`, as a user calls it."""

import asyncio
import threading

import pytest
from antiphon.clients.cli import app
from antiphon.codecs import wav
from antiphon.tests.clients.fake_server import fake_server, voice
from typer.testing import CliRunner


@pytest.fixture
def server():
    """A fake server on a thread of its own, since the command runs its own event loop."""
    ready, stop = threading.Event(), asyncio.Event()
    found: dict[str, str] = {}
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with fake_server(answer_s=0.8, transcripts=["What is that?"]) as (url, _):
            found["url"] = url
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(5)
    yield found["url"]
    loop.call_soon_threadsafe(stop.set)
    thread.join(5)
    loop.close()


def test_a_file_speaks_and_the_call_is_saved(server, tmp_path):
    wav.write(tmp_path / "question.wav", voice(0.4))
    saved = tmp_path / "call.wav"
    result = CliRunner().invoke(app, ["--url", server, "--file", str(tmp_path / "question.wav"), "--save", str(saved)])
    assert result.exit_code == 0, result.output
    assert "What is that?" in result.output
    assert "one two three" in result.output
    sound = wav.load(saved)
    assert sound.samples.shape[1] == 2
    caller, assistant = (abs(sound.samples[:, side]) > 0.05 for side in (0, 1))
    assert caller.sum() / 24_000 == pytest.approx(0.4, abs=0.1)
    assert assistant.sum() / 24_000 == pytest.approx(0.8, abs=0.1)
    assert assistant.argmax() > caller.argmax() + 0.4 * 24_000


def test_no_server_is_exit_status_1(tmp_path):
    wav.write(tmp_path / "question.wav", voice(0.1))
    result = CliRunner().invoke(app, ["--url", "ws://127.0.0.1:9", "--file", str(tmp_path / "question.wav")])
    assert result.exit_code == 1
    assert "There is no server" in result.output


def test_a_file_that_is_no_wav_is_exit_status_2(tmp_path):
    (tmp_path / "x.wav").write_text("nonsense")
    result = CliRunner().invoke(app, ["--file", str(tmp_path / "x.wav")])
    assert result.exit_code == 2
    assert "not a WAV" in " ".join(result.output.split())  # wherever the line breaks behind a long path


def test_a_missing_sound_card_says_what_to_do(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sounddevice", None)
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2
    assert "antiphon[mic]" in result.output
