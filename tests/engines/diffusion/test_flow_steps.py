"""Real torch networks through the step engine: tiny random Flux and Stable Diffusion 3 folders, batched step by step, to the last bit."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from antiphon.engines.diffusion import models
from antiphon.engines.diffusion.passes import Passes
from antiphon.engines.errors import EngineError, InvalidRequestError, WeightsError
from antiphon.engines.interface import Engine, EngineRequest, WorkClass
from antiphon.engines.messages import DiffusionStep, GenerateBody, Generated, Raster, RasterChunk
from antiphon.engines.registry import build_engine

from .pipelines import tiny


@pytest.fixture(scope="module", params=["flux", "sd3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build(request.param, tmp_path_factory.mktemp("models") / request.param)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return models.load(folder, 1)


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncIterator[Engine]:
    engine = build_engine("diffusion", "mine", {"model": str(folder), "gate": False, **options})
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


def body(**fields: Any) -> GenerateBody:
    return GenerateBody(**{"prompt": "a red circle", "width": 32, "height": 32, "steps": 5, **fields})


async def make(engine: Engine, wanted: GenerateBody) -> list[Any]:
    request = EngineRequest(request_id="r", body=wanted, work_class=WorkClass.BATCH)
    async with aclosing(engine.stream(request)) as chunks:  # type: ignore[type-var]
        return [chunk async for chunk in chunks]


def pixels(chunks: list[Any]) -> np.ndarray[Any, Any]:
    (raster,) = (chunk.raster for chunk in chunks if isinstance(chunk, RasterChunk))
    return np.frombuffer(raster.rgb, np.uint8).reshape(raster.height, raster.width, 3)


async def test_it_draws_what_the_whole_pipeline_draws(folder: Path) -> None:
    from diffusers import DiffusionPipeline

    missing = ("text_encoder_3", "tokenizer_3") if "sd3" in folder.name else ()
    pipe = DiffusionPipeline.from_pretrained(folder, **dict.fromkeys(missing))
    pipe.set_progress_bar_config(disable=True)
    wanted = pipe(
        "a red circle",
        width=32,
        height=48,
        num_inference_steps=4,
        guidance_scale=3.0,
        generator=torch.Generator().manual_seed(3),
        output_type="np",
    ).images[0]
    async with opened(folder, max_rows=8) as engine:
        chunks = await make(engine, body(height=48, steps=4, guidance=3.0, seed=3, previews=1))
    assert np.abs(pixels(chunks).astype(int) - np.round(wanted * 255).astype(int)).max() <= 1
    assert [chunk.preview is not None for chunk in chunks if isinstance(chunk, DiffusionStep)] == [False, True, False, False]
    assert isinstance(chunks[-1], Generated)


def test_the_bytes_are_the_same_whatever_shares_the_steps(model: Any) -> None:
    """Latents to the last bit, at every step, with changing crowds, places and passes."""
    assert model.row_bytes in ("padded", "tiled")
    generator = random.Random(1)

    def sample(seed: int) -> Any:
        return model.prepare(
            body(seed=seed, steps=4 + seed % 5, guidance=(1.0, 4.0)[seed % 2], prompt=("a blue square", "a red circle")[seed % 3 % 2])
        )

    alone = []
    for seed in range(12):
        one = sample(seed)
        while one.step < one.steps:
            model.advance([one])
        alone.append(one)
    crowd = [sample(seed) for seed in range(12)]
    while unfinished := [one for one in crowd if one.step < one.steps]:
        chosen = generator.sample(unfinished, generator.randint(1, len(unfinished)))
        for key in {model.shape_key(one) for one in chosen}:
            model.advance([one for one in chosen if model.shape_key(one) == key], Passes(generator.randint(0, 9)))
    for one, other in zip(alone, crowd, strict=True):
        assert torch.equal(one.latents, other.latents)
        assert model.decode(one).tobytes() == model.decode(other).tobytes()


async def test_in_the_engine_alone_and_in_a_crowd(folder: Path) -> None:
    async with opened(folder, max_rows=8) as engine:
        assert engine.capabilities.media is not None
        alone = await make(engine, body(seed=1))
        crowd = await asyncio.gather(*(make(engine, body(seed=seed, steps=3 + seed, width=32 + 16 * (seed % 2))) for seed in range(4)))
        together, *_ = await asyncio.gather(make(engine, body(seed=1)), *(make(engine, body(seed=seed)) for seed in range(2, 7)))
        health = await engine.health()
    assert pixels(alone).tobytes() == pixels(together).tobytes()
    assert len({pixels(chunks).tobytes() for chunks in crowd}) == 4
    assert health.extra["rows"] > health.extra["steps"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"frames": 4}, "no clips"),
        ({"width": 33}, "multiples of"),
        ({"steps": 100_000}, "steps must lie between"),
        ({"cache": 0.2}, "no residual cache"),
        ({"image": Raster(width=32, height=32, rgb=bytes(32 * 32 * 3))}, "start from a picture"),
    ],
)
def test_what_it_cannot_do(model: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        model.prepare(body(**fields))


async def test_folders_that_cannot_be_taken_apart(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="neither a folder"):
        build_engine("diffusion", "mine", {"model": str(tmp_path)})
    (tmp_path / "model_index.json").write_text('{"_class_name": "WanPipeline"}')
    with pytest.raises(EngineError, match='kind "diffusers" runs it whole'):
        await build_engine("diffusion", "mine", {"model": str(tmp_path)}).open()
    (tmp_path / "model_index.json").write_text("{")
    with pytest.raises(WeightsError, match="cannot be read"):
        await build_engine("diffusion", "mine", {"model": str(tmp_path)}).open()
    (tmp_path / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    with pytest.raises(WeightsError, match="cannot be loaded"):
        await build_engine("diffusion", "mine", {"model": str(tmp_path)}).open()
