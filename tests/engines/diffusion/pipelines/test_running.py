"""Real pipelines of every kind, tiny: what they make, what they tell, and how they are stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from antiphon.engines.diffusion import rasters
from antiphon.engines.diffusion.diffusers_engine import DiffusersEngine
from antiphon.engines.diffusion.pipelines import run as run_module
from antiphon.engines.errors import (
    EngineBusyError,
    EngineError,
    EngineTimeoutError,
    EngineUnavailableError,
    InvalidRequestError,
)
from antiphon.engines.gate import GateWriter
from antiphon.engines.interface import WorkClass
from antiphon.engines.messages import DiffusionStep, Raster, TurnEndBody

from .conftest import OpenEngine
from .running import SIZES, Made, body, make, request

EVERY = tuple(SIZES)


def denoiser(engine: DiffusersEngine) -> Any:
    pipeline = engine._runner._loaded.pipeline  # type: ignore[union-attr]
    return getattr(pipeline, "transformer", None) or pipeline.unet


def slow_down(engine: DiffusersEngine, seconds: float) -> list[int]:
    """Make each call of the denoiser take so long; -> a list with the number of calls."""
    calls = [0]

    def before(*_: Any) -> None:
        calls[0] += 1
        time.sleep(seconds)

    denoiser(engine).register_forward_pre_hook(before)
    return calls


async def until_step(stream: AsyncGenerator[Any, None], step: int) -> None:
    async for chunk in stream:
        if isinstance(chunk, DiffusionStep) and chunk.step >= step:
            return


# ---- making ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
async def test_it_makes_what_was_asked_for_and_tells_every_step(opened: OpenEngine, name: str) -> None:
    async with opened(name) as engine:
        made = await make(engine, body(name, seed=5))
        assert [(each.step, each.steps) for each in made.steps] == [(1, 4), (2, 4), (3, 4), (4, 4)]
        width, height = SIZES[name].get("width", 32), SIZES[name].get("height", 32)
        assert made.frames.shape == (SIZES[name].get("frames", 1), height, width, 3)
        assert made.frames.std() > 0
        assert (made.generated.seed, made.generated.steps, made.generated.frames) == (5, 4, len(made.frames))
        health = await engine.health()
        assert health.ok
        assert health.running == health.waiting == 0


@pytest.mark.parametrize("name", EVERY)
async def test_a_seed_gives_the_same_bytes_again(opened: OpenEngine, name: str) -> None:
    async with opened(name) as engine:
        first = await make(engine, body(name, seed=7))
        other = await make(engine, body(name, seed=8, steps=3))
        again = await make(engine, body(name, seed=7))
        assert first.digest == again.digest != other.digest


@pytest.mark.parametrize("name", ["wan", "ltx", "flux", "sd3", "sd", "pixart"])
async def test_previews_come_when_asked_for_and_change_nothing(opened: OpenEngine, name: str) -> None:
    async with opened(name) as engine:
        assert engine.capabilities.media is not None
        assert engine.capabilities.media.previews
        plain = await make(engine, body(name, steps=6))
        assert all(step.preview is None for step in plain.steps)
        shown = await make(engine, body(name, steps=6, previews=2))
        assert shown.digest == plain.digest
        previews = [step.preview for step in shown.steps if step.preview is not None]
        assert [step.step for step in shown.steps if step.preview is not None] == [2, 4]
        for preview in previews:
            assert (preview.width, preview.height, preview.frames) == (SIZES[name]["width"], SIZES[name]["height"], 1)
            assert len(preview.rgb) == 3 * preview.width * preview.height


async def test_a_late_preview_shows_the_picture_that_comes(opened: OpenEngine) -> None:
    """The clean picture is guessed from two steps: the noise that is still there late in the run must not be in it."""
    async with opened("flux") as engine:
        made = await make(engine, body("flux", steps=40, previews=39))
        previews = [np.frombuffer(step.preview.rgb, np.uint8) for step in made.steps if step.preview is not None]
        final = made.frames[0].reshape(-1).astype(int)
        away = [float(np.abs(preview - final).mean()) for preview in previews]
        assert away[-1] < 1.0
        assert away[-1] < away[20] < away[1]


async def test_a_preview_that_fails_does_not_take_the_picture_along(
    opened: OpenEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened("flux") as engine:
        plain = await make(engine, body("flux"))
        monkeypatch.setattr("antiphon.engines.diffusion.pipelines.previews._scaled", lambda *_: 1 / 0)
        made = await make(engine, body("flux", previews=2))
        assert made.digest == plain.digest
        assert all(step.preview is None for step in made.steps)
        assert "a preview could not be made" in caplog.text


async def test_large_clips_come_in_pieces(opened: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rasters, "CHUNK_BYTES", 10_000)  # three frames of this clip
    async with opened("wan") as engine:
        made = await make(engine, body("wan"))
        assert [(chunk.first, chunk.raster.frames) for chunk in made.chunks] == [(0, 3), (3, 3), (6, 3)]
        monkeypatch.undo()
        assert (await make(engine, body("wan"))).digest == made.digest


async def test_guidance_and_a_negative_prompt_matter(opened: OpenEngine) -> None:
    async with opened("sd") as engine:
        plain = await make(engine, body("sd", guidance=1.0))
        guided = await make(engine, body("sd", guidance=5.0))
        against = await make(engine, body("sd", guidance=5.0, negative_prompt="blue square"))
        assert len({plain.digest, guided.digest, against.digest}) == 3


async def test_the_cache_is_of_one_request_only(opened: OpenEngine) -> None:
    async with opened("wan") as engine:
        calls = [0]
        denoiser(engine).blocks[1].attn1.register_forward_hook(lambda *_: calls.__setitem__(0, calls[0] + 1))
        plain = await make(engine, body("wan", steps=12))
        every, calls[0] = calls[0], 0
        first = await make(engine, body("wan", steps=12, cache=0.5))
        assert calls[0] < every
        assert (await make(engine, body("wan", steps=12, cache=0.5))).digest == first.digest
        assert (await make(engine, body("wan", steps=12))).digest == plain.digest


# ---- pictures to start from -----------------------------------------------------------------------------------------


def red(width: int = 40, height: int = 32) -> Raster:
    return Raster(width=width, height=height, rgb=bytes((200, 30, 30)) * (width * height))


@pytest.mark.parametrize("name", ["flux", "sd"])
async def test_it_starts_from_a_picture(opened: OpenEngine, name: str) -> None:
    async with opened(name) as engine:
        made = await make(engine, body(name, image=red(), width=None, height=None, steps=5, strength=0.6))
        assert made.frames.shape == (1, 32, 40, 3)
        assert [step.step for step in made.steps] == [1, 2, 3]
        assert made.steps[-1].steps == made.generated.steps == 3
        assert made.digest != (await make(engine, body(name, width=40, height=32, steps=5))).digest


@pytest.mark.parametrize("name", ["flux", "sd"])
async def test_what_the_mask_leaves_out_stays(opened: OpenEngine, name: str) -> None:
    mask = np.zeros((32, 40), np.uint8)
    mask[:, :20] = 255
    async with opened(name) as engine:
        made = await make(engine, body(name, image=red(), mask=mask.tobytes(), width=40, height=32, strength=1.0))
        assert (made.frames[0, :, 20:] == (200, 30, 30)).all()
        assert (made.frames[0, :, :20] != (200, 30, 30)).any()


# ---- stopping -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
async def test_a_closed_request_stops_at_the_next_step_and_leaves_a_usable_pipeline(opened: OpenEngine, name: str) -> None:
    async with opened(name) as engine:
        expected = await make(engine, body(name))
        one_step = 2 if name in ("sd", "sd3", "wan", "ltx", "pixart") else 1
        calls = slow_down(engine, 0.01)
        stream = engine.stream(request(body(name, steps=100)))
        await until_step(stream, 3)
        before = calls[0]
        await stream.aclose()
        assert calls[0] <= before + 2 * one_step
        stopped = calls[0]
        assert not (await engine.health()).running
        await asyncio.sleep(0.05)
        assert calls[0] == stopped
        assert (await make(engine, body(name))).digest == expected.digest


async def test_a_cancelled_reader_is_a_closed_request(opened: OpenEngine) -> None:
    async with opened("flux") as engine:
        slow_down(engine, 0.01)
        task = asyncio.create_task(make(engine, body("flux", steps=200)))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not (await engine.health()).running
        assert len((await make(engine, body("flux"))).steps) == 4


async def test_whoever_is_closed_before_the_first_step_never_computes(opened: OpenEngine) -> None:
    async with opened("flux") as engine:
        calls = slow_down(engine, 0.0)
        stream = engine.stream(request(body("flux")))
        await stream.aclose()
        assert calls[0] == 0
        assert len((await make(engine, body("flux"))).steps) == 4


async def test_closing_the_engine_tells_who_runs_and_who_waits(opened: OpenEngine) -> None:
    async with opened("flux") as engine:
        slow_down(engine, 0.02)
        running = asyncio.create_task(make(engine, body("flux", steps=200)))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(make(engine, body("flux")))
        await asyncio.sleep(0.05)
        await engine.close()
        for task in (running, waiting):
            with pytest.raises(EngineUnavailableError, match="closing"):
                await task
        assert not (await engine.health()).ok
        await engine.open()
        assert len((await make(engine, body("flux"))).steps) == 4


# ---- one at a time --------------------------------------------------------------------------------------------------


async def test_the_most_urgent_waits_least(opened: OpenEngine) -> None:
    async with opened("flux") as engine:
        slow_down(engine, 0.02)
        order: list[str] = []

        async def named(name: str, work_class: WorkClass) -> None:
            await make(engine, body("flux", steps=5), work_class=work_class)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            for name, work_class in [
                ("first", WorkClass.BATCH),
                ("batch", WorkClass.BATCH),
                ("interactive", WorkClass.INTERACTIVE),
                ("realtime", WorkClass.REALTIME),
            ]:
                group.create_task(named(name, work_class))
                await asyncio.sleep(0.01)
        assert order == ["first", "realtime", "interactive", "batch"]


async def test_the_line_is_bounded_and_waits_have_deadlines(opened: OpenEngine) -> None:
    async with opened("flux", waiting=1) as engine:
        slow_down(engine, 0.02)
        running = asyncio.create_task(make(engine, body("flux", steps=20)))
        await asyncio.sleep(0.05)
        impatient = asyncio.create_task(make(engine, body("flux"), deadline=time.monotonic() + 0.1))
        await asyncio.sleep(0.02)
        with pytest.raises(EngineBusyError, match="1 requests waiting"):
            await make(engine, body("flux"))
        with pytest.raises(EngineTimeoutError, match="deadline"):
            await impatient
        assert isinstance(await running, Made)
        assert isinstance(await make(engine, body("flux")), Made)


async def test_who_stops_waiting_leaves_the_line(opened: OpenEngine) -> None:
    async with opened("flux", waiting=1) as engine:
        slow_down(engine, 0.02)
        running = asyncio.create_task(make(engine, body("flux", steps=20)))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(make(engine, body("flux")))
        await asyncio.sleep(0.02)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        last = asyncio.create_task(make(engine, body("flux")))
        assert isinstance(await running, Made)
        assert isinstance(await last, Made)


# ---- long steps, realtime work --------------------------------------------------------------------------------------


async def test_long_steps_and_long_waits_give_signs_of_life(opened: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "SIGN_OF_LIFE_S", 0.05)
    monkeypatch.setattr("antiphon.engines.diffusion.diffusers_engine.SIGN_OF_LIFE_S", 0.05)
    async with opened("flux") as engine:
        slow_down(engine, 0.3)
        running = asyncio.create_task(make(engine, body("flux", steps=2)))
        await asyncio.sleep(0.01)
        waiting = asyncio.create_task(make(engine, body("flux", steps=1)))
        steps = [step.step for step in (await running).steps]
        assert steps == sorted(steps)
        assert steps[-1] == 2
        assert steps.count(0) >= 2
        assert [step.step for step in (await waiting).steps].count(0) >= 4


async def test_a_step_that_does_not_end_makes_the_engine_ill(opened: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "SIGN_OF_LIFE_S", 0.05)
    async with opened("flux", step_s=0.2) as engine:
        slow_down(engine, 1.0)
        task = asyncio.create_task(make(engine, body("flux", steps=2)))
        await asyncio.sleep(0.4)
        health = await engine.health()
        assert not health.ok
        assert "a step has taken more than" in health.detail
        with pytest.raises(EngineTimeoutError, match="a step has taken more than"):
            await task


async def test_realtime_work_goes_first_but_not_for_ever(opened: OpenEngine, tmp_path: Path) -> None:
    writer = GateWriter(tmp_path / "gate")
    async with opened("flux", hold_ms=50.0) as engine:
        await make(engine, body("flux"))
        assert (await engine.health()).extra["held"] == 0
        with writer.working():
            began = time.monotonic()
            await make(engine, body("flux"))
            took = time.monotonic() - began
        extra = (await engine.health()).extra
        assert extra["held"] == 4
        assert 0.2 <= extra["held_seconds"] <= took
    writer.close()


async def test_a_held_request_can_be_closed(opened: OpenEngine, tmp_path: Path) -> None:
    writer = GateWriter(tmp_path / "gate")
    async with opened("flux", hold_ms=60_000.0) as engine:
        with writer.working():
            task = asyncio.create_task(make(engine, body("flux")))
            await asyncio.sleep(0.1)
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - began < 3.0  # and not the 5 s after which such work counts no more
    writer.close()


# ---- what cannot be made --------------------------------------------------------------------------------------------


REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "wan": [
        ({"width": 33}, r"^width: must be a multiple of 16, not 33"),
        ({"height": 2000}, r"^height: must be at most 1280, not 2000"),
        ({"height": None}, r"^height: must be given together"),
        ({"frames": 8}, r"^frames: a clip of this model has 4k \+ 1 frames, not 8; 5 or 9"),
        ({"frames": 0}, r"^frames: must lie between 1 and 161"),
        ({"frames": 165}, r"^frames: must lie between 1 and 161"),
        ({"image": red(32, 32)}, r"^image: this model makes nothing from a picture"),
    ],
    "ltx": [
        ({"frames": 13}, r"^frames: a clip of this model has 8k \+ 1 frames, not 13; 9 or 17"),
    ],
    "flux": [
        ({"frames": 9}, r"^frames: must lie between 1 and 1, not 9"),
        ({"steps": 0}, r"^steps: must lie between 1 and 200"),
        ({"steps": 201}, r"^steps: must lie between 1 and 200"),
        ({"guidance": float("nan")}, r"^guidance: "),
        ({"guidance": -1.0}, r"^guidance: "),
        ({"seed": -1}, r"^seed: "),
        ({"fps": 0.0}, r"^fps: "),
        ({"cache": -0.1}, r"^cache: "),
        ({"previews": -1}, r"^previews: "),
        ({"strength": 0.0, "image": red()}, r"^strength: "),
        ({"mask": b"\xff"}, r"^mask: there is no image"),
        ({"image": red(), "mask": b"\xff"}, r"^mask: must be as large as the image"),
        ({"image": Raster(width=4, height=4, rgb=b"123")}, r"^image: must be one picture"),
    ],
    "sd": [
        ({"cache": 0.2}, r"^cache: StableDiffusionPipeline cannot"),
    ],
    "dit": [
        ({"prompt": "a red circle"}, r"^prompt: DiTPipeline takes none"),
        ({"negative_prompt": "blue"}, r"^negative_prompt: DiTPipeline takes none"),
        ({"width": 64, "height": 64}, r"^width: DiTPipeline makes pictures of its own size only"),
    ],
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_made_is_refused_by_name(opened: OpenEngine, name: str) -> None:
    async with opened(name) as engine:
        for fields, message in REFUSED[name]:
            with pytest.raises(InvalidRequestError, match=message):
                await make(engine, body(name, **fields))
        assert len((await make(engine, body(name, steps=1))).steps) == 1


async def test_sizes_may_be_listed(opened: OpenEngine) -> None:
    async with opened("flux", sizes=[[32, 32], [48, 32]]) as engine:
        assert (await make(engine, body("flux", width=None, height=None))).frames.shape == (1, 32, 32, 3)
        assert (await make(engine, body("flux", width=48, height=None))).frames.shape == (1, 32, 48, 3)
        with pytest.raises(InvalidRequestError, match=r"^width: 64 is not a size that this model makes; it makes 32x32, 48x32"):
            await make(engine, body("flux", width=64, height=32))
        with pytest.raises(InvalidRequestError, match=r"^height: 48 is not a size"):
            await make(engine, body("flux", width=48, height=48))


async def test_the_pipeline_has_the_last_word_on_a_request(opened: OpenEngine) -> None:
    """This family's code wants multiples of 32, whatever its files say."""
    async with opened("ltx", multiple=8) as engine:
        with pytest.raises(InvalidRequestError, match=r"LTXPipeline refuses this request: .*divisible by 32"):
            await make(engine, body("ltx", width=40, height=40))


