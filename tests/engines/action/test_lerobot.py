"""Checkpoints that lerobot itself made, served by an engine in a process that has lerobot: what lerobot makes of an observation, for many
robots at once. The gateway's own interpreter has no lerobot."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from antiphon.engines.errors import EngineError, InvalidRequestError, WeightsError
from antiphon.engines.interface import Engine, EngineRequest, WorkClass
from antiphon.engines.launchers import SubprocessEngine
from antiphon.engines.messages import ActBody, ActionChunk, Array, StageMark
from antiphon.engines.registry import build_engine, missing_packages
from antiphon.tests.engines.action.lerobot_venv import lerobot_python

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]  # the environment is made the first time
RATE = 20.0
KINDS = ("act", "diffusion", "vqbet", "smolvla")
PROMPTS = ("put the red cube on the white pad", "lift it", "open the drawer")
OWN = {"observation/state": "observation.state", "observation/image": "observation.images.front"}
OPTIONS: dict[str, dict[str, Any]] = {"vqbet": {"keys": OWN, "layout": "CHW", "history": "repeated", "policy": "arm"}}
"""Robots of this policy have names of their own, send channels first, and one moment that stands for both that the policy sees."""


@pytest.fixture(scope="module")
def python() -> Path:
    return lerobot_python()


@pytest.fixture(scope="module")
def made(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints, and what lerobot does with them."""
    folder = tmp_path_factory.mktemp("lerobot")
    script = Path(__file__).with_name("lerobot_made.py")
    ran = subprocess.run([str(python), str(script), str(folder), *KINDS], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder


def engine(made: Path, name: str, python: Path, **options: Any) -> SubprocessEngine:
    return SubprocessEngine("lerobot-policy", name, {"model": str(made / name), "rate": RATE, **options}, python=str(python))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines(made: Path, python: Path) -> AsyncIterator[dict[str, Engine]]:
    running = {name: engine(made, name, python, **OPTIONS.get(name, {})) for name in KINDS}
    await asyncio.gather(*(each.open() for each in running.values()))
    yield dict(running)
    for each in running.values():
        await each.close()


class Told:
    """What lerobot was shown, and what it made of it."""

    def __init__(self, made: Path, name: str) -> None:
        self.kept = np.load(made / f"{name}.npz")
        self.own = {lerobots: own for own, lerobots in OPTIONS.get(name, {}).get("keys", {}).items()}

    def observation(self, number: int) -> dict[str, np.ndarray[Any, Any]]:
        """As robots send it."""
        told = {key.split("/", 1)[1]: value for key, value in self.kept.items() if key.startswith(f"{number}/observation")}
        if not self.own:
            return told
        return {self.own[key]: np.moveaxis(value, -1, 0) if value.dtype == np.uint8 else value for key, value in told.items()}

    def body(self, number: int, seed: int | None = 1, **more: Any) -> ActBody:
        return ActBody(
            observation={key: Array.of(value) for key, value in self.observation(number).items()}, seed=seed, prompt=PROMPTS[number], **more
        )

    def chunk(self, number: int, seed: int) -> np.ndarray[Any, Any]:
        return self.kept[f"{number}/chunk/{seed}"]


def request(body: ActBody) -> EngineRequest:
    return EngineRequest(request_id="r", body=body, work_class=WorkClass.ACTION)


async def chunk(engine: Engine, body: ActBody) -> ActionChunk:
    got = [each async for each in engine.stream(request(body))]
    assert isinstance(got[0], StageMark)
    assert isinstance(got[-1], ActionChunk)
    return got[-1]


@pytest.mark.parametrize("name", KINDS)
async def test_actions_are_those_that_lerobot_makes(made: Path, engines: dict[str, Engine], name: str) -> None:
    told = Told(made, name)
    for number in range(3):
        for seed in (1, 2):
            actions = (await chunk(engines[name], told.body(number, seed))).actions.numpy()
            expected = told.chunk(number, seed)
            assert actions.dtype == np.float32
            assert actions.shape == expected.shape
            np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-4)
    assert np.abs(told.chunk(0, 1) - told.chunk(1, 1)).max() > 1e-2, "observations matter"
    if name in ("diffusion", "smolvla"):
        assert np.abs(told.chunk(0, 1) - told.chunk(0, 2)).max() > 1e-2, "seeds matter"


@pytest.mark.parametrize("name", KINDS)
async def test_robots_that_share_steps_are_told_what_each_is_told_alone(made: Path, engines: dict[str, Engine], name: str) -> None:
    told = Told(made, name)
    asked = [(number, seed) for number in range(3) for seed in (1, 2)]
    chunks = await asyncio.gather(*(chunk(engines[name], told.body(number, seed)) for number, seed in asked))
    for (number, seed), shared in zip(asked, chunks, strict=True):
        np.testing.assert_allclose(shared.actions.numpy(), told.chunk(number, seed), rtol=1e-3, atol=1e-3)
    if name != "vqbet":
        assert max(shared.batch for shared in chunks) > 1.5


async def test_what_is_told_to_robots(made: Path, engines: dict[str, Engine]) -> None:
    """The checkpoint's files say it, also where lerobot is not installed."""
    assert importlib.util.find_spec("lerobot") is None
    assert missing_packages("lerobot-policy") == ("lerobot",)
    for name, horizon, steps, most, execute in (
        ("act", 10, 1, 1, 5),
        ("diffusion", 6, 12, 12, 6),
        ("vqbet", 4, 1, 1, 4),
        ("smolvla", 5, 6, 100, 5),
    ):
        here = build_engine("lerobot-policy", "arm", {"model": str(made / name), "rate": RATE, "policy": "arm"}).capabilities
        there = engines[name].capabilities.action
        assert here.models == ("arm",)
        action = here.action
        assert action is not None
        assert there is not None
        assert (action.horizon, action.action_dim, action.rate) == (there.horizon, there.action_dim, RATE)
        assert (action.horizon, action.action_dim, action.steps, action.max_steps, action.max_prefix) == (horizon, 4, steps, most, 0)
        assert action.extras == {"policy_type": name, "n_action_steps": execute}
        assert action.prompt == (name == "smolvla")
        specs = {spec.key: (spec.dtype, spec.shape, spec.layout) for spec in action.observation}
        moments = (2,) if name in ("diffusion", "vqbet") else ()
        assert specs["observation.state"] == ("float32", (*moments, 6), "")
        assert specs["observation.images.front"] == ("uint8", (*moments, 32, 32, 3), "HWC")


