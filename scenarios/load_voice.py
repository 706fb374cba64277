"""How many voice sessions one server process carries: the gateway alone, on the tone pipeline, in real time.

Every session sends audio without a pause and hears answers without a pause. At each step there are more sessions, until the
server's deadlines slip: an audio delta is late when it comes after the moment at which the server's own lead (500 ms) lets it
go, and a listener's player runs dry. The client measures its own lateness as well, so that a slow client is not taken for
a slow server.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .figures import percentile
from .load_client import SPREAD_S, Counts, Load
from .load_figures import LATE_MS, Steady, Step
from .load_plot import draw
from .processes import Cost, measure
from .report import Figure, Report, at_most, none_of, plain
from .server import Server, ServerFailed
from .timeline import NoPlots
from .voice import Setting

TEXT = "This answer is only a tone, but it lasts as long as a spoken answer of one sentence would."
SETTLE_S = SPREAD_S + 1.0
ATTEMPTS = 3
"""A step that fails is measured again: a pause of the whole machine is not the server's."""
SAMPLE_EVERY_S = 10.0
FLAT_PERCENT = 5.0
AIM_PER_CORE = 150

CONFIGURATION = """\
[server]
pipelines = ["tone"]
media = []
log_level = "warning"

[robots]
policies = []

[registry]
capacity = 4000
idle_s = 86400
lifetime_s = 86400
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run; see `antiphon scenario load_voice --help`."""

    pid: int | None = None
    minutes: float = 0.0
    sessions: int = 0
    start: int = 20
    step: int = 20
    most: int = 400
    seconds: float = 12.0
    frame_ms: int = 20


