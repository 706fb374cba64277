"""Voice and robots amid a storm of jobs: what they feel of pictures and clips made beside them, with the realtime gate and without it.

The same callers say the same sentences at the same moments three times: on a quiet server, in the storm, and in the storm with the gate
open; all the while robots are driven, if any. Only turns that began and were answered while there were jobs to be made count for the storm.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from rich.text import Text

from ..clients.errors import CallFailed
from ..clients.media import MediaClient, MediaFailed
from ..clients.realtime import connect
from .callers import Callers
from .conversation import SESSION, CallLog, Conversation
from .figures import percentile, turns
from .media_server import ENGINE, engine_figures, write_configuration
from .report import Figure, Report, at_most, missed, none_of, plain
from .robots.beside import Beside, robots_beside
from .script import Say
from .sentences import sentences
from .server import Server, ServerFailed
from .storm import Storm
from .voice import Setting

RATIO = 1.25
STAGGER_S = 2.3
"""Callers do not speak in step."""
START_S = 600.0
QUIET_MS = 5000.0
"""Where calls alone take longer than this (p95 TTFP), something else works on the machine, and a ratio says nothing."""
REQUIRED = ("p95 TTFP in the storm over without", "jobs that failed", "turns not answered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run; see `antiphon scenario job_storm --help`."""

    clips: int = 40
    pictures: int = 40
    sessions: int = 4
    turns: int = 5
    seconds: str | None = None
    media: str = ENGINE
    gate_off: bool = True
    robots: int = 0


@dataclass(slots=True)
class Phase:
    """What was measured in one of the three. Times in ms but for `voice_s` and `jobs_s` (seconds)."""

    name: str
    ttfp: list[float]
    turns: int
    answered: int
    voice_s: float
    jobs_completed: int = 0
    jobs_failed: int = 0
    failures: list[str] = field(default_factory=list)
    job_s: dict[str, list[float]] = field(default_factory=dict)
    wave_s: float | None = None
    """How long the first wave took."""
    engine: dict[str, float] = field(default_factory=dict)
    robots: Beside | None = None

    @property
    def jobs_per_minute(self) -> float | None:
        """Jobs made while there was a call."""
        return self.jobs_completed / self.voice_s * 60 if self.voice_s else None


async def run(setting: Setting, plan: Plan) -> bool:
    """All phases; whether the aims were met."""
    setting.out.mkdir(parents=True, exist_ok=True)
    callers = Callers(setting.out.parent / "callers", tell=lambda line: setting.console.print(Text(line, style="dim")))
    scripts = [script(plan, caller) for caller in range(plan.sessions)]
    await callers.prepare([(say.caller, say.text) for said in scripts for say in said])
    async with _server(setting, plan, gate=True) as server:
        quiet = await calm(setting, server, callers, scripts, plan.robots)
        storm = await in_storm(setting, server, callers, scripts, plan, "storm")
    opened = None
    if plan.gate_off and setting.url is None and setting.config is None:
        async with _server(setting, plan, gate=False) as server:
            opened = await in_storm(setting, server, callers, scripts, plan, "gate off")
    return finish(setting, plan, quiet, storm, opened)


def script(plan: Plan, caller: int) -> list[Say]:
    """What a caller says."""
    questions = sentences("questions")
    return [Say(text=questions[(caller + turn * plan.sessions) % len(questions)], caller=caller) for turn in range(plan.turns)]


def _server(setting: Setting, plan: Plan, *, gate: bool) -> Server:
    """The server to run against: voice and media on one pool."""
    if setting.url is not None or setting.config is not None:
        return setting.server()
    name = "gate" if gate else "no-gate"
    path = write_configuration(
        setting.out / f"server-{name}.toml",
        setting.out / f"jobs-{name}",
        pipelines=("voice",),
        policies=("tabletop",) if plan.robots else (),
        gate=gate,
    )
    return Server(log=setting.out / f"server-{name}.log", options=("--config", str(path)))


async def calm(setting: Setting, server: Server, callers: Callers, scripts: list[list[Say]], robots: int = 0) -> Phase:
    """The calls without jobs. Raises `CallFailed`, `ServerFailed`."""
    setting.console.print(f"{len(scripts)} callers on a quiet server")
    async with robots_beside(server.url, robots, api_key=setting.api_key) as beside:
        began = time.monotonic()
        logs = await _converse(setting, server, callers, scripts)
        ended = time.monotonic()
    phase = _phase("calm", logs, began, ended, None)
    phase.robots = beside if robots else None
    return phase


