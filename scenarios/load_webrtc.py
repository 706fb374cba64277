"""What a call costs: CPU per 20 ms of audio both ways, calls per core and memory, beside a server made with aiortc alone.

Everybody speaks all the time: each caller sends speech frame by frame (too softly to take a turn), and the server answers with
one long tone. The stock server does the same and nothing more; ours also runs the session and the pipeline, first with manual
turns and then with the VAD listening in.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace

import numpy as np
from rich.text import Text

from ..clients.media_caller import MediaCaller, keep_talking
from ..codecs import opus, pcm
from .processes import Cost, measure
from .report import Figure, Report, at_most, plain
from .server import Server, ServerFailed
from .voice import Setting

MODEL = "antiphon-tone"
READY = re.compile(r"listening on (http://\S+)")
AIM_US = 250.0
AIM_TIMES = 3.0
SETTLE_S = 3.0
TEXT = "This is a tone that goes on and on, as long as the load is measured, without a pause and without an end in sight. " * 12
MANUAL = {"audio": {"input": {"transcription": None, "turn_detection": None}}}
LISTENING = {"audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": False, "interrupt_response": False}}}}
CONFIGURATION = """\
[server]
pipelines = ["tone"]
media = []
log_level = "warning"

[robots]
policies = []

[registry]
capacity = 1000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many calls, and for how long each server is measured."""

    calls: int = 24
    seconds: float = 15.0
    stock: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured. `us_per_pair`: CPU for one frame in and one out; `late_ms`: the caller's own worst lateness."""

    calls: int
    us_per_pair: float
    calls_per_core: float
    cpu: float
    in_per_s: float
    out_per_s: float
    mb_per_call: float
    threads: int
    files: int
    late_ms: float
    us_with_vad: float | None = None


def soft_speech(seconds: float = 4.0) -> list[bytes]:
    """Encoded frames of speech so soft that the VAD passes over it; they cost as much to decode as loud ones."""
    t = np.arange(int(seconds * pcm.SAMPLE_RATE)) / pcm.SAMPLE_RATE
    phase = 2 * np.pi * np.cumsum(125 + 25 * np.sin(2 * np.pi * 0.6 * t)) / pcm.SAMPLE_RATE
    wave = sum(np.sin(k * phase) / k for k in range(1, 20)) * (0.55 + 0.45 * np.sin(2 * np.pi * 3.5 * t)) * 0.002
    audio = pcm.from_float(wave.astype(np.float32))
    encoder = opus.OpusEncoder(bitrate=32_000, dtx=False)
    encoder.protect(5)
    step = 2 * encoder.frame_samples
    return [encoder.encode(audio[at : at + step]) for at in range(0, len(audio) - step + 1, step)]


async def run(setting: Setting, plan: Plan) -> bool:
    """Measure both servers; whether the aims were met."""
    setting.out.mkdir(parents=True, exist_ok=True)
    config = setting.out / "load_webrtc.toml"
    config.write_text(CONFIGURATION)
    report = Report("load_webrtc", [])
    setting.console.print(Text(f"{plan.calls} calls with this server", style="dim"))
    async with Server(log=setting.out / "server.log", options=("--config", str(config))) as server:
        assert server.pid is not None
        ours = await _load(server.url, server.pid, plan, ask=True)
    report.details["ours"] = asdict(ours)
    _figures(report, "", ours)
    report.figures.append(at_most("CPU per frame pair", ours.us_per_pair, AIM_US, "us", note=f"at {ours.calls} calls"))
    report.figures.append(plain("CPU per frame pair with the energy VAD", ours.us_with_vad, "us"))
    if plan.stock:
        setting.console.print(Text(f"{plan.calls} calls with stock aiortc", style="dim"))
        async with _stock(setting) as (url, pid):
            stock = await _load(url, pid, plan, ask=False)
        report.details["stock"] = asdict(stock)
        _figures(report, "stock: ", stock)
        report.figures.append(plain("stock: CPU per frame pair", stock.us_per_pair, "us"))
        times = stock.us_per_pair / ours.us_per_pair
        report.figures.append(Figure("stock over ours", f"{times:.1f} times", f"≥ {AIM_TIMES:g} times", times >= AIM_TIMES))
    report.failures = [f"{row.name}: {row.value}, should be {row.aim}." for row in report.figures if row.met is False]
    report.show(setting.console)
    report.save(setting.out)
    return report.passed


