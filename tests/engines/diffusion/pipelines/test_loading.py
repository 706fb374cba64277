"""Models that are not there, are not whole, or are not what the configuration says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from antiphon.engines.errors import EngineError, WeightsError
from antiphon.engines.interface import Role
from antiphon.engines.registry import build_engine, kinds

from .conftest import OpenEngine
from .running import body, make


def build(model: str, **options: Any) -> Any:
    return build_engine("diffusers", "mine", {"model": model, **options})


async def test_the_kind_is_known() -> None:
    assert kinds()["diffusers"] is Role.DIFFUSION


def test_a_missing_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"there is no folder .*no hub name .* either. Put a diffusers pipeline"):
        build(str(tmp_path / "nothing"))


def test_a_folder_that_is_no_pipeline_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"is not a diffusers pipeline: it has no model_index.json.*from_single_file"):
        build(str(tmp_path))


def test_a_single_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"is a file. .*from_single_file"):
        build(str(tmp_path / "model.safetensors"))


def test_a_hub_name_that_is_not_at_hand_says_what_to_do() -> None:
    with pytest.raises(WeightsError, match=r"`hf download nobody/nothing --local-dir FOLDER`"):
        build("nobody/nothing", offline=True)


def test_a_broken_index_is_named(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text("{")
    with pytest.raises(WeightsError, match=r"model_index.json cannot be read"):
        build(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "dtype|int8"),
        ({"waiting": 0}, "waiting must be at least 1"),
        ({"step_s": 0.0}, "step_s must be more than 0"),
        ({"sizes": [[0, 32]]}, "sizes must be pairs"),
        ({"nonsense": 1}, "unknown option 'nonsense'"),
    ],
)
def test_a_wrong_option_is_named(folder: Callable[[str], Path], options: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message) as raised:
        build(str(folder("flux")), **options)
    assert raised.value.code == "invalid_configuration"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arguments": {"max_length": 3}}, "FluxPipeline takes no max_length; it takes prompt"),
        ({"device": "cuda:7"}, "torch sees no GPU"),
        ({"device": "cpu", "offload": "model"}, "there is no GPU here"),
        ({"variant": "fp16"}, "variant=fp16"),
    ],
)
async def test_what_the_machine_or_the_model_lacks_is_named(opened: OpenEngine, options: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message) as raised:
        async with opened("flux", **options):
            pass
    assert raised.value.code == "invalid_configuration"


async def test_an_argument_that_no_request_gives_must_be_configured(opened: OpenEngine) -> None:
    with pytest.raises(EngineError, match=r"DiTPipeline cannot be called without class_labels.*set arguments.class_labels"):
        async with opened("dit", arguments={}):
            pass


async def test_missing_weights_are_named_and_can_be_mended(folder: Callable[[str], Path], tmp_path: Path) -> None:
    model = shutil.copytree(folder("flux"), tmp_path / "flux")
    weights = model / "transformer" / "diffusion_pytorch_model.safetensors"
    weights.rename(tmp_path / "away")
    engine = build(str(model), gate=False)
    with pytest.raises(WeightsError, match=r"cannot be loaded: .*transformer"):
        await engine.open()
    assert not (await engine.health()).ok
    (tmp_path / "away").rename(weights)
    await engine.open()
    assert len((await make(engine, body("flux"))).steps) == 4
    await engine.close()


async def test_a_class_that_this_diffusers_lacks_is_named(folder: Callable[[str], Path], tmp_path: Path) -> None:
    model = shutil.copytree(folder("flux"), tmp_path / "flux")
    index = json.loads((model / "model_index.json").read_text())
    (model / "model_index.json").write_text(json.dumps(index | {"_class_name": "Flux9Pipeline"}))
    with pytest.raises(EngineError, match=r"has no Flux9Pipeline; the model was saved with"):
        await build(str(model), gate=False).open()


async def test_code_that_comes_with_a_model_does_not_run_unasked(opened: OpenEngine) -> None:
    with pytest.raises(EngineError, match="set trust_code = true"):
        async with opened("stubborn"):
            pass


async def test_what_the_loaded_pipeline_adds_is_in_the_capabilities(opened: OpenEngine) -> None:
    async with opened("dit") as engine:
        media = engine.capabilities.media
        assert media is not None
        assert media.default_steps == 50  # the default of its call, which no file tells
    async with opened("dit", steps=7) as engine:
        assert len((await make(engine, body("dit", steps=None))).steps) == 7