async def in_storm(setting: Setting, server: Server, callers: Callers, scripts: list[list[Say]], plan: Plan, name: str) -> Phase:
    """The calls while jobs are made. Raises `CallFailed`, `ServerFailed`."""
    setting.console.print(f"{len(scripts)} callers in a storm of {plan.clips} clips and {plan.pictures} pictures ({name})")
    async with MediaClient(server.url, api_key=setting.api_key, patience=START_S) as media:
        storm = Storm(media, clips=plan.clips, pictures=plan.pictures, seconds=plan.seconds, model=plan.media)
        before = engine_figures(str(await server.get("/metrics")))
        raging = asyncio.create_task(storm.run(), name="storm")
        try:
            await _raging(storm, raging)
            async with robots_beside(server.url, plan.robots, api_key=setting.api_key) as beside:
                began = time.monotonic()
                logs = await _converse(setting, server, callers, scripts)
                ended = time.monotonic()
        finally:
            storm.stop()
            if not raging.done():
                setting.console.print(Text("The calls are over; waiting for what is left of the jobs.", style="dim"))
            outcome = (await asyncio.gather(raging, return_exceptions=True))[0]
        if isinstance(outcome, BaseException):
            raise outcome if isinstance(outcome, CallFailed) else ServerFailed(f"The storm came to nothing: {outcome!r}")
        phase = _phase(name, logs, began, ended, storm)
        phase.robots = beside if plan.robots else None
        after = engine_figures(str(await server.get("/metrics")))
        phase.engine = {key: value - before.get(key, 0.0) for key, value in after.items()}
        return phase


async def _raging(storm: Storm, task: asyncio.Task[None]) -> None:
    """Wait until the first wave is submitted. Raises `MediaFailed` when the server takes no jobs."""
    waiting = asyncio.create_task(storm.raging.wait(), name="storm rages")
    await asyncio.wait((waiting, task), timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()
    elif not storm.raging.is_set():
        raise MediaFailed(f"The server did not take the jobs within {START_S:g} s.", "timeout")


async def _converse(setting: Setting, server: Server, callers: Callers, scripts: list[list[Say]]) -> list[CallLog]:
    """All calls at once. Raises `CallFailed`."""

    async def call(number: int, said: list[Say]) -> CallLog:
        await asyncio.sleep(number * STAGGER_S)
        client = await connect(server.url, model=setting.model, api_key=setting.api_key)
        return await Conversation(client, callers, seed=number).play(said, SESSION)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(call(number, said), name=f"caller {number}") for number, said in enumerate(scripts)]
    return [task.result() for task in tasks]


def _phase(name: str, logs: list[CallLog], began: float, ended: float, storm: Storm | None) -> Phase:
    said = [turn for log in logs for turn in turns(log)]
    inside = [
        turn for turn in said if storm is None or _amid(storm, turn.happening.onset, turn.answer.first_audio if turn.answer else None)
    ]
    phase = Phase(
        name=name,
        ttfp=[turn.ttfp * 1000 for turn in inside if turn.ttfp is not None],
        turns=len(said),
        answered=sum(turn.answer is not None for turn in said),
        voice_s=ended - began,
    )
    if storm is not None:
        phase.jobs_completed = storm.completed(began, ended)
        phase.failures = [f"{made.kind}: {made.failure}" for made in storm.jobs if made.failure and made.wave == 0] + storm.lost
        phase.jobs_failed = len(phase.failures)
        first = storm.first_wave()
        for kind in ("clip", "picture"):
            phase.job_s[kind] = [made.seconds for made in first if made.kind == kind and made.seconds is not None]
        last = max((made.ended for made in first if made.ended is not None), default=None)
        phase.wave_s = last - storm.began if last is not None and storm.began is not None else None
    return phase


def _amid(storm: Storm, since: float, until: float | None) -> bool:
    """Whether the storm raged all this time."""
    assert storm.began is not None
    return storm.began <= since and (storm.ended is None or (until or since) <= storm.ended)