async def run(setting: Setting, plan: Plan) -> bool:
    """Step up until deadlines slip, then hold a steady load if asked to; whether the aims were met."""
    setting.out.mkdir(parents=True, exist_ok=True)
    async with _server(setting) as server:
        pid = plan.pid if setting.url is not None else server.pid
        if pid is None:
            raise ServerFailed("With --url the server's process must be named too: --pid, on this machine.")
        empty = await asyncio.to_thread(measure, pid)
        steps = await _steps(setting, server.url, plan, pid, empty)
        reached = max((step.sessions for step in steps if step.good), default=0)
        steady = None
        if plan.minutes > 0:
            sessions = plan.sessions or max(1, reached // 2)
            steady = await _hold(setting, server.url, plan, pid, sessions)
    return _finish(setting, steps, steady)


def _server(setting: Setting) -> Server:
    if setting.url is not None or setting.config is not None:
        return setting.server()
    configuration = setting.out / "server.toml"
    configuration.write_text(CONFIGURATION)
    return Server(log=setting.out / "server.log", options=("--config", str(configuration)))


async def _steps(setting: Setting, url: str, plan: Plan, pid: int, empty: Cost) -> list[Step]:
    load = Load(url, model=setting.model, text=TEXT, frame_ms=plan.frame_ms, api_key=setting.api_key)
    sending = asyncio.create_task(load.run(), name="load")
    steps: list[Step] = []
    try:
        for sessions in range(plan.start, plan.most + 1, plan.step):
            try:
                await load.grow(sessions)
            except (OSError, TimeoutError) as error:
                setting.console.print(Text(f"{sessions} sessions could not be opened: {error}", style="yellow"))
                break
            await asyncio.sleep(SETTLE_S)
            for _ in range(ATTEMPTS):
                step = await _measure(load, plan.seconds, pid, empty)
                _tell(setting.console, step)
                if step.good:
                    break
            steps.append(step)
            if not step.good:
                break
    finally:
        load.close()
        await _end(sending)
    await asyncio.sleep(1.0)
    return steps


async def _measure(load: Load, seconds: float, pid: int, empty: Cost) -> Step:
    load.reset()
    before, own, began = await asyncio.to_thread(measure, pid), time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    counts = load.reset()
    elapsed = time.monotonic() - began
    own_cpu = time.process_time() - own
    after = await asyncio.to_thread(measure, pid)
    return _step(len(load.sessions), counts, before, after, empty, elapsed, own_cpu)


def _step(sessions: int, counts: Counts, before: Cost, after: Cost, empty: Cost, elapsed: float, own_cpu: float) -> Step:
    def ms(values: list[float], share: float) -> float:
        return (percentile(values, share) or 0.0) * 1000

    cpu = after.cpu - before.cpu
    return Step(
        sessions=sessions,
        cpu=cpu / elapsed,
        client_cpu=own_cpu / elapsed,
        cpu_us_per_20ms=cpu / (sessions * elapsed / 0.02) * 1e6,
        late_p50=ms(counts.lateness, 0.5),
        late_p99=ms(counts.lateness, 0.99),
        underruns=counts.underruns,
        errors=counts.errors,
        lost=counts.lost,
        first_audio_p50=ms(counts.first_audio, 0.5),
        first_audio_p99=ms(counts.first_audio, 0.99),
        own_late_p99=ms(counts.own_lateness, 0.99),
        rss=after.rss / 1e6,
        pss=after.pss / 1e6,
        pss_per_session=(after.pss - empty.pss) / sessions / 1e6,
        deltas=counts.deltas,
        last_error=counts.last_error,
    )


async def _hold(setting: Setting, url: str, plan: Plan, pid: int, sessions: int) -> Steady:
    """A steady load for `plan.minutes`, its memory looked at every ten seconds."""
    console = setting.console
    console.print(f"Holding {sessions} sessions for {plan.minutes:g} minutes")
    load = Load(url, model=setting.model, text=TEXT, frame_ms=plan.frame_ms, api_key=setting.api_key)
    sending = asyncio.create_task(load.run(), name="load")
    steady = Steady(sessions)
    try:
        await load.grow(sessions)
        began = time.monotonic()
        load.reset()
        while (minute := (time.monotonic() - began) / 60) < plan.minutes:
            cost = await asyncio.to_thread(measure, pid)
            steady.samples.append((round(minute, 2), round(cost.pss / 1e6, 2), cost.threads, cost.files))
            await asyncio.sleep(SAMPLE_EVERY_S)
        counts = load.reset()
        steady.late_p99 = (percentile(counts.lateness, 0.99) or 0.0) * 1000
        steady.underruns, steady.lost = counts.underruns, counts.lost
    finally:
        load.close()
        await _end(sending)
    return steady


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _tell(console: Console, step: Step) -> None:
    verdict = "  the client is too slow" if step.client_is_slow else "  deadlines slip" if step.slipped else ""
    console.print(
        f"{step.sessions:4d} sessions: server {step.cpu * 100:3.0f} % of a core ({step.cpu_us_per_20ms:.0f} us per 20 ms each way), "
        f"late p99 {step.late_p99:.1f} ms, underruns {step.underruns}, {step.pss_per_session:.2f} MB a session, "
        f"client {step.client_cpu * 100:.0f} %{verdict}",
        highlight=False,
    )
    if step.last_error:
        console.print(Text(step.last_error, style="yellow"))


def _finish(setting: Setting, steps: list[Step], steady: Steady | None) -> bool:
    good = [step for step in steps if step.good]
    best = good[-1] if good else None
    last = steps[-1] if steps else None
    note = "the server slipped at the next step" if last is not None and last.slipped else "nothing slipped: the real limit is higher"
    if last is not None and last.client_is_slow:
        note = "the client became too slow at the next step: the real limit is higher"
    reached = best.sessions if best is not None else 0
    rows = [
        Figure("sessions of one process", str(reached), f"≥ {AIM_PER_CORE}", reached >= AIM_PER_CORE, note),
        plain("server's share of a core then", best.cpu * 100 if best else None, "%"),
        plain("sessions per core of CPU used", best.sessions / best.cpu if best and best.cpu else None, note="by proportion"),
        plain("CPU per 20 ms of audio each way", best.cpu_us_per_20ms if best else None, "us"),
        at_most("late audio p99", best.late_p99 if best else None, LATE_MS, "ms", digits=1),
        plain("first audio after response.create p50", best.first_audio_p50 if best else None, "ms", digits=1),
        plain("first audio after response.create p99", best.first_audio_p99 if best else None, "ms", digits=1),
        plain("memory per session (PSS)", best.pss_per_session if best else None, "MB", digits=2, note="audio kept for retrieval included"),
        plain("client's share of a core", best.client_cpu * 100 if best else None, "%"),
    ]
    failures = [] if best is not None else ["Deadlines slipped at the first step."]
    if steady is not None:
        growth = steady.growth_percent
        rows.append(at_most(f"memory growth, {steady.sessions} sessions", growth, FLAT_PERCENT, "%", digits=1, note="after a warm-up"))
        rows.append(none_of("underruns under the steady load", steady.underruns))
        if growth is not None and growth > FLAT_PERCENT:
            failures.append(f"Memory grew by {growth:.1f} % under a steady load.")
        if steady.lost:
            failures.append(f"{steady.lost} sessions were lost under a steady load.")
    _table(setting.console, steps)
    report = Report("load_voice", rows, failures, {"steps": [asdict(step) for step in steps], "steady": asdict(steady) if steady else None})
    report.show(setting.console)
    report.save(setting.out)
    _plot(setting.out / "load.png", setting.console, steps, steady)
    return report.passed


def _table(console: Console, steps: list[Step]) -> None:
    table = Table(header_style="bold")
    for heading in (
        "sessions",
        "CPU %",
        "us / 20 ms",
        "late p50",
        "late p99",
        "underruns",
        "first audio p50 / p99",
        "RSS MB",
        "MB / session",
    ):
        table.add_column(heading, justify="right")
    for step in steps:
        table.add_row(
            str(step.sessions),
            f"{step.cpu * 100:.0f}",
            f"{step.cpu_us_per_20ms:.0f}",
            f"{step.late_p50:.1f} ms",
            f"{step.late_p99:.1f} ms",
            str(step.underruns),
            f"{step.first_audio_p50:.0f} / {step.first_audio_p99:.0f} ms",
            f"{step.rss:.0f}",
            f"{step.pss_per_session:.2f}",
        )
    console.print(table)


def _plot(path: Path, console: Console, steps: list[Step], steady: Steady | None) -> None:
    try:
        draw(path, steps, steady)
    except NoPlots as error:
        console.print(Text(str(error), style="yellow"))
