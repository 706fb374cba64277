"""The flow policy on real weights: the table-top policy of the test data (1.5 million parameters, trained with prefixes)."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from antiphon.engines.action.flow_policy import FlowPolicy, FlowPolicyOptions
from antiphon.engines.action.prompts import embed_prompt
from antiphon.engines.errors import EngineBusyError, EngineError, EngineUnavailableError, InvalidRequestError, WeightsError
from antiphon.engines.interface import Engine, EngineRequest, Role, WorkClass
from antiphon.engines.launchers import SubprocessEngine
from antiphon.engines.messages import ActBody, ActionChunk, Array, ChatBody, StageMark
from antiphon.engines.pool import EnginePool
from antiphon.engines.registry import build_engine

POLICY = Path(__file__).parents[2] / "data" / "tabletop-policy"
PROMPT = "put the red cube on the white pad"
STATE = np.array([0, 0, 0.15, 0, 0, 0, 0, -0.1, -0.1, 0.02, 0, -0.1, 0.02, 0.1, -0.1, 0.02, -0.15, 0.1, 0.15, 0.1], np.float32)


@pytest.fixture
async def policy() -> AsyncIterator[FlowPolicy]:
    engine = FlowPolicy(FlowPolicyOptions(model=POLICY))
    await engine.open()
    yield engine
    await engine.close()


def body(prompt: str = PROMPT, state: Any = STATE, **more: Any) -> ActBody:
    return ActBody(observation={"observation/state": Array.of(np.asarray(state))}, prompt=prompt, **more)


def request(act: Any, **more: Any) -> EngineRequest:
    return EngineRequest(request_id="r", body=act, work_class=WorkClass.ACTION, **more)


async def chunk(engine: Engine, act: ActBody, **more: Any) -> ActionChunk:
    got = [each async for each in engine.stream(request(act, **more))]
    assert isinstance(got[0], StageMark)
    assert isinstance(got[-1], ActionChunk)
    return got[-1]


def actions(made: ActionChunk) -> np.ndarray[Any, Any]:
    return made.actions.numpy()


def test_the_card_says_what_the_policy_takes(policy: FlowPolicy) -> None:
    capabilities = policy.capabilities
    assert capabilities.role is Role.ACTION
    assert capabilities.action is not None
    assert (capabilities.action.horizon, capabilities.action.action_dim, capabilities.action.max_prefix) == (16, 4, 8)
    assert capabilities.action.observation[0].shape == (20,)


async def test_a_chunk_goes_towards_the_named_cube(policy: FlowPolicy) -> None:
    """The red cube lies to the left of the tip, the blue one to the right: the instruction decides."""
    left = actions(await chunk(policy, body("put the red cube on the white pad", seed=1)))
    right = actions(await chunk(policy, body("put the blue cube on the white pad", seed=1)))
    assert left.shape == (16, 4)
    assert left.dtype == np.float32
    assert left[:4, 0].mean() < -0.3
    assert right[:4, 0].mean() > 0.3


async def test_a_seed_gives_the_same_chunk_whoever_shares_the_steps(policy: FlowPolicy) -> None:
    alone = actions(await chunk(policy, body(seed=7)))
    crowd = [chunk(policy, body("put the blue cube on the yellow pad", state=STATE + 0.01 * k, seed=k)) for k in range(9)]
    shared, *_ = await asyncio.gather(chunk(policy, body(seed=7)), *crowd)
    assert np.abs(actions(shared) - alone).max() < 1e-3
    assert shared.batch > 1.5
    other = actions(await chunk(policy, body(seed=8)))
    assert np.abs(other - alone).max() > 1e-3


async def test_a_prefix_is_kept_and_continued(policy: FlowPolicy) -> None:
    free = actions(await chunk(policy, body(seed=3)))
    prefix = np.clip(free[:4] + 0.2, -1, 1)
    made = await chunk(policy, body(seed=3, prefix=Array.of(prefix)))
    given = actions(made)
    assert made.prefix == 4
    assert np.abs(given[:4] - prefix).max() < 1e-5
    assert np.abs(given[4:] - free[4:]).max() > 1e-3, "the rest depends on the prefix"
    with_and_without = await asyncio.gather(chunk(policy, body(seed=3)), chunk(policy, body(seed=3, prefix=Array.of(prefix))))
    assert np.abs(actions(with_and_without[0]) - free).max() < 1e-3
    assert np.abs(actions(with_and_without[1]) - given).max() < 1e-3


async def test_more_steps_are_taken_when_asked_for(policy: FlowPolicy) -> None:
    mixed = await asyncio.gather(*(chunk(policy, body(seed=2, steps=steps)) for steps in (1, 6, 12)))
    assert [made.steps for made in mixed] == [1, 6, 12]
    assert np.abs(actions(mixed[1]) - actions(await chunk(policy, body(seed=2)))).max() < 1e-3


async def test_a_closed_stream_frees_its_place(policy: FlowPolicy) -> None:
    for _ in range(20):
        async with aclosing(policy.stream(request(body(steps=32)))) as chunks:
            assert isinstance(await anext(chunks), StageMark)
    async with asyncio.timeout(5):
        while (await policy.health()).running:  # noqa: ASYNC110 - asked from outside
            await asyncio.sleep(0.01)
    await chunk(policy, body())


async def test_a_deadline_that_cannot_be_kept_is_refused_and_hurts_nobody() -> None:
    pool = EnginePool()
    pool.add("arm", FlowPolicy(FlowPolicyOptions(model=POLICY)))
    await pool.open()
    try:
        for _ in range(5):
            with pytest.raises(EngineBusyError) as caught:
                _ = [each async for each in pool.stream("arm", request(body(), deadline=time.monotonic() + 0.0005))]
            assert caught.value.code in ("deadline_missed", "engine_busy")
        assert [each async for each in pool.stream("arm", request(body(), deadline=time.monotonic() + 5))]
    finally:
        await pool.close()


@pytest.mark.parametrize(
    "act",
    [
        ActBody(observation={}),
        body(state=np.zeros(19, np.float32)),
        body(prefix=Array.of(np.zeros((9, 4), np.float32))),
        body(prefix=Array.of(np.zeros((2, 3), np.float32))),
        ChatBody(messages=()),
    ],
)
async def test_what_does_not_fit_is_refused(policy: FlowPolicy, act: Any) -> None:
    with pytest.raises(InvalidRequestError):
        _ = [each async for each in policy.stream(request(act))]
    await chunk(policy, body())


async def test_before_it_is_open_and_after_it_is_closed() -> None:
    engine = FlowPolicy(FlowPolicyOptions(model=POLICY))
    for _ in range(2):
        with pytest.raises(EngineUnavailableError):
            await chunk(engine, body())
        assert not (await engine.health()).ok
        await engine.open()
        await chunk(engine, body())
        assert (await engine.health()).ok
        await engine.close()


async def test_it_runs_in_a_process_of_its_own(policy: FlowPolicy) -> None:
    there = SubprocessEngine("flow-policy", "arm", {"model": str(POLICY)})
    await there.open()
    try:
        assert there.capabilities.action == policy.capabilities.action
        assert np.abs(actions(await chunk(there, body(seed=4))) - actions(await chunk(policy, body(seed=4)))).max() < 1e-4
    finally:
        await there.close()


def altered(tmp_path: Path, **changes: Any) -> Path:
    folder = tmp_path / "policy"
    shutil.copytree(POLICY, folder)
    card = json.loads((folder / "card.json").read_text()) | changes
    (folder / "card.json").write_text(json.dumps(card))
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"state": ["nothing"]}, "'nothing'"),
        ({"state_mean": [0.0]}, "state_mean must hold 20"),
        ({"action_std": [1, 1, 1, 0]}, "above 0"),
        ({"max_prefix": 16}, "max_prefix"),
        ({"horizon": 0}, "horizon"),
        ({"weights": "../x"}, "weights"),
        ({"format": "other"}, "format"),
        ({"typo": 1}, "typo"),
    ],
)
def test_a_wrong_card_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        build_engine("flow-policy", "arm", {"model": str(altered(tmp_path, **changes))})


async def test_a_device_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(EngineError, match="cannot compute on 'nowhere'"):
        await build_engine("flow-policy", "arm", {"model": "tabletop", "device": "nowhere"}).open()


async def test_altered_and_missing_weights_are_errors(tmp_path: Path) -> None:
    folder = altered(tmp_path)
    (folder / "weights.safetensors").write_bytes(b"x")
    with pytest.raises(WeightsError, match="SHA-256"):
        await build_engine("flow-policy", "arm", {"model": str(folder)}).open()
    (folder / "weights.safetensors").unlink()
    with pytest.raises(WeightsError, match="cannot be read"):
        await build_engine("flow-policy", "arm", {"model": str(folder)}).open()
    with pytest.raises(WeightsError, match="there is no policy"):
        build_engine("flow-policy", "arm", {"model": str(tmp_path / "nowhere")})


async def test_weights_of_another_shape_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="do not fit its card"):
        await build_engine("flow-policy", "arm", {"model": str(altered(tmp_path, network={"width": 128}))}).open()


def test_prompts_are_hashed_the_same_everywhere() -> None:
    vector = embed_prompt("Put the RED cube, on the white pad!")
    assert np.array_equal(vector, embed_prompt("put the red cube on the white pad"))
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-6
    assert not embed_prompt("").any()
    assert embed_prompt("open the drawer").nonzero()[0].tolist() == EXPECTED_BUCKETS


EXPECTED_BUCKETS = sorted({zlib.crc32(gram) % 256 for gram in (b"open", b"the", b"drawer", b"open_the", b"the_drawer")})