def finish(setting: Setting, plan: Plan, quiet: Phase, storm: Phase, opened: Phase | None) -> bool:
    """Show and save the report; whether it passed."""
    rows = figures(quiet, storm, opened)
    report = Report(
        "job_storm",
        rows,
        [*missed(rows, REQUIRED), *doubts(quiet, storm)],
        {"plan": asdict(plan), "phases": [asdict(p) for p in (quiet, storm, opened) if p]},
    )
    report.show(setting.console)
    report.save(setting.out)
    setting.console.print(Text(f"The report is in {setting.out}", style="dim"))
    return report.passed


def doubts(quiet: Phase, storm: Phase) -> list[str]:
    """Sentences about why the comparison would mean nothing; none: it means something."""
    alone = percentile(quiet.ttfp, 0.95)
    found: list[str] = []
    if ratio(storm, quiet) is None:
        found.append("No answered turn fell into the storm: there is nothing to compare. More jobs, or fewer turns, would help.")
    if alone is not None and alone > QUIET_MS:
        found.append(f"The machine was too busy to compare: without any job, p95 TTFP was {alone / 1000:.1f} s already.")
    return found


def figures(quiet: Phase, storm: Phase, opened: Phase | None) -> list[Figure]:
    """The rows of the table."""
    rows: list[Figure] = []
    for phase in (quiet, storm, opened):
        if phase is not None:
            rows.append(plain(f"TTFP p50, {phase.name}", percentile(phase.ttfp, 0.5), "ms", note=f"{len(phase.ttfp)} turns"))
            rows.append(plain(f"TTFP p95, {phase.name}", percentile(phase.ttfp, 0.95), "ms"))
    rows.append(at_most("p95 TTFP in the storm over without", ratio(storm, quiet), RATIO, digits=2))
    if opened is not None:
        rows.append(plain("p95 TTFP with the gate off over without jobs", ratio(opened, quiet), digits=2, note="what the gate is for"))
    for phase in (storm, opened):
        if phase is None:
            continue
        rows.append(plain(f"jobs a minute beside the calls, {phase.name}", phase.jobs_per_minute, digits=1))
        rows.append(plain(f"the first wave took, {phase.name}", phase.wave_s, "s"))
        for kind, values in phase.job_s.items():
            note = f"p95 {percentile(values, 0.95) or 0:.0f} s"
            rows.append(plain(f"{kind} from order to file p50, {phase.name}", percentile(values, 0.5), "s", digits=1, note=note))
        rows += [plain(f"{what}, {phase.name}", value) for what, value in _engine_rows(phase.engine).items()]
    phases = [phase for phase in (quiet, storm, opened) if phase is not None]
    rows += [row for phase in phases if phase.robots is not None for row in _robot_rows(phase.name, phase.robots)]
    rows.append(none_of("jobs that failed", sum(phase.jobs_failed for phase in phases), note="; ".join(storm.failures[:1])))
    silent = sum(phase.turns - phase.answered for phase in phases)
    rows.append(none_of("turns not answered", silent, sum(phase.turns for phase in phases)))
    return rows


def ratio(phase: Phase, quiet: Phase) -> float | None:
    """p95 TTFP of a phase over that of the quiet one; None when one of them has no turn."""
    above, below = percentile(phase.ttfp, 0.95), percentile(quiet.ttfp, 0.95)
    return above / below if above is not None and below else None


def _robot_rows(name: str, robots: Beside) -> list[Figure]:
    refused = ", ".join(f"{times} {why}" for why, times in robots.refused.items())
    return [
        plain(
            f"robots' round trip p50, {name}", robots.round_trip_p50, "ms", digits=1, note=f"{robots.robots} robots, {robots.chunks} chunks"
        ),
        plain(f"robots' round trip p99, {name}", robots.round_trip_p99, "ms", digits=1, note=refused),
        plain(f"robots' stalls, {name}", robots.stalls, note=f"in {robots.executed} steps"),
        plain(f"robots' episodes that succeeded, {name}", robots.succeeded, note=f"of {robots.episodes}"),
    ]


def _engine_rows(engine: Mapping[str, float]) -> dict[str, float]:
    names = {"preemptions": "steps that stood aside", "steps": "denoising steps"}
    return {title: engine[name] for name, title in names.items() if name in engine}


__all__ = ["Phase", "Plan", "calm", "doubts", "figures", "finish", "in_storm", "ratio", "run", "script"]
