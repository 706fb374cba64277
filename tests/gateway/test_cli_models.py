"""`antiphon models`, as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from antiphon.engines.catalogue import MODELS
from antiphon.gateway.cli_models import app
from typer.testing import CliRunner


@pytest.fixture
def run(tmp_path: Path) -> CliRunner:
    return CliRunner(env={"ANTIPHON_HOME": str(tmp_path), "COLUMNS": "200", "NO_COLOR": "1"})


def test_list_shows_every_model(run: CliRunner, tmp_path: Path) -> None:
    shown = run.invoke(app, ["list"])
    assert shown.exit_code == 0
    assert all(model.name in shown.output and model.licence in shown.output for model in MODELS)
    assert str(tmp_path) in shown.output


def test_the_path_of_missing_weights_is_an_error_with_the_command_that_mends_it(run: CliRunner) -> None:
    shown = run.invoke(app, ["path", "silero-vad"])
    assert shown.exit_code == 1
    assert "antiphon models pull silero-vad" in shown.stderr
    assert shown.stdout == ""


def test_an_unknown_model_is_an_error(run: CliRunner) -> None:
    for command in ("pull", "path", "remove"):
        shown = run.invoke(app, [command, "nope"])
        assert shown.exit_code == 1
        assert "there is no model 'nope'" in shown.stderr


def test_pull_verify_path_remove(run: CliRunner, tmp_path: Path) -> None:
    pulled = run.invoke(app, ["pull", "silero-vad"])
    assert pulled.exit_code == 0, pulled.output
    path = Path(run.invoke(app, ["path", "silero-vad"]).stdout.strip())
    assert path.is_relative_to(tmp_path)
    assert path.stat().st_size == 2_327_524
    assert "silero-vad: intact" in run.invoke(app, ["verify"]).output
    path.write_bytes(b"altered")
    spoiled = run.invoke(app, ["verify"])
    assert spoiled.exit_code == 1
    assert "is altered" in spoiled.output
    assert "removed" in run.invoke(app, ["remove", "silero-vad"]).output
    assert "was not here" in run.invoke(app, ["remove", "silero-vad"]).output


def test_every_command_explains_itself(run: CliRunner) -> None:
    for command in ([], ["list"], ["pull"], ["verify"], ["path"], ["remove"]):
        assert "Usage" in run.invoke(app, [*command, "--help"]).output
