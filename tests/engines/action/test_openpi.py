"""Checkpoints of pi0 and pi0.5, tiny and random, that openpi's own code wrote and ran (`openpi_made.py`): ours makes the same actions."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from antiphon.engines.action.openpi.tokens import MAX_TOKENS, Tokenizer
from antiphon.engines.errors import EngineError, InvalidRequestError, WeightsError
from antiphon.engines.interface import Engine, EngineRequest, WorkClass
from antiphon.engines.messages import ActBody, ActionChunk, Array, StageMark
from antiphon.engines.registry import build_engine
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer as JsonTokenizer
from tokenizers import models, normalizers

DATA = Path(__file__).parents[2] / "data" / "openpi"
TOKENIZER = DATA / "tokenizer.model"
KINDS = ("pi0", "pi05")
KEYS = ("observation/state", "observation/image", "observation/wrist_image")
DELTA = (True,) * 6 + (False,)


def build(model: Path, **options: Any) -> Engine:
    return build_engine(
        "openpi-policy", "arm", {"model": str(model), "tokenizer": str(TOKENIZER), "rate": 20, "preset": "libero", **options}
    )


@pytest.fixture(params=KINDS)
async def policy(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    engine = build(DATA / request.param)
    await engine.open()
    yield engine
    await engine.close()


class Told:
    """What openpi was shown, and what it made of it."""

    def __init__(self, name: str) -> None:
        self.kept = np.load(DATA / name / "openpi.npz")

    def body(self, number: int, seed: int = 1, **more: Any) -> ActBody:
        observation = {key: Array.of(self.kept[f"{number}/{key}"]) for key in KEYS}
        return ActBody(**{"observation": observation, "prompt": str(self.kept[f"{number}/prompt"]), "seed": seed, **more})

    def actions(self, number: int, seed: int, steps: int = 10, how: str = "plain") -> np.ndarray[Any, Any]:
        return self.kept[f"{number}/{how}/{seed}/{steps}"]


def told_to(policy: Engine) -> Told:
    return Told(policy.capabilities.models[0])


def request_of(body: ActBody) -> EngineRequest:
    return EngineRequest(request_id="r", body=body, work_class=WorkClass.ACTION)


async def chunk(engine: Engine, body: ActBody) -> ActionChunk:
    got = [each async for each in engine.stream(request_of(body))]
    assert isinstance(got[0], StageMark)
    assert isinstance(got[-1], ActionChunk)
    return got[-1]


async def actions(engine: Engine, body: ActBody) -> np.ndarray[Any, Any]:
    return (await chunk(engine, body)).actions.numpy()


async def test_actions_are_those_that_openpi_makes(policy: Engine) -> None:
    told = told_to(policy)
    for number in range(3):
        for seed in (1, 2):
            for steps in (10, 4):
                made = await actions(policy, told.body(number, seed, steps=steps))
                assert made.dtype == np.float32
                np.testing.assert_allclose(made, told.actions(number, seed, steps), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", KINDS)
async def test_actions_that_are_given_relative_to_the_state(name: str) -> None:
    told = Told(name)
    policy = build(DATA / name, delta=DELTA, steps=4)
    await policy.open()
    try:
        made = await actions(policy, told.body(1, 2))
    finally:
        await policy.close()
    np.testing.assert_allclose(made, told.actions(1, 2, 4, "delta"), rtol=1e-3, atol=1e-3)


async def test_robots_that_share_steps_are_told_what_each_is_told_alone(policy: Engine) -> None:
    """Other instructions (of other lengths), other seeds, other numbers of steps, all at once."""
    told = told_to(policy)
    asked = [(number, seed, steps) for number in range(3) for seed in (1, 2) for steps in (10, 4)]
    chunks = await asyncio.gather(*(chunk(policy, told.body(number, seed, steps=steps)) for number, seed, steps in asked))
    for (number, seed, steps), shared in zip(asked, chunks, strict=True):
        assert shared.steps == steps
        np.testing.assert_allclose(shared.actions.numpy(), told.actions(number, seed, steps), rtol=1e-3, atol=1e-3)
    assert max(shared.batch for shared in chunks) > 2


async def test_pictures_words_state_and_seed_all_matter(policy: Engine) -> None:
    told = told_to(policy)
    plain = told.body(0)
    black = Array.of(np.zeros_like(plain.observation["observation/image"].numpy()))
    variants = {
        "picture": told.body(0, observation={**plain.observation, "observation/image": black}),
        "words": told.body(0, prompt="open the drawer"),
        "state": told.body(0, observation={**plain.observation, "observation/state": told.body(1).observation["observation/state"]}),
        "seed": told.body(0, seed=5),
    }
    alone = await actions(policy, plain)
    for what, body in variants.items():
        assert np.abs(await actions(policy, body) - alone).max() > 1e-2, what


async def test_a_closed_stream_frees_its_place(policy: Engine) -> None:
    told = told_to(policy)
    for _ in range(10):
        async with aclosing(policy.stream(request_of(told.body(0, steps=100)))) as chunks:  # type: ignore[type-var]
            assert isinstance(await anext(chunks), StageMark)
    async with asyncio.timeout(5):
        while (await policy.health()).running:  # noqa: ASYNC110 - asked from outside
            await asyncio.sleep(0.01)
    np.testing.assert_allclose(await actions(policy, told.body(0)), told.actions(0, 1), rtol=1e-3, atol=1e-3)


async def test_what_does_not_fit_is_refused_and_hurts_nobody(policy: Engine) -> None:
    told = told_to(policy)
    good = told.body(0)
    seen = good.observation
    wrong = [
        ActBody(observation={}),
        told.body(0, observation={**seen, "observation/state": Array.of(np.zeros(7, np.float32))}),
        told.body(0, observation={**seen, "observation/image": Array.of(np.zeros((3, 8, 8), np.uint8))}),
        told.body(0, observation={**seen, "observation/image": Array.of(np.zeros((8, 8, 3), np.float32))}),
        told.body(0, prefix=Array.of(np.zeros((2, 7), np.float32))),
    ]
    *outcomes, fine = await asyncio.gather(*(actions(policy, body) for body in (*wrong, good)), return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, InvalidRequestError), outcome
    np.testing.assert_allclose(fine, told.actions(0, 1), rtol=1e-3, atol=1e-3)


def test_what_is_told_to_robots() -> None:
    for name in KINDS:
        action = build(DATA / name, policy="arm").capabilities.action
        assert action is not None
        assert (action.policy, action.horizon, action.action_dim, action.rate) == ("arm", 6, 7, 20)
        assert (action.steps, action.max_prefix, action.prompt) == (10, 0, True)
        assert action.extras == {"policy_type": name}
        assert [(spec.key, spec.dtype, spec.shape, spec.layout) for spec in action.observation] == [
            ("observation/state", "float32", (8,), ""),
            ("observation/image", "uint8", (8, 8, 3), "HWC"),
            ("observation/wrist_image", "uint8", (8, 8, 3), "HWC"),
        ]


def test_a_gateway_describes_it_without_torch() -> None:
    """Its engine may live in a process with another interpreter."""
    options = {"model": str(DATA / "pi0"), "tokenizer": str(TOKENIZER), "rate": 20, "preset": "libero"}
    code = (
        "import sys; from antiphon.engines.registry import build_engine; "
        f"build_engine('openpi-policy', 'arm', {options!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_words_tied_to_the_output_layer_are_found_under_either_name(tmp_path: Path) -> None:
    """safetensors writes a tensor that two names share under one of them."""
    folder = Path(shutil.copytree(DATA / "pi0", tmp_path / "pi0"))
    weights = load_file(folder / "model.safetensors")
    table, output = (
        "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight",
        "paligemma_with_expert.paligemma.lm_head.weight",
    )
    assert (table in weights) != (output in weights)
    weights[output if table in weights else table] = weights.pop(table if table in weights else output)
    save_file(weights, folder / "model.safetensors")
    told = Told("pi0")
    policy = build(folder)
    await policy.open()
    try:
        np.testing.assert_allclose(await actions(policy, told.body(0)), told.actions(0, 1), rtol=1e-3, atol=1e-3)
    finally:
        await policy.close()


async def test_half_precision_is_close(tmp_path: Path) -> None:
    told = Told("pi05")
    policy = build(DATA / "pi05", dtype="bfloat16")
    await policy.open()
    try:
        made = await actions(policy, told.body(0))
    finally:
        await policy.close()
    expected = told.actions(0, 1)
    assert np.abs(made - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("pi05", [False, True])
def test_a_json_tokenizer_gives_the_tokens_of_sentencepiece(tmp_path: Path, pi05: bool) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(TOKENIZER))
    pieces = [(processor.id_to_piece(token), processor.get_score(token)) for token in range(processor.vocab_size())]
    same = JsonTokenizer(models.Unigram(pieces, 3))
    same.normalizer = normalizers.Replace(" ", "▁")
    same.save(str(tmp_path / "tokenizer.json"))
    state = np.linspace(-1.2, 1.2, 8).astype(np.float32) if pi05 else None
    for prompt in ("put the red cube on the white pad", " pick up_the blue bowl\n", "lift " * 100):
        tokens = Tokenizer(TOKENIZER).tokens(prompt, state)
        assert tokens == Tokenizer(tmp_path / "tokenizer.json").tokens(prompt, state)
        assert 5 < len(tokens) <= MAX_TOKENS[pi05]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"preset": ""}, "how a robot names things"),
        ({"preset": "aloha"}, "no preset 'aloha'"),
        ({"rate": -1}, "rate"),
        ({"steps": 0}, "steps"),
        ({"action_dim": 10}, "action_dim must lie between"),
        ({"action_dim": 8}, "fewer than the 8 numbers of actions"),
        ({"cameras": {"front": "observation/image"}}, "'front'"),
        ({"state": {"observation/state": 9}}, "fewer than the 9 numbers of state"),
        ({"delta": [True] * 8}, "delta"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words) as caught:
        build(DATA / "pi0", **options)
    assert caught.value.code == "invalid_configuration"


def test_files_that_are_missing_or_altered_are_named(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DATA / "pi0", tmp_path / "pi0"))
    config, weights = folder / "config.json", folder / "model.safetensors"
    config.unlink()
    with pytest.raises(EngineError, match="give option horizon"):
        build(folder)
    build(folder, horizon=6)
    other = Path(shutil.copytree(folder / "assets" / "lab", folder / "assets" / "other" / "lab"))
    with pytest.raises(EngineError, match="lab, other/lab"):
        build(folder, horizon=6)
    build(folder, horizon=6, asset="other/lab")
    statistics = json.loads((other / "norm_stats.json").read_text())
    statistics["norm_stats"]["state"]["q01"] = None
    (other / "norm_stats.json").write_text(json.dumps(statistics))
    with pytest.raises(EngineError, match="no quantiles of state"):
        build(folder, horizon=6, asset="other/lab", quantiles=True)
    shutil.rmtree(folder / "assets")
    with pytest.raises(WeightsError, match="norm_stats"):
        build(folder, horizon=6)
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(WeightsError, match="cut short"):
        build(folder, horizon=6)
    weights.write_bytes(b"not weights")
    with pytest.raises(WeightsError, match="cannot be read"):
        build(folder, horizon=6)
    save_file({"a": np.zeros(3, np.float32)}, weights)
    with pytest.raises(WeightsError, match="does not hold the weights of openpi"):
        build(folder, horizon=6)
    weights.unlink()
    with pytest.raises(WeightsError, match="no openpi checkpoint"):
        build(folder, horizon=6)


async def test_what_only_shows_when_it_is_opened(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DATA / "pi0", tmp_path / "pi0"))
    with pytest.raises(WeightsError, match="SHA-256 differs"):
        await build(folder, sha256="0" * 64).open()
    with pytest.raises(WeightsError, match="tokenizer"):
        await build(folder, tokenizer=str(tmp_path / "none.model")).open()
    weights = load_file(folder / "model.safetensors")
    weights.pop("state_proj.bias")
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"state_proj\.bias"):
        await build(folder).open()
