"""`antiphon serve` as a process: ready line, ready file, orderly end, clear errors; `--help` of every command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

COMMAND = [sys.executable, "-m", "antiphon"]
PATIENCE = 30.0


def run(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


class Serving:
    """`antiphon serve` in a folder of its own."""

    def __init__(self, cwd: Path, *arguments: str) -> None:
        self.ready_file = cwd / "ready.json"
        command = [*COMMAND, "serve", "--port", "0", "--pipeline", "tone", "--ready-file", str(self.ready_file), *arguments]
        self.process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.url = self.line.split()[-1]

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.communicate()


def test_serve_says_when_it_is_ready_and_ends_in_order(tmp_path: Path) -> None:
    server = Serving(tmp_path)
    assert server.line.startswith("antiphon listening on http://127.0.0.1:")
    assert json.loads(server.ready_file.read_text()) == {"url": server.url, "pid": server.process.pid}
    with connect(server.url.replace("http", "ws") + "/v1/realtime?model=tone") as socket:
        assert json.loads(socket.recv(PATIENCE))["type"] == "session.created"
        server.process.send_signal(signal.SIGTERM)
        while json.loads(socket.recv(PATIENCE))["type"] != "session.draining":
            pass
        assert json.loads(socket.recv(PATIENCE))["error"]["code"] == "server_draining"
        with pytest.raises(ConnectionClosed):
            socket.recv(PATIENCE)
        assert socket.close_code == 1012
    assert server.wait() == 0
    assert not server.ready_file.exists()


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text("[server]\ndrain_s = 60\n")
    server = Serving(tmp_path)
    with connect(server.url.replace("http", "ws") + "/v1/realtime?model=tone") as socket:
        text = "A long answer that goes on and on. " * 30
        content = [{"type": "input_text", "text": text}]
        socket.send(json.dumps({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}))
        socket.send(json.dumps({"type": "response.create"}))
        while json.loads(socket.recv(PATIENCE))["type"] != "response.output_audio.delta":
            pass
        server.process.send_signal(signal.SIGINT)
        while json.loads(socket.recv(PATIENCE))["type"] != "session.draining":
            pass
        time.sleep(0.2)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 128 + signal.SIGINT


def test_a_wrong_key_is_a_sentence_and_exit_1(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text("[server]\nprot = 1\n")
    result = run("serve", cwd=tmp_path)
    assert result.returncode == 1
    assert "unknown key 'server.prot'" in result.stderr
    assert "Traceback" not in result.stderr


def test_missing_weights_name_the_command_that_brings_them(tmp_path: Path) -> None:
    result = run("serve", "--port", "0", cwd=tmp_path, env={**os.environ, "ANTIPHON_HOME": str(tmp_path / "home")})
    assert result.returncode == 1
    assert "antiphon models pull" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_taken_port_is_a_sentence(tmp_path: Path) -> None:
    server = Serving(tmp_path)
    try:
        result = run("serve", "--pipeline", "tone", "--port", server.url.rpartition(":")[2], cwd=tmp_path)
        assert result.returncode == 1
        assert "Cannot listen on 127.0.0.1:" in result.stderr
        assert "server.port" in result.stderr
        result = run("serve", "--pipeline", "tone", "--port", "0", "--openpi-port", server.url.rpartition(":")[2], cwd=tmp_path)
        assert result.returncode == 1
        assert "robots.openpi_port" in result.stderr
    finally:
        server.process.terminate()
        assert server.wait() == 0


def test_speak_writes_a_wav_file(tmp_path: Path) -> None:
    result = run("speak", "Hello there.", "--engine", "tone", "--out", "hello.wav", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "hello.wav").read_bytes()[:4] == b"RIFF"


def test_replay_refuses_what_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "x.antiphon").write_bytes(b"nonsense")
    result = run("replay", "x.antiphon", cwd=tmp_path)
    assert result.returncode == 2
    assert "no recording" in result.stderr


@pytest.mark.parametrize("command", ["", "serve", "talk", "models", "scenario", "replay", "speak"])
def test_every_command_explains_itself(command: str, tmp_path: Path) -> None:
    result = run(*command.split(), "--help", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"Usage: antiphon {command}".rstrip() in result.stdout