@pytest.mark.parametrize(("name", "own", "most"), [("diffusion", 12, 12), ("smolvla", 6, 100)])
async def test_other_numbers_of_steps_when_asked_for(made: Path, engines: dict[str, Engine], name: str, own: int, most: int) -> None:
    told = Told(made, name)
    mixed = await asyncio.gather(*(chunk(engines[name], told.body(0, 1, steps=steps)) for steps in (1, 4, own, 999)))
    assert [each.steps for each in mixed] == [1, 4, own, most]
    assert np.abs(mixed[1].actions.numpy() - mixed[2].actions.numpy()).max() > 1e-3
    np.testing.assert_allclose(mixed[2].actions.numpy(), told.chunk(0, 1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["diffusion", "smolvla"])
async def test_a_closed_stream_frees_its_place(made: Path, engines: dict[str, Engine], name: str) -> None:
    told = Told(made, name)
    for _ in range(10):
        async with aclosing(engines[name].stream(request(told.body(0, steps=99)))) as chunks:  # type: ignore[type-var]
            assert isinstance(await anext(chunks), StageMark)
    async with asyncio.timeout(5):
        while (await engines[name].health()).running:  # noqa: ASYNC110 - asked from outside
            await asyncio.sleep(0.01)
    np.testing.assert_allclose((await chunk(engines[name], told.body(0))).actions.numpy(), told.chunk(0, 1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", KINDS)
async def test_what_does_not_fit_is_refused_and_hurts_nobody(made: Path, engines: dict[str, Engine], name: str) -> None:
    told = Told(made, name)
    good = told.body(0)
    names = list(good.observation)
    state = good.observation[names[0]]
    wrong = [
        ActBody(observation={}),
        ActBody(observation={**good.observation, names[0]: Array.of(state.numpy()[..., :5])}),
        ActBody(observation={**good.observation, names[0]: Array.of(state.numpy().astype(np.float64))}),
        ActBody(observation={**good.observation, names[1]: state}),
        told.body(0, prefix=Array.of(np.zeros((2, 4), np.float32))),
    ]
    outcomes = await asyncio.gather(*(chunk(engines[name], body) for body in (*wrong, good)), return_exceptions=True)
    for outcome in outcomes[:-1]:
        assert isinstance(outcome, InvalidRequestError), outcome
    assert isinstance(outcomes[-1], ActionChunk)
    np.testing.assert_allclose(outcomes[-1].actions.numpy(), told.chunk(0, 1), rtol=1e-3, atol=1e-3)


async def test_names_and_layout_of_the_robots_own(engines: dict[str, Engine]) -> None:
    """That their actions are right is tested above."""
    action = engines["vqbet"].capabilities.action
    assert action is not None
    assert action.policy == "arm"
    assert [(spec.key, spec.shape, spec.layout) for spec in action.observation] == [
        ("observation/state", (6,), ""),
        ("observation/image", (3, 32, 32), "CHW"),
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate": 0}, "rate"),
        ({"steps": 3}, "no steps to choose"),
        ({"keys": {"state": "observation.joints"}}, "observation.joints"),
        ({"layout": "WHC"}, "layout"),
    ],
)
async def test_options_that_do_not_fit(made: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words) as caught:
        build_engine("lerobot-policy", "arm", {"model": str(made / "act"), "rate": RATE, **options})
    assert caught.value.code == "invalid_configuration"


@pytest.mark.parametrize(
    "missing",
    ["config.json", "model.safetensors", "policy_preprocessor.json", "policy_preprocessor_step_3_normalizer_processor.safetensors"],
)
async def test_a_missing_file_is_named_at_once(made: Path, tmp_path: Path, missing: str) -> None:
    folder = Path(shutil.copytree(made / "act", tmp_path / "act"))
    (folder / missing).unlink()
    with pytest.raises(WeightsError, match=missing):
        build_engine("lerobot-policy", "arm", {"model": str(folder), "rate": RATE})


async def test_altered_weights_are_refused_when_it_is_opened(made: Path, tmp_path: Path, python: Path) -> None:
    """Weights cut short, weights that are not those of the configuration, and weights of another size."""
    folder = Path(shutil.copytree(made / "act", tmp_path / "act"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dim_model": 64}))
    other = engine(tmp_path, "act", python)
    with pytest.raises(WeightsError, match="do not fit"):
        await other.open()
    with pytest.raises(WeightsError, match="SHA-256 differs"):
        await build_engine("lerobot-policy", "arm", {"model": str(folder), "rate": RATE, "sha256": "0" * 64}).open()
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    with pytest.raises(WeightsError, match="cannot be read"):
        await build_engine("lerobot-policy", "arm", {"model": str(folder), "rate": RATE}).open()


async def test_without_lerobot_the_engine_says_what_it_needs(made: Path) -> None:
    here = build_engine("lerobot-policy", "arm", {"model": str(made / "act"), "rate": RATE})
    with pytest.raises(EngineError, match="lerobot") as caught:
        await here.open()
    assert caught.value.code == "missing_package"
