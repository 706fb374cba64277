"""`antiphon robot sim`, as a user runs it."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from antiphon.clients.robot import read_log, replay
from antiphon.codecs import images, video
from antiphon.scenarios import demo_robots
from antiphon.scenarios.robots import cli
from antiphon.scenarios.robots import sim as simulation
from antiphon.scenarios.robots import video as video_of_robots
from antiphon.scenarios.robots.planning import Plan
from antiphon.scenarios.robots.tracks import read_track
from antiphon.scenarios.robots.video import LINGER_S
from antiphon.scenarios.voice import Setting
from antiphon.tests.gateway.conftest import RunningServer, serving
from rich.console import Console
from typer.testing import CliRunner


async def sim(*options: str) -> Any:
    """What came of the command."""
    return await asyncio.to_thread(CliRunner().invoke, cli.app, ["sim", *options])


async def test_it_leaves_a_video_a_timeline_and_logs(server: RunningServer, tmp_path: Path) -> None:
    out, logs = tmp_path / "films" / "out.mp4", tmp_path / "logs"
    options = ("--task", "lift-red", "--robots", "2", "--url", server.url, "--video", str(out), "--log", str(logs))
    result = await sim(*options)
    assert result.exit_code == 0, result.output
    assert "2/2" in result.output
    tracks = [read_track(logs / f"robot-{number}.log") for number in (1, 2)]
    assert not any(replay(read_log(logs / f"robot-{number}.log")).differences for number in (1, 2))
    found = video.probe(out)
    first, last = min(track.steps[0].at for track in tracks), max(track.steps[-1].at for track in tracks)
    assert abs(found.frames - (last - first + LINGER_S) * found.fps) <= 3, "as long as it took"
    assert found.frames >= max(len(track.steps) for track in tracks)
    assert len(list(video.read_frames(out))) == found.frames
    assert images.decode((tmp_path / "films" / "out.png").read_bytes()).size[0] > 1000
    assert len(server.gateway.sessions) == 0, "the robots have left"


async def test_the_server_is_started_where_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = await sim("--task", "lift-blue")
    assert result.exit_code == 0, result.output
    assert "1/1" in result.output
    assert not os.listdir(tmp_path), "nothing is left that was not asked for"


async def test_free_words_and_a_task_that_is_not_done(server: RunningServer) -> None:
    done = await sim("--prompt", "hoist the green brick please", "--url", server.url)
    assert done.exit_code == 0, done.output
    assert "lift-green" in done.output, "what was done is told"
    wrong = await sim("--task", "lift-red", "--prompt", "lift the blue cube", "--url", server.url)
    assert wrong.exit_code == 1, wrong.output
    assert "not done" in wrong.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--task", "lift-purple"), "lift-blue"),
        (("--world", "moon"), "tabletop-eyes"),
        (("--task", "lift-red", "--url", "http://127.0.0.1:9"), "no policy server"),
        (("--task", "lift-red", "--handover", "hope"), "rtc"),
        (("--task", "lift-red", "--video", "out.avi"), ".mp4"),
        (("--task", "lift-red", "--video", "/dev/null/out.mp4"), "/dev/null"),
        (("--task", "lift-red", "--timeline", "/dev/null/out.png"), "/dev/null"),
        (("--task", "lift-red", "--prompt", " "), "empty"),
        (("--task", "lift-red", "--url", "http://"), "no address"),
    ],
)
async def test_what_cannot_be_played_is_a_sentence(options: tuple[str, ...], words: str) -> None:
    result = await sim(*options)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


async def test_a_server_without_a_policy_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving() as server:
        result = await sim("--task", "lift-red", "--url", server.url)
    assert result.exit_code == 2
    assert "no robot policy" in result.output


async def test_missing_packages_are_named_before_anything_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.scenarios.robots.video.find_spec", lambda name: None if name == "av" else object())
    result = await sim("--task", "lift-red", "--video", str(tmp_path / "out.mp4"))
    assert result.exit_code == 2
    assert "antiphon[media]" in result.output
    monkeypatch.setattr("antiphon.scenarios.robots.worlds.find_spec", lambda name: None)
    result = await sim("--task", "drawer-open")
    assert result.exit_code == 2
    assert "antiphon[sim]" in result.output


async def test_robots_that_see_need_something_that_draws(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mujoco.gl_context.GLContext", None)
    result = await sim("--world", "tabletop-eyes", "--task", "lift-red", "--url", server.url)
    assert result.exit_code == 2
    assert "libegl1" in result.output


async def test_a_log_that_cannot_be_written_is_a_sentence(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "robot-2.log").mkdir()
    result = await sim("--task", "lift-red", "--robots", "2", "--log", str(tmp_path), "--url", server.url)
    assert result.exit_code == 2, result.output
    assert "robot-2.log" in result.output


async def test_a_video_that_nobody_waits_for_any_more_is_given_up(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing, given_up = threading.Event(), threading.Event()

    def endless(*_: Any, tell: Any, **__: Any) -> int:
        drawing.set()
        try:
            while True:
                tell(1, 2)
                time.sleep(0.01)
        finally:
            given_up.set()

    monkeypatch.setattr(video_of_robots, "shoot", endless)
    plan = Plan(task="lift-red", video=tmp_path / "out.mp4")
    task = asyncio.create_task(simulation.run(plan, Console(file=io.StringIO()), url=server.url))
    assert await asyncio.to_thread(drawing.wait, 60)
    task.cancel()
    assert await asyncio.to_thread(given_up.wait, 10)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not os.listdir(tmp_path)


def test_sigterm_takes_the_server_along(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "antiphon", "robot", "sim", "--task", "all", "--episodes", "100"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # an episode was played
        process.terminate()
        assert process.wait(60) == 130
    assert not os.listdir(tmp_path), "the server's folder is gone, and so is the server, whose end was waited for"


async def test_the_demos_act(server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ROBOTS", 2), ("EPISODES", 1), ("DONE", 0.0)):
        monkeypatch.setattr(demo_robots, name, value)
    setting = Setting(tmp_path / "demo", Console(file=io.StringIO()), url=server.url)
    act = await demo_robots.run(setting)
    assert act.failures == []
    assert act.figures[0].value in ("2 of 2", "1 of 2"), "the policy does 98 of 100"
    assert set(os.listdir(setting.out)) == {"robots.mp4", "robots.png"}
    gone = await demo_robots.run(Setting(tmp_path / "demo", Console(file=io.StringIO()), url="http://127.0.0.1:9"))
    assert "no policy server" in gone.failures[0]
