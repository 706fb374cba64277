"""Pipelines in processes of their own: by choice, or because nothing else can stop them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from antiphon.engines.diffusion.pipelines.apart import ApartRunner
from antiphon.engines.errors import EngineUnavailableError, InvalidRequestError
from antiphon.engines.launchers import SubprocessEngine, launch
from antiphon.engines.messages import DiffusionStep

from .conftest import OpenEngine
from .running import body, engine_options, make, request


async def gone(process: psutil.Process) -> bool:
    """Does it end? (A killed process needs a moment for that, more on a busy machine; it need not have been waited for yet.)"""
    for _ in range(200):
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        await asyncio.sleep(0.05)
    return False


async def test_a_pipeline_in_another_process(folder: Callable[[str], Path], opened: OpenEngine, tmp_path: Path) -> None:
    async with opened("wan") as near:
        expected = await make(near, body("wan", seed=3, previews=1))
    far = launch("diffusers", "far", engine_options(folder("wan"), "wan", tmp_path), "subprocess")
    assert isinstance(far, SubprocessEngine)
    await far.open()
    try:
        made = await make(far, body("wan", seed=3, previews=1))
        assert made.digest == expected.digest
        assert made.steps == expected.steps
        with pytest.raises(InvalidRequestError, match=r"^frames: "):
            await make(far, body("wan", frames=8))

        stream = far.stream(request(body("wan", steps=200)))
        async for chunk in stream:
            if isinstance(chunk, DiffusionStep) and chunk.step == 3:
                break
        await stream.aclose()
        assert not (await far.health()).running
        assert (await make(far, body("wan", seed=3))).digest == expected.digest

        victim = asyncio.create_task(make(far, body("wan", steps=200)))
        await asyncio.sleep(0.2)
        assert far.pid is not None
        os.kill(far.pid, signal.SIGKILL)
        with pytest.raises(EngineUnavailableError, match="died"):
            await victim
        assert not (await far.health()).ok
        await far.close()
        await far.open()
        assert (await make(far, body("wan", seed=3))).digest == expected.digest
    finally:
        await far.close()


async def test_a_pipeline_that_calls_nobody_is_killed_and_started_again(opened: OpenEngine, caplog: pytest.LogCaptureFixture) -> None:
    async with opened("dit") as engine:
        assert not isinstance(engine._runner, ApartRunner)  # its scheduler is called at each step: that is enough
    async with opened("stubborn", trust_code=True) as engine:
        assert "stopped by killing a process" in caplog.text
        runner = engine._runner
        assert isinstance(runner, ApartRunner)
        assert runner.pid is not None
        first = psutil.Process(runner.pid)
        made = await make(engine, body("dit", prompt="four", steps=2))
        assert made.frames.shape == (1, 16, 16, 3)
        assert (made.frames == 4).all()
        assert [(step.step, step.steps) for step in made.steps] == [(2, 2)]

        task = asyncio.create_task(make(engine, body("dit", prompt="x", steps=200)))  # 20 s
        await asyncio.sleep(0.3)
        began = time.monotonic()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 8.0
        assert await gone(first)
        assert (await engine.health()).ok

        again = await make(engine, body("dit", prompt="seven..", steps=1))
        assert (again.frames == 7).all()
        assert runner.pid != first.pid
        second = psutil.Process(runner.pid)
        assert (await engine.health()).extra["kills"] == 1
    assert await gone(second)
