"""The model that ships, in a process of its own: bytes, the cache, the process's death, its priority."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from antiphon.engines.diffusion import models
from antiphon.engines.diffusion.passes import Passes
from antiphon.engines.errors import EngineUnavailableError, InvalidRequestError
from antiphon.engines.gate import GateWriter
from antiphon.engines.interface import EngineRequest, WorkClass
from antiphon.engines.launchers import SubprocessEngine
from antiphon.engines.messages import DiffusionStep, GenerateBody, Generated, Raster, RasterChunk
from antiphon.engines.pool import EnginePool, PoolOptions

shared_loop = pytest.mark.asyncio(loop_scope="module")
PROMPT = "a large red circle above a small blue square on a white background"


@pytest.fixture(scope="module")
def folder() -> Path:
    from antiphon.engines import diffusion

    assert diffusion.__file__ is not None
    return Path(diffusion.__file__).parent / "weights" / "tinyflow"


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return models.load(folder, 1)


@pytest.fixture(scope="module")
def gate_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gate") / "gate"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(gate_file: Path) -> AsyncIterator[EnginePool]:
    """The engine in its process, with a gate of its own; torch takes seconds to start, so the tests share it."""
    made = EnginePool(PoolOptions(backoff=0.05))
    options = {"max_rows": 8, "gate_file": str(gate_file), "hold_ms": 300.0}
    made.add("media", SubprocessEngine("diffusion", "media", options, nice=7), reserved=0)
    await made.open()
    yield made
    await made.close()


def request(**fields: Any) -> EngineRequest:
    return EngineRequest(request_id="r", body=GenerateBody(**{"prompt": PROMPT, **fields}), work_class=WorkClass.BATCH)


async def make(pool: EnginePool, **fields: Any) -> list[Any]:
    async with aclosing(pool.stream("media", request(**fields))) as chunks:
        return [chunk async for chunk in chunks]


def pixels(chunks: list[Any]) -> bytes:
    return b"".join(chunk.raster.rgb for chunk in chunks if isinstance(chunk, RasterChunk))


def run(model: Any, **fields: Any) -> Any:
    sample = model.prepare(GenerateBody(**{"prompt": PROMPT, **fields}))
    while sample.step < sample.steps:
        model.advance([sample])
    return sample


# ---- the bytes ------------------------------------------------------------------------------------------------------


def test_bytes_do_not_depend_on_the_crowd(model: Any) -> None:
    """Pictures, clips, guidance and the cache, at different steps, in passes of odd sizes."""
    bodies = [
        {
            "seed": seed,
            "steps": 4 + seed % 4,
            "frames": (1, 1, 3)[seed % 3],
            "guidance": (1.0, 3.0)[seed % 2],
            "cache": (0.0, 0.2)[seed // 6],
        }
        for seed in range(12)
    ]
    alone = [run(model, **body) for body in bodies]
    crowd = [model.prepare(GenerateBody(prompt=PROMPT, **body)) for body in bodies]
    generator = np.random.default_rng(2)
    while unfinished := [one for one in crowd if one.step < one.steps]:
        chosen = generator.permutation(len(unfinished))[: generator.integers(1, len(unfinished) + 1)]
        model.advance([unfinished[index] for index in chosen], Passes(int(generator.integers(0, 12))))
    for one, other in zip(alone, crowd, strict=True):
        assert np.array_equal(one.latents.numpy(), other.latents.numpy())
        assert one.rows_computed == other.rows_computed
        assert model.decode(one).tobytes() == model.decode(other).tobytes()


def test_the_cache_saves_rows_and_changes_little(model: Any) -> None:
    whole, saved = run(model, seed=3, steps=20), run(model, seed=3, steps=20, cache=0.1)
    assert whole.rows_computed == 20
    assert 2 <= saved.rows_computed < 16
    difference = model.decode(whole).astype(float) - model.decode(saved).astype(float)
    assert 0 < np.mean(difference**2) < 255**2 / 10**2.0  # better than 20 dB


@shared_loop
async def test_alone_and_in_a_crowd_in_another_process(pool: EnginePool, model: Any) -> None:
    alone = await make(pool, seed=3, previews=2)
    together, *_ = await asyncio.gather(
        make(pool, seed=3, previews=2), make(pool, seed=4, frames=9), *(make(pool, seed=seed, steps=3 + seed) for seed in range(5, 9))
    )
    assert pixels(alone) == pixels(together) == model.decode(run(model, seed=3)).tobytes()
    assert [chunk.step for chunk in alone if isinstance(chunk, DiffusionStep)] == list(range(1, 9))
    assert sum(chunk.preview is not None for chunk in alone if isinstance(chunk, DiffusionStep)) == 2
    assert isinstance(alone[-1], Generated)


# ---- the process ----------------------------------------------------------------------------------------------------


@shared_loop
async def test_large_pictures_in_and_out(pool: EnginePool) -> None:
    picture = Raster(width=1024, height=1024, rgb=bytes(3 * 1024 * 1024))
    chunks = await make(pool, seed=1, image=picture, mask=bytes([255]) * (1024 * 1024), width=1024, height=1024, frames=4, steps=1)
    rasters = [chunk for chunk in chunks if isinstance(chunk, RasterChunk)]
    assert [chunk.first for chunk in rasters] == [0, 1, 2, 3]
    assert len(pixels(chunks)) == 4 * 3 * 1024 * 1024
    with pytest.raises(InvalidRequestError, match="too many for one message"):
        await make(pool, image=Raster(width=8192, height=4096, rgb=bytes(3 * 8192 * 4096)))
    assert isinstance((await make(pool, seed=1, steps=1))[-1], Generated)


@shared_loop
async def test_closing_a_stream_frees_its_slot_in_the_other_process(pool: EnginePool) -> None:
    stream = pool.stream("media", request(steps=100, frames=32))
    await anext(stream)
    await stream.aclose()
    health = await pool.engine("media").health()
    assert (health.running, health.waiting) == (0, 0)


@shared_loop
async def test_a_gateway_of_this_machine_makes_it_wait(pool: EnginePool, gate_file: Path) -> None:
    gate = GateWriter(gate_file)
    with gate.working():
        stream = pool.stream("media", request(steps=4))
        await anext(stream)
    rest = [chunk async for chunk in stream]
    assert isinstance(rest[-1], Generated)
    extra = (await pool.engine("media").health()).extra
    assert extra["held"] >= 1
    assert extra["held_seconds"] > 0.1
    assert extra["realtime_live"] == 1.0
    gate.close()


@shared_loop
async def test_its_process_steps_back_dies_alone_and_comes_back(pool: EnginePool) -> None:
    engine = pool.engine("media")
    assert isinstance(engine, SubprocessEngine)
    first = engine.pid
    assert first is not None
    assert os.getpriority(os.PRIO_PROCESS, first) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
    assert engine.capabilities.media is not None  # known now that it is open
    assert engine.capabilities.media.sizes
    stream = pool.stream("media", request(steps=100))
    await anext(stream)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(EngineUnavailableError, match="died"):
        [chunk async for chunk in stream]
    deadline = time.monotonic() + 120.0
    while not (engine.pid not in (None, first) and (await engine.health()).ok):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    while True:
        try:
            chunks = await make(pool, seed=1)
            break
        except EngineUnavailableError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    assert isinstance(chunks[-1], Generated)