async def test_numbers_that_are_none_are_an_error_and_no_black_picture(opened: OpenEngine) -> None:
    async with opened("flux") as engine:
        weights = denoiser(engine).proj_out.weight
        saved = weights.detach().clone()
        weights.data.fill_(float("nan"))
        with pytest.raises(EngineError, match="NaN") as raised:
            await make(engine, body("flux"))
        assert raised.value.code == "bad_output"
        weights.data.copy_(saved)
        assert len((await make(engine, body("flux"))).steps) == 4


async def test_a_fault_in_the_pipeline_is_told_and_survived(opened: OpenEngine) -> None:
    async with opened("wan") as engine:
        expected = await make(engine, body("wan"))
        hook = denoiser(engine).blocks[0].register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(EngineError, match="WanPipeline failed: ZeroDivisionError"):
            await make(engine, body("wan"))
        hook.remove()
        assert (await make(engine, body("wan"))).digest == expected.digest


async def test_it_makes_pictures_only(opened: OpenEngine) -> None:
    async with opened("flux") as engine:
        with pytest.raises(InvalidRequestError, match="cannot serve a TurnEndBody"):
            await anext(engine.stream(request(TurnEndBody(b""))))  # type: ignore[arg-type]


def test_a_closed_engine_says_so(folder: Callable[[str], Path]) -> None:
    from antiphon.engines.registry import build_engine

    engine = build_engine("diffusers", "x", {"model": str(folder("flux"))})
    assert isinstance(engine, DiffusersEngine)
    with pytest.raises(EngineUnavailableError, match="not open"):
        asyncio.run(make(engine, body("flux")))
