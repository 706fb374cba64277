"""The storm of jobs: on a real server with a real queue, a small painter and the tone pipeline, and its figures by hand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from antiphon.clients.media import MediaClient, MediaFailed
from antiphon.codecs.pcm import SAMPLE_RATE, from_float
from antiphon.scenarios import demo_media, job_storm
from antiphon.scenarios.animation import gif_of
from antiphon.scenarios.callers import Callers
from antiphon.scenarios.job_storm import Phase, Plan
from antiphon.scenarios.media_server import engine_figures, write_configuration
from antiphon.scenarios.storm import Storm
from antiphon.scenarios.voice import Setting
from antiphon.tests.gateway.studio import studio
from rich.console import Console


def phase(name: str, ttfp: list[float], **more: Any) -> Phase:
    return Phase(name, ttfp, turns=len(ttfp), answered=len(ttfp), voice_s=30.0, **more)


def test_the_storm_must_not_cost_more_than_a_quarter():
    calm, storm = phase("calm", [400.0] * 20), phase("storm", [490.0] * 20, jobs_completed=10)
    assert job_storm.ratio(storm, calm) == pytest.approx(1.225)
    rows = {row.name: row for row in job_storm.figures(calm, storm, None)}
    assert rows["p95 TTFP in the storm over without"].met
    assert rows["jobs a minute beside the calls, storm"].value == "20.0"
    worse = {row.name: row for row in job_storm.figures(calm, phase("storm", [520.0] * 20), phase("gate off", [900.0] * 20))}
    assert worse["p95 TTFP in the storm over without"].met is False
    assert worse["p95 TTFP with the gate off over without jobs"].value == "2.25"
    assert worse["turns not answered"].value == "0 of 60"


def test_without_a_turn_there_is_no_verdict_but_a_failure():
    silent = Phase("storm", [], turns=4, answered=0, voice_s=30.0, jobs_failed=1, failures=["clip: it broke"])
    rows = {row.name: row for row in job_storm.figures(phase("calm", [400.0]), silent, None)}
    assert rows["p95 TTFP in the storm over without"].met is None
    assert (rows["turns not answered"].met, rows["jobs that failed"].met) == (False, False)
    assert rows["jobs that failed"].note == "clip: it broke"


def test_a_comparison_that_means_nothing_does_not_pass():
    calm, storm = phase("calm", [400.0] * 5), phase("storm", [450.0] * 5)
    assert job_storm.doubts(calm, storm) == []
    assert "nothing to compare" in job_storm.doubts(calm, phase("storm", []))[0]
    busy = phase("calm", [20_000.0] * 5)
    assert job_storm.doubts(busy, storm) == ["The machine was too busy to compare: without any job, p95 TTFP was 20.0 s already."]


def test_the_engines_counters_are_summed_over_replicas():
    text = (
        'antiphon_diffusion_steps_total{replica="a-0"} 12.0\nantiphon_diffusion_steps_total{replica="a-1"} 3.0\n'
        'antiphon_diffusion_step_seconds_total{replica="a-0"} 1.5e-01\n# HELP antiphon_diffusion_rows_total\n'
    )
    assert engine_figures(text) == {"steps": 15.0, "step_seconds": 0.15}


def test_the_configuration_can_be_read(tmp_path):
    from antiphon.gateway.settings import load_settings

    path = write_configuration(tmp_path / "it" / "server.toml", tmp_path / "jobs", pipelines=("voice", "tone"), gate=False)
    settings = load_settings(path)
    assert settings.server.pipelines == ("voice", "tone")
    assert settings.engines["tinyflow"].options == {"gate": False}
    assert settings.engines["tinyflow"].process
    assert settings.jobs.place() == tmp_path / "jobs"


async def test_a_wave_is_made_to_its_end_and_nothing_is_left(tmp_path):
    async with studio(tmp_path, jobs={"max_active": 1000, "per_minute": 1000}) as server, MediaClient(server.url) as media:
        storm = Storm(media, clips=3, pictures=4, seconds="0.5", model="painter")
        raging = asyncio.create_task(storm.run())
        async with asyncio.timeout(30):
            while storm.waves == 0:  # noqa: ASYNC110 - any wave
                await asyncio.sleep(0.05)
            storm.stop()
            await raging
        first = storm.first_wave()
        assert sorted(made.kind for made in first) == ["clip"] * 3 + ["picture"] * 4
        assert all(made.seconds is not None and made.seconds > 0 and not made.failure for made in first)
        assert storm.completed(storm.began, storm.ended) >= 7
        assert storm.lost == []
        assert await media.clips() == []
        assert await media.pictures() == []


async def test_a_storm_that_is_stopped_deletes_what_is_not_made(tmp_path):
    async with studio(tmp_path, step_s=0.05, slots=2) as server, MediaClient(server.url) as media:
        storm = Storm(media, clips=2, pictures=2, seconds=None, model="painter")
        raging = asyncio.create_task(storm.run())
        await storm.raging.wait()
        raging.cancel()
        await asyncio.gather(raging, return_exceptions=True)
        assert await media.clips() == []
        assert await media.pictures() == []
        engine: Any = server.gateway.pool.engine("painter")
        async with asyncio.timeout(5):
            while engine.running:  # noqa: ASYNC110 - the abort takes a step
                await asyncio.sleep(0.02)


async def test_a_server_that_takes_no_jobs_is_told(tmp_path):
    async with studio(tmp_path, jobs={"max_active": 2}) as server, MediaClient(server.url, patience=0.0) as media:
        storm = Storm(media, clips=5, pictures=0, seconds=None, model="painter")
        with pytest.raises(MediaFailed, match="unfinished"):
            await storm.run()
        assert await media.clips() == []


class Voices(Callers):
    """Callers that buzz, for the tone pipeline's detector of loudness."""

    def pcm(self, caller: int, text: str) -> bytes:
        time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
        return from_float((0.3 * np.sin(2 * np.pi * (180 + 40 * caller) * time)).astype(np.float32))

    def voice(self, caller: int) -> str:
        return f"buzz {caller}"


