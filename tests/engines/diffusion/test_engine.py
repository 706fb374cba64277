"""The step engine on a toy network: who shares a step, what a reader sees, and that nobody's trouble is another's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import numpy as np
import pytest
from antiphon.engines.diffusion import rasters
from antiphon.engines.diffusion.engine import StepDiffusion
from antiphon.engines.diffusion.probe import find_cap, measure
from antiphon.engines.diffusion.requests import UNREAD_STEPS
from antiphon.engines.errors import EngineBusyError, EngineError, EngineTimeoutError, EngineUnavailableError, InvalidRequestError
from antiphon.engines.interface import EngineRequest, WorkClass
from antiphon.engines.messages import DiffusionStep, Generated, RasterChunk, SpeakBody
from antiphon.engines.pool import EnginePool
from hypothesis import given
from hypothesis import strategies as st

from .toy import BurningModel, ToyModel, engine, request


@asynccontextmanager
async def opened(model: ToyModel, **options: Any) -> AsyncIterator[StepDiffusion]:
    made = engine(model, **options)
    await made.open()
    try:
        yield made
    finally:
        model.free.set()
        await made.close()


async def run(made: StepDiffusion, wanted: EngineRequest) -> list[Any]:
    async with aclosing(made.stream(wanted)) as chunks:  # type: ignore[type-var]
        return [chunk async for chunk in chunks]


def picture(chunks: list[Any]) -> bytes:
    return b"".join(chunk.raster.rgb for chunk in chunks if isinstance(chunk, RasterChunk))


async def test_progress_frames_and_the_end() -> None:
    async with opened(ToyModel()) as made:
        chunks = await run(made, request("a kite", steps=6, previews=2, frames=3, seed=5, fps=4.0))
    steps = [chunk for chunk in chunks if isinstance(chunk, DiffusionStep)]
    assert [(step.step, step.steps) for step in steps] == [(number, 6) for number in range(1, 7)]
    assert [step.step for step in steps if step.preview is not None] == [2, 4]
    preview = steps[1].preview
    assert preview is not None
    assert (preview.width, preview.height, preview.frames) == (16, 16, 3)
    assert isinstance(chunks[-2], RasterChunk)
    assert len(picture(chunks)) == 3 * 16 * 16 * 3
    assert chunks[-1] == Generated(seed=5, steps=6, frames=3, fps=4.0, revised_prompt="a kite", rows=36)


async def test_requests_at_different_steps_share_every_step() -> None:
    model = ToyModel(pause=0.01)
    async with opened(model) as made:
        async with asyncio.TaskGroup() as group:
            group.create_task(run(made, request("first", steps=12)))
            await asyncio.sleep(0.04)
            group.create_task(run(made, request("second", steps=4)))
            group.create_task(run(made, request("third", steps=8)))
        health = await made.health()
    assert ["first", "second", "third"] in [sorted(step) for step in model.steps]
    assert len(model.steps) < 24
    assert health.extra["rows"] == 2 * 24
    assert (health.running, health.waiting) == (0, 0)


async def test_the_bytes_are_the_same_alone_and_in_a_crowd() -> None:
    async with opened(ToyModel()) as made:
        alone = await run(made, request("mine", seed=7, steps=5))
        crowd = await asyncio.gather(*(run(made, request(f"other {seed}", seed=seed, steps=3 + seed % 4)) for seed in range(20)))
        together = (await asyncio.gather(run(made, request("mine", seed=7, steps=5)), *(run(made, request(f"{n}")) for n in range(9))))[0]
    assert picture(alone) == picture(together)
    assert len({picture(chunks) for chunks in crowd}) == 20


@pytest.mark.parametrize("where", ["bad prepare", "bad step", "bad decode"])
async def test_a_request_that_fails_harms_no_other(where: str) -> None:
    model = ToyModel(pause=0.005)
    async with opened(model) as made:
        good = [asyncio.create_task(run(made, request(f"good {number}", seed=number, steps=6))) for number in range(3)]
        await asyncio.sleep(0.01)
        with pytest.raises(InvalidRequestError if where == "bad prepare" else EngineError):
            await run(made, request(where))
        results = await asyncio.gather(*good)
        alone = [await run(made, request(f"good {number}", seed=number, steps=6)) for number in range(3)]
        assert (await made.health()).running == 0
    assert [picture(chunks) for chunks in results] == [picture(chunks) for chunks in alone]
    assert all([step.step for step in chunks[:6]] == [1, 2, 3, 4, 5, 6] for chunks in results)


async def test_urgent_work_overtakes_at_the_next_step_and_batch_work_goes_on_after_it() -> None:
    model = ToyModel(pause=0.005)
    async with opened(model, max_rows=2) as made:
        batch = asyncio.create_task(run(made, request("batch", steps=20)))
        await asyncio.sleep(0.03)
        await run(made, request("urgent", steps=5, work_class=WorkClass.INTERACTIVE))
        assert not batch.done()
        await batch
    order = [step[0] for step in model.steps]
    first = order.index("urgent")
    assert 0 < first < 20
    assert order[first : first + 5] == ["urgent"] * 5


async def test_shapes_take_turns() -> None:
    model = ToyModel(pause=0.002)
    async with opened(model) as made:
        await asyncio.gather(*(run(made, request(size, width=int(size), height=int(size), steps=150)) for size in ("16", "32")))
    order = [step[0] for step in model.steps]
    assert all(len(step) == 1 for step in model.steps)
    halfway = order[: len(order) // 2]
    assert 30 < halfway.count("16") < 120


async def test_a_request_with_more_rows_than_the_cap_runs_in_several_passes() -> None:
    model = ToyModel()
    async with opened(model, max_rows=6) as made:
        chunks = await run(made, request("a clip", frames=10, steps=2))
    assert model.passes == [5, 5, 5, 5] * 2
    assert isinstance(chunks[-1], Generated)


@pytest.mark.parametrize("phase", ["waiting", "stepping", "unread"])
async def test_closing_frees_the_slot_in_every_phase(phase: str) -> None:
    model = ToyModel()
    async with opened(model, max_waiting=1) as made:
        model.free.clear()
        stream = made.stream(request("mine", steps=3))
        reading = asyncio.ensure_future(anext(stream))  # type: ignore[arg-type]
        await asyncio.sleep(0.05 if phase != "waiting" else 0.0)
        if phase == "unread":
            model.free.set()
            await reading
            await asyncio.sleep(0.05)
        with pytest.raises(EngineBusyError, match="has 1 requests already"):
            await run(made, request("too many"))
        began = time.monotonic()
        if not reading.done():
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await stream.aclose()  # type: ignore[attr-defined]
        assert time.monotonic() - began < 1.0  # it does not wait for the step that hangs
        health = await made.health()
        assert (health.running, health.waiting) == (0, 0)
        model.free.set()
        assert isinstance((await run(made, request("next")))[-1], Generated)


async def test_a_slow_reader_holds_up_nobody_and_loses_only_old_progress() -> None:
    model = ToyModel()
    async with opened(model) as made:
        slow = made.stream(request("slow", steps=3 * UNREAD_STEPS, seed=3))
        await anext(slow)  # type: ignore[arg-type]
        await run(made, request("quick", steps=4 * UNREAD_STEPS))
        rest = [chunk async for chunk in slow]
    steps = [chunk.step for chunk in rest if isinstance(chunk, DiffusionStep)]
    assert len(steps) <= UNREAD_STEPS
    assert steps == sorted(steps)
    assert steps[-1] == 3 * UNREAD_STEPS
    assert isinstance(rest[-1], Generated)


async def test_what_is_refused() -> None:
    model = ToyModel()
    made = engine(model)
    with pytest.raises(EngineUnavailableError, match="not open"):
        await run(made, request())
    async with opened(model) as made:
        with pytest.raises(InvalidRequestError, match="SpeakBody"):
            await run(made, EngineRequest(request_id="r", body=SpeakBody(text="x")))
        with pytest.raises(EngineTimeoutError, match="before the deadline"):
            await run(made, request(deadline=time.monotonic() - 1.0))


async def test_closing_the_engine_tells_its_readers_and_it_can_be_opened_again() -> None:
    model = ToyModel(pause=0.01)
    made = engine(model)
    await made.open()
    running = asyncio.create_task(run(made, request(steps=1000)))
    await asyncio.sleep(0.05)
    await made.close()
    with pytest.raises(EngineUnavailableError, match="closing"):
        await running
    assert not (await made.health()).ok
    await made.open()
    assert isinstance((await run(made, request()))[-1], Generated)
    await made.close()


async def test_in_the_pool_a_request_that_waits_long_is_not_taken_for_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    from antiphon.engines.diffusion import requests
    from antiphon.engines.pool import PoolOptions

    monkeypatch.setattr(requests, "SIGN_S", 0.1)
    model = ToyModel(pause=0.02)
    pool = EnginePool(PoolOptions(stall=0.5))
    pool.add("media", engine(model, max_rows=2))
    await pool.open()
    first, second = (
        asyncio.create_task(_all(pool.stream("media", request(name, steps=steps)))) for name, steps in (("long", 60), ("behind", 2))
    )
    await first
    chunks = await second
    assert DiffusionStep(step=0, steps=2) in chunks
    assert isinstance(chunks[-1], Generated)
    await pool.close()


async def _all(chunks: Any) -> list[Any]:
    return [chunk async for chunk in chunks]


# ---- chunks, previews, the probe ------------------------------------------------------------------------------------


@given(st.integers(1, 200), st.integers(0, 20))
def test_previews_are_spread_and_never_shown_with_the_picture(steps: int, previews: int) -> None:
    due = [step for step in range(1, steps + 1) if rasters.preview_due(step, steps, previews)]
    assert len(due) == min(previews, steps - 1)
    assert steps not in due


def test_large_clips_come_in_chunks_and_large_previews_are_thinned() -> None:
    frames = np.random.default_rng(1).integers(0, 256, (30, 256, 320, 3), np.uint8)
    chunks = list(rasters.chunks(frames))
    assert len(chunks) > 2
    assert max(len(chunk.raster.rgb) for chunk in chunks) <= rasters.CHUNK_BYTES
    assert [chunk.first for chunk in chunks] == [sum(other.raster.frames for other in chunks[:number]) for number in range(len(chunks))]
    assert b"".join(chunk.raster.rgb for chunk in chunks) == frames.tobytes()
    preview = rasters.preview(frames)
    assert 1 < preview.frames < 30
    assert len(preview.rgb) <= rasters.PREVIEW_BYTES


@pytest.mark.parametrize(
    ("milliseconds", "cap"),
    [
        ({2: 10.0, 4: 12.0, 8: 18.0, 16: 30.0, 32: 58.0, 64: 110.0}, 16),  # 32 rows: hardly cheaper by the row
        ({2: 10.0, 4: 12.0, 8: 70.0}, 4),  # too long a step
        ({2: 500.0}, 2),
        ({2: 10.0, 4: 20.0}, 2),
    ],
)
def test_the_cap_from_what_steps_cost(milliseconds: dict[int, float], cap: int) -> None:
    assert find_cap(milliseconds, 60.0) == cap


def test_the_probe_measures_until_a_step_takes_too_long() -> None:
    """Of its own computing time: that it is made to wait is no reason for smaller steps."""
    measured = measure(BurningModel(pause=0.01), 5.0)
    assert 4 <= measured.cap <= 8
    assert max(measured.milliseconds) in (8, 16)
