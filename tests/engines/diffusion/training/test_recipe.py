"""A tiny training from end to end, resumed in the middle; and what the weights that ship are worth."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from pathlib import Path

import pytest
import torch
from antiphon.__main__ import app
from antiphon.engines.diffusion.tinyflow import SHIPPED
from antiphon.engines.diffusion.tinyflow.steps import TinyFlowSteps
from antiphon.engines.diffusion.training.assistant import Assistant
from antiphon.engines.diffusion.training.evaluation import evaluate, share
from antiphon.engines.diffusion.training.flow import FlowSettings
from antiphon.engines.diffusion.training.recipe import Recipe, build_trainer, train
from antiphon.engines.diffusion.training.report import write
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

TINY = Recipe(
    text_steps=8,
    decoder_steps=3,
    codec_scenes=150,
    flow=FlowSettings(steps=6, batch=8, dim=64, heads=2, layers=2, hidden=64, warmup=2),
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "transformer" / "diffusion_pytorch_model.safetensors")


def test_an_interrupted_training_goes_on_and_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", TINY, show=lambda _: None)

    class Stopped(Exception):
        pass

    def stop(line: str) -> None:
        if '"step": 3' in line and "flow" in line:
            raise Stopped

    broken = tmp_path / "broken"
    short = dataclasses.replace(TINY, flow=dataclasses.replace(TINY.flow, steps=3, decay=0.1))
    with pytest.raises(Stopped):
        train(broken, dataclasses.replace(short, checkpoint_s=0.0), show=stop)
    assert (broken / "flow.pt").exists()
    lines: list[str] = []
    resumed = train(broken, dataclasses.replace(TINY, checkpoint_s=0.0), show=lines.append)
    assert not any(str(tmp_path) in file.read_text() for file in resumed.rglob("*.json"))
    assert any('"resumed": 2' in line for line in lines)
    first, second = weights(whole), weights(resumed)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_training_lowers_the_loss_and_says_so(tmp_path: Path) -> None:
    recipe = dataclasses.replace(TINY, flow=dataclasses.replace(TINY.flow, steps=100, batch=16))
    train(tmp_path, recipe, show=lambda _: None)
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    flow = [event for event in events if event["stage"] == "flow"]
    assert [event["step"] for event in flow] == [50, 100]
    assert flow[1]["tiles"] < flow[0]["tiles"]
    assert flow[1]["flow"] < flow[0]["flow"]


def test_an_assistant_contributes_and_ends(tmp_path: Path) -> None:
    train(tmp_path, TINY, show=lambda _: None)
    build = functools.partial(build_trainer, tmp_path, TINY.flow)
    trainer = build(0)
    deadline = time.monotonic() + 120
    with Assistant(build, trainer) as helper:
        helper.publish(trainer)
        while helper.taken < 2:
            assert time.monotonic() < deadline
            trainer.apply(helper.exchange(torch.zeros(sum(value.numel() for value in trainer.compute))))
            helper.publish(trainer)
            time.sleep(0.05)
    assert not helper.alive


def test_the_command_trains_evaluates_and_writes_a_report(tmp_path: Path) -> None:
    run = CliRunner().invoke(
        app,
        ["train", "diffusion", "--out", str(tmp_path), "--evaluate", "--pictures", "8", "--clips", "1", "--sampling-steps", "2"],
    )
    assert run.exit_code == 0, run.output
    assert "| **all** | 8 |" in run.output
    report = tmp_path / "report"
    assert {path.name for path in report.iterdir()} == {"report.json", "report.md", "pictures.png", "clips.gif"}
    assert Image.open(report / "clips.gif").n_frames >= 16  # type: ignore[attr-defined]
    assert json.loads((report / "report.json").read_text())["pictures"]["n"] == 8


def test_the_weights_that_ship_follow_prompts_they_never_saw(tmp_path: Path) -> None:
    outcomes = evaluate(TinyFlowSteps(SHIPPED), pictures=24, clips=6, seed=9, frames=8)
    pictures = [outcome for kind, some in outcomes.items() if kind != "clip" for outcome in some]
    figures = write(outcomes, tmp_path)
    assert (share(pictures, "strict") or 0) >= 0.9, figures["failures"]
    assert (share(outcomes["clip"], "strict") or 0) >= 0.8, figures["failures"]


def test_the_weights_that_ship_are_small() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) <= 25_000_000