async def test_calls_amid_a_storm(tmp_path, monkeypatch):
    session = {
        "output_modalities": ["audio"],
        "audio": {"input": {"turn_detection": {"type": "server_vad"}, "transcription": {"model": "x"}}},
    }
    monkeypatch.setattr(job_storm, "SESSION", session)
    monkeypatch.setattr(job_storm, "STAGGER_S", 0.5)
    plan = Plan(clips=3, pictures=3, sessions=2, turns=2, media="painter")
    scripts = [job_storm.script(plan, caller) for caller in range(plan.sessions)]
    async with studio(tmp_path / "jobs", step_s=0.05, slots=2, jobs={"max_active": 1000, "per_minute": 10_000}) as server:
        setting = Setting(tmp_path / "out", Console(), server.url, model="antiphon-tone")
        voices = Voices(tmp_path)
        async with setting.server() as live:
            calm = await job_storm.calm(setting, live, voices, scripts)
            storm = await job_storm.in_storm(setting, live, voices, scripts, plan, "storm")
    assert (calm.turns, calm.answered, len(calm.ttfp)) == (4, 4, 4)
    assert (storm.turns, storm.answered, len(storm.ttfp)) == (4, 4, 4), "the storm raged until the last word"
    assert storm.jobs_completed > 0
    assert storm.failures == []
    assert {kind: len(values) for kind, values in storm.job_s.items()} == {"clip": 3, "picture": 3}
    assert job_storm.finish(setting, plan, calm, storm, None) in (True, False)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [found["name"] for found in report["details"]["phases"]] == ["calm", "storm"]


async def test_the_demo_leaves_a_picture_and_a_clip(tmp_path):
    async with studio(tmp_path / "jobs") as server:
        act = await demo_media.run(Setting(tmp_path / "out", Console(), server.url))
        async with MediaClient(server.url) as media:
            assert [*await media.clips(), *await media.pictures()] == []
    assert act.failures == []
    assert [row.name for row in act.figures][::2] == ["picture, from order to file", "clip, from order to file"]
    assert (tmp_path / "out" / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "clip.mp4").read_bytes()[4:8] == b"ftyp"
    from PIL import Image

    with Image.open(tmp_path / "out" / "clip.gif") as gif:
        assert (gif.format, gif.size, gif.n_frames > 8, gif.info["loop"]) == ("GIF", (64, 64), True, 0)


def test_what_is_no_clip_makes_no_gif():
    with pytest.raises(ValueError, match="no clip"):
        gif_of(b"nothing")


async def test_an_act_that_fails_fails_the_demo(tmp_path, monkeypatch):
    from antiphon.scenarios import demo
    from antiphon.scenarios.acts import Act
    from antiphon.scenarios.report import plain

    async def good(setting: Setting) -> Act:
        return Act([plain("a figure", 1.0)])

    async def bad(setting: Setting) -> Act:
        raise MediaFailed("The painter is ill.")

    console = Console(record=True, width=120)
    monkeypatch.setattr(demo, "ACTS", {"one": good, "two": bad})
    assert not await demo.run(Setting(Path(tmp_path), console))
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["failures"] == ["two could not be had: The painter is ill."]
    assert [row["name"] for row in report["figures"]] == ["a figure"]
    monkeypatch.setattr(demo, "ACTS", {"one": good})
    assert await demo.run(Setting(Path(tmp_path), console))
