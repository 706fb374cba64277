"""`antiphon replay` on a call that the server recorded: spoken turns, an interruption, tools, mistakes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import websockets
from antiphon.sessions.inbound import Disconnected
from antiphon.sessions.recording import Step, read_recording
from antiphon.tests.gateway import outside
from antiphon.tests.gateway.conftest import Client
from antiphon.tests.gateway.outside import QUIET, TONE, Outside

LONG = "This is a rather long sentence, so that the tone goes on for a good while, longer than the lead. " * 2


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "antiphon", "replay", *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def call(tone_server: Outside) -> Path:
    """The recording of a call."""

    async def talk() -> str:
        async with websockets.connect(tone_server.ws, compression=None, max_size=None) as socket:
            client = Client(socket)
            session_id = str((await client.until("session.created"))["session"]["id"])
            tool = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
            await client.send(type="session.update", session={"type": "realtime", "tools": [tool]})
            await client.ask("call look_up {}")
            called = (await client.until("response.done"))["response"]["output"][0]
            result = {"type": "function_call_output", "call_id": called["call_id"], "output": LONG}
            await client.send(type="conversation.item.create", item=result)
            await client.send(type="response.create")
            await client.until("response.output_audio.delta")

            async def send(event: outside.Event) -> None:
                await client.send(**event)

            speech = asyncio.create_task(outside.speak(send, [(QUIET, 2), (TONE, 12), (QUIET, 10)]))
            done = await client.until("response.done")
            assert done["response"]["status_details"]["reason"] == "turn_detected"
            assert (await client.until("response.done"))["response"]["status"] == "completed"
            await speech
            await client.send(type="nonsense")
            await client.socket.send(b"\x00")
            await client.until("error")
            await client.until("error")
            return session_id

    path = tone_server.recordings / f"{asyncio.run(talk())}.antiphon"
    outside.eventually(lambda: isinstance(read_recording(path.read_bytes())[1][-1].inbound, Disconnected))
    return path


def rewritten(call: Path, to: Path, change: Step, number: int) -> Path:
    """The recording with one of its steps changed."""
    data = call.read_bytes()
    position, frames = 0, []
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "big")
        frames.append(data[position + 4 : end])
        position = end
    frames[number + 1] = msgspec.msgpack.encode(change)
    to.write_bytes(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
    return to


def test_the_same_bytes_come_out_again(call: Path) -> None:
    done = run(str(call))
    assert done.returncode == 0, done.stderr
    assert "all the same byte for byte" in done.stdout
    steps = read_recording(call.read_bytes())[1]
    assert f"{len(steps)} steps" in done.stdout
    shown = run(str(call), "--show")
    assert "response.created" in shown.stdout
    assert len(shown.stdout.splitlines()) == len(steps) + 1


def test_what_was_tampered_with_is_the_first_difference(call: Path, tmp_path: Path) -> None:
    steps = read_recording(call.read_bytes())[1]
    number = next(number for number, step in enumerate(steps) if any(b'"response.output_audio.delta"' in event for event in step.outbound))
    event = next(index for index, sent in enumerate(steps[number].outbound) if b'"response.output_audio.delta"' in sent)
    outbound = list(steps[number].outbound)
    outbound[event] = outbound[event].replace(b'"content_index":0', b'"content_index":1')
    change = Step(steps[number].now, steps[number].inbound, tuple(outbound))
    done = run(str(rewritten(call, tmp_path / "out.antiphon", change, number)))
    assert done.returncode == 1
    assert f"step {number}, event {event}" in done.stderr
    assert '"content_index":1' in done.stderr


def test_what_went_in_differently_comes_out_differently(call: Path, tmp_path: Path) -> None:
    steps = read_recording(call.read_bytes())[1]
    number = next(number for number, step in enumerate(steps) if b"look_up" in getattr(step.inbound, "raw", b""))
    inbound = msgspec.structs.replace(steps[number].inbound, raw=steps[number].inbound.raw.replace(b"look_up", b"look_in"))  # type: ignore[union-attr]
    change = Step(steps[number].now, inbound, steps[number].outbound)
    done = run(str(rewritten(call, tmp_path / "in.antiphon", change, number)))
    assert done.returncode == 1
    assert f"step {number}, event 0" in done.stderr


def test_a_torn_tail_is_no_difference_and_a_torn_head_is_no_recording(call: Path, tmp_path: Path) -> None:
    whole = call.read_bytes()
    torn = tmp_path / "torn.antiphon"
    torn.write_bytes(whole[:-7])
    done = run(str(torn))
    assert done.returncode == 0
    assert "all the same" in done.stdout
    torn.write_bytes(whole[7:])
    done = run(str(torn))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "recording" in done.stderr
