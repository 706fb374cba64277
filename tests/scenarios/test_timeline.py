"""The picture of a call, and the tables."""

import json

import pytest
from antiphon.codecs import wav
from antiphon.scenarios import figures, timeline, voice
from antiphon.scenarios.report import Report, missed
from antiphon.tests.scenarios.call_logs import a_call
from rich.console import Console


def test_a_picture_is_made(tmp_path):
    timeline.draw(a_call().log(), tmp_path / "call.png", "A call")
    data = (tmp_path / "call.png").read_bytes()
    assert data[:4] == b"\x89PNG"
    assert len(data) > 10_000


def test_without_matplotlib_the_command_that_mends_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(timeline.NoPlots, match=r"antiphon\[plots\]"):
        timeline.draw(a_call().log(), tmp_path / "call.png", "A call")


def test_the_table_holds_every_figure_and_the_files_are_written(tmp_path):
    log = a_call().log()
    rows = voice.figures(figures.summarise(log, {"item_one": "Once upon a time there was"}))
    names = [row.name for row in rows]
    assert {"WER", "TTFP p50", "missed interruptions", "false interruptions", "onset-to-withheld p95", "gateway share p95"} <= set(names)
    report = Report("voice", rows, missed(rows, ["WER", "missed interruptions"]), {"a": 1})
    assert report.failures == ["WER: 8.3%, should be ≤ 5%."]
    console = Console(record=True, width=140)
    report.show(console)
    assert "failed" in console.export_text()
    report.save(tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["details"] == {"a": 1}
    assert "| WER | 8.3% | ≤ 5% | **no** |" in (tmp_path / "report.md").read_text()


def test_the_recording_has_both_sides_with_their_timing(tmp_path):
    log = a_call().log()
    log.save(tmp_path / "call.wav")
    sound = wav.load(tmp_path / "call.wav")
    assert sound.samples.shape[1] == 2
    assert len(sound.samples) == 20 * 24_000
