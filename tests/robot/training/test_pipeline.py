"""From nothing to served weights, interrupted and gone on with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from antiphon.__main__ import app
from antiphon.engines.action.card import load_card
from antiphon.engines.action.flow_policy import FlowPolicy, FlowPolicyOptions
from antiphon.engines.interface import EngineRequest, WorkClass
from antiphon.engines.messages import ActBody, ActionChunk, Array
from antiphon.robot.training import pipeline
from antiphon.robot.training.pipeline import Run, measure
from antiphon.robot.training.recipes import RECIPES, Recipe
from antiphon.robot.training.trainer import Trainer
from typer.testing import CliRunner


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def weights(folder: Path) -> bytes:
    return (folder / "policy" / "weights.safetensors").read_bytes()


def quiet(_: str) -> None:
    pass


class Killed(Exception):
    """Stands for a machine that went down."""


def test_a_run_that_was_killed_ends_as_if_it_had_not_been(tmp_path: Path, small: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed once while it collects and once while it trains; data, checkpoint and weights come out the same."""
    monkeypatch.setattr(pipeline, "PART", 6)
    monkeypatch.setattr(pipeline, "SAVE_EVERY", 2)
    Run(tmp_path / "whole", small, 3, quiet).train()

    def dies_at(what: str, count: int) -> None:
        left = [count]

        def say(line: str) -> None:
            left[0] -= line.startswith(what)
            if not left[0]:
                raise Killed

        with pytest.raises(Killed):
            Run(tmp_path / "twice", small, 3, say).train()

    dies_at("collected", 2)
    dies_at("fitting", 2)
    trainer = Run(tmp_path / "twice", small, 3, quiet).train()
    assert trainer.step == small.steps
    assert weights(tmp_path / "twice") == weights(tmp_path / "whole")


def test_another_seed_gives_another_policy(tmp_path: Path, small: Recipe) -> None:
    short = replace(small, rounds=small.rounds[:1], steps=2)
    for seed in (0, 1):
        Run(tmp_path / str(seed), short, seed, quiet).train()
    assert weights(tmp_path / "0") != weights(tmp_path / "1")