def _figures(report: Report, prefix: str, load: Load) -> None:
    report.figures += [
        plain(f"{prefix}calls per core", load.calls_per_core, digits=0),
        plain(f"{prefix}CPU of a core", 100 * load.cpu, "%", note=f"{load.calls} calls"),
        plain(
            f"{prefix}frames a second and call, in / out",
            load.in_per_s,
            digits=1,
            note=f"out {load.out_per_s:.1f}; the caller's worst lateness {load.late_ms:.0f} ms",
        ),
        plain(f"{prefix}memory per call", load.mb_per_call, "MB", digits=2, note=f"{load.threads} threads, {load.files} files"),
    ]


async def _load(url: str, pid: int, plan: Plan, *, ask: bool) -> Load:
    before = measure(pid)
    callers = [MediaCaller(keep=False) for _ in range(plan.calls)]
    for start in range(0, len(callers), 4):
        await asyncio.gather(*(c.connect(url, model=MODEL, session=MANUAL if ask else None) for c in callers[start : start + 4]))
    if ask:
        content = [{"type": "input_text", "text": TEXT}]
        for caller in callers:
            caller.send_event({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}})
            caller.send_event({"type": "response.create"})
    load = await _measured(callers, pid, before, plan)
    if ask:
        for caller in callers:
            caller.send_event({"type": "session.update", "session": {"type": "realtime", **LISTENING}})
        load = replace(load, us_with_vad=(await _measured(callers, pid, before, plan)).us_per_pair)
    await asyncio.gather(*(caller.close() for caller in callers))
    return load


async def _measured(callers: list[MediaCaller], pid: int, before: Cost, plan: Plan) -> Load:
    """Let everybody speak for a while, and see what that costs."""
    frames = soft_speech()
    await keep_talking(callers, frames, time.monotonic() + SETTLE_S)
    first, sent, came, began = measure(pid), sum(c.sent for c in callers), sum(c.received for c in callers), time.monotonic()
    late = await keep_talking(callers, frames, time.monotonic() + plan.seconds)
    last, took = measure(pid), time.monotonic() - began
    sent, came = sum(c.sent for c in callers) - sent, sum(c.received for c in callers) - came
    cpu = last.cpu - first.cpu
    return Load(
        calls=plan.calls,
        us_per_pair=cpu / max(1, (sent + came) / 2) * 1e6,
        calls_per_core=plan.calls / (cpu / took),
        cpu=cpu / took,
        in_per_s=sent / took / plan.calls,
        out_per_s=came / took / plan.calls,
        mb_per_call=(last.rss - before.rss) / plan.calls / 1e6,
        threads=last.threads,
        files=last.files,
        late_ms=late * 1000,
    )


@asynccontextmanager
async def _stock(setting: Setting) -> AsyncIterator[tuple[str, int]]:
    """The stock server in a process of its own: its address and process id. Raises `ServerFailed`."""
    log = setting.out / "stock.log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "antiphon.scenarios.stock_server"]
        process = await asyncio.to_thread(subprocess.Popen, command, stdout=file, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 30
        while (found := READY.search(log.read_text(errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"The stock server did not start; see {log}.")
            await asyncio.sleep(0.05)
        yield found[1], process.pid
    finally:
        process.send_signal(signal.SIGKILL)  # aiortc's decoder threads would keep it from ending
        await asyncio.to_thread(process.wait)


__all__ = ["Load", "Plan", "run", "soft_speech"]
