"""The metrics and their written definitions are the same list; timings of a turn are what the definitions say."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from antiphon.engines.messages import StageMark
from antiphon.gateway.figures import Figures
from antiphon.gateway.metrics import Metrics
from antiphon.gateway.turn_timings import TurnTimings
from antiphon.sessions.commands import Measure
from antiphon.tests.gateway.conftest import RunningServer, connected

DEFINITIONS = Path(__file__).parents[2] / "docs" / "metrics.md"


def defined() -> set[str]:
    return set(re.findall(r"^\| `(antiphon_\w+)`", DEFINITIONS.read_text(encoding="utf-8"), re.MULTILINE))


async def test_every_metric_is_defined_once_and_every_definition_exists(server: RunningServer) -> None:
    async with connected(server) as client:
        await client.ask("Hello.")
        await client.until("response.done")
        async with httpx.AsyncClient(trust_env=False) as http:
            text = (await http.get(f"{server.url}/metrics")).text
    found = {name for name in re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE) if not name.endswith("_created")}
    assert found == defined()
    assert 'antiphon_responses_total{status="completed"} 1.0' in text
    assert 'antiphon_ttft_seconds_count{pipeline="tone"} 1.0' in text


def test_the_figures_of_a_turn() -> None:
    timings = TurnTimings()
    for what, at in (("speech_started", 1.0), ("speech_stopped", 2.0), ("committed", 2.5), ("transcript_ready", 2.51)):
        timings.mark("item", what, at)
    turn = timings.turn("item")
    turn.answer_with("resp")
    marks = [("chat", "start", 2.514), ("chat", "first", 2.6), ("speech", "start", 2.7), ("speech", "first", 2.8)]
    marks += [("chat", "end", 3.0), ("speech", "end", 3.4)]
    for stage, what, at in marks:
        turn.stage(stage).mark(what, at)
    timings.mark("item", "first_audio", 2.803)
    turn.output_tokens = 11
    turn.audio_seconds = 2.8
    assert turn.ttfp == pytest.approx(0.803)
    assert turn.ttft == pytest.approx(0.086)
    assert turn.tpot == pytest.approx(0.04)
    assert turn.e2el == pytest.approx(1.4)
    assert turn.rtf == pytest.approx(0.25)
    assert turn.gateway_share == pytest.approx(0.007)
    report = turn.report()
    assert report["marks_ms"]["first_audio"] == pytest.approx(803)
    assert report["figures_ms"]["gateway_share"] == pytest.approx(7)


def test_a_turn_that_was_answered_too_early_counts_from_its_last_answer() -> None:
    timings = TurnTimings()
    timings.mark("item", "speech_stopped", 1.0)
    turn = timings.turn("item")
    turn.answer_with("first")
    turn.stage("chat").mark("start", 1.1)
    timings.mark("item", "first_audio", 1.2)
    timings.mark("item", "speech_stopped", 2.0)
    turn.answer_with("second")
    assert turn.ttfp is None
    timings.mark("item", "first_audio", 2.4)
    assert turn.ttfp == pytest.approx(0.4)
    assert turn.stage("chat").start is None


def test_only_the_last_turns_are_kept() -> None:
    timings = TurnTimings(keep=3)
    for number in range(10):
        timings.mark(f"item{number}", "committed", float(number))
    assert [report["item_id"] for report in timings.report()] == ["item7", "item8", "item9"]


def test_the_time_from_the_fence_to_the_purge_is_added() -> None:
    metrics = Metrics()
    figures = Figures(metrics, "voice", clock=lambda: 10.002)
    figures.measure(Measure(name="onset_to_fence_ms", value=500.0), since=10.0)
    assert metrics.value("antiphon_onset_to_withheld_seconds_sum", {"pipeline": "voice"}) == pytest.approx(0.502)


def test_marks_of_an_unknown_response_are_ignored() -> None:
    Figures(Metrics(), "voice").stage("nobody", StageMark("chat", "start", 1.0))