def test_a_checkpoint_goes_on_exactly_where_it_was(tmp_path: Path, small: Recipe) -> None:
    run = Run(tmp_path, replace(small, rounds=small.rounds[:1], steps=3), 0, quiet)
    trainer = run.train()
    trainer.save(tmp_path / "copy.pt")
    other = Trainer.load(tmp_path / "copy.pt", run.recipe)
    run.log("here")
    for one in (trainer, other):
        run.trainer = one
        run._fit(0, 6, 6)
    for mine, its in zip(trainer.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(mine, its)


async def test_the_weights_are_served_by_the_engine(tmp_path: Path, small: Recipe) -> None:
    Run(tmp_path, replace(small, rounds=small.rounds[:1], steps=2), 0, quiet).train()
    card = load_card(tmp_path / "policy")
    assert card.capabilities().max_prefix == 8
    assert card.rate == pytest.approx(20.833, abs=0.01)
    engine = FlowPolicy(FlowPolicyOptions(model=tmp_path / "policy"))
    await engine.open()
    try:
        body = ActBody(observation={"observation/state": Array.of(np.zeros(20, np.float32))}, prompt="lift the red cube")
        chunks = [c async for c in engine.stream(EngineRequest(request_id="r", body=body, work_class=WorkClass.ACTION))]
    finally:
        await engine.close()
    assert isinstance(chunks[-1], ActionChunk)
    assert chunks[-1].actions.numpy().shape == (16, 4)


def test_what_must_not_be_seen_has_no_weight(tmp_path: Path, small: Recipe) -> None:
    trainer = Run(tmp_path, replace(small, rounds=small.rounds[:1], steps=2), 0, quiet).train()
    assert not trainer.served().observation_in.weight[:, list(small.hidden)].any()
    assert trainer.served().observation_in.weight[:, 0].any()


def test_a_policy_that_sees_is_told_no_places(tmp_path: Path, small: Recipe) -> None:
    sees = replace(
        small,
        sees=True,
        hidden=(),
        cameras={"observation/image": "top"},
        picture_size=32,
        network=replace_shape(small, eyes=1, picture_size=32, keypoints=4),
        rounds=small.rounds[:1],
        steps=2,
        repeat=2,
    )
    Run(tmp_path, sees, 0, quiet).train()
    card = load_card(tmp_path / "policy")
    assert [(entry.key, entry.shape) for entry in card.observation] == [("observation/robot", (4,)), ("observation/image", (32, 32, 3))]
    table = measure(tmp_path / "report", tmp_path / "policy", sees, 1, (2,), [], quiet)
    assert "9 = " in table


def replace_shape(recipe: Recipe, **more: int):  # type: ignore[no-untyped-def]
    import msgspec

    return msgspec.structs.replace(recipe.network, **more)


def test_the_report_has_everything(tmp_path: Path, small: Recipe) -> None:
    run = Run(tmp_path, replace(small, rounds=small.rounds[:1], steps=2), 0, quiet)
    losses = run.train().losses
    table = measure(tmp_path / "report", run.policy, run.recipe, 1, (2,), losses, quiet)
    found = json.loads((tmp_path / "report" / "report.json").read_text())
    names = [trial["name"] for trial in found["trials"]]
    assert names[:3] == ["its own instruction", "a paraphrase kept out of training", "another task's instruction"]
    assert [name for name in names if "delay" in name] == [f"delay of 2 steps: {how}" for how in ("wait", "switch", "rtc")]
    assert all(trial["episodes"] == 9 for trial in found["trials"])
    assert "place-red-white" in table
    for picture in ("loss.png", "tasks.png", "delays.png"):
        assert (tmp_path / "report" / picture).stat().st_size > 5000


def test_the_command_line(tmp_path: Path, small: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, "tabletop", lambda: replace(small, rounds=small.rounds[:1]))
    cli = CliRunner()
    args = ["train", "policy", "--task", "tabletop", "--out", str(tmp_path), "--steps", "2", "--episodes"]
    first = cli.invoke(app, [*args, "1", "--delay", "2"])
    assert first.exit_code == 0, first.output
    assert "its own instruction" in first.output
    for delay in ("-1", "9"):
        wrong = cli.invoke(app, ["train", "policy", "--evaluate", "--episodes", "1", "--delay", delay])
        assert wrong.exit_code == 2, "before anything is measured"
        assert "between 0 and 8" in wrong.output
    again = cli.invoke(app, [*args, "0"])
    assert again.exit_code == 2
    assert "--resume" in again.output
    longer = cli.invoke(app, ["train", "policy", "--out", str(tmp_path), "--resume", "--steps", "4", "--episodes", "0"])
    assert longer.exit_code == 0, longer.output
    assert Trainer.load(tmp_path / "checkpoint.pt", small).step == 4
    other = cli.invoke(app, ["train", "policy", "--out", str(tmp_path), "--resume", "--seed", "1", "--episodes", "0"])
    assert other.exit_code == 1
    assert "begun with seed 0, not 1" in other.output
    other = cli.invoke(app, ["train", "policy", "--out", str(tmp_path), "--resume", "--task", "metaworld", "--episodes", "0"])
    assert other.exit_code == 1
    assert "is of recipe 'tabletop', not 'metaworld'" in other.output
    (tmp_path / "checkpoint.pt").write_bytes(b"nonsense")
    broken = cli.invoke(app, ["train", "policy", "--out", str(tmp_path), "--resume", "--episodes", "0"])
    assert broken.exit_code == 1
    assert "is no checkpoint" in broken.output
    assert cli.invoke(app, ["train", "policy", "--task", "juggling"]).exit_code == 2
    missing = cli.invoke(app, ["train", "policy", "--evaluate", "--weights", str(tmp_path / "nowhere"), "--episodes", "1"])
    assert missing.exit_code == 1
    assert "there is no policy" in missing.output
