"""`antiphon scenario`: run a whole story against a server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ..clients.errors import CallFailed
from . import demo as demo_scenario
from . import diffusion_batching as batching_scenario
from . import job_storm as storm_scenario
from . import load_voice as load_scenario
from . import voice_turns as turns_scenario
from .callers import CallersFailed
from .media_server import ENGINE
from .server import ServerFailed, ended_by_sigterm
from .voice import MODEL, Setting

app = typer.Typer(
    help="Run a whole story against a live server through its public interface, and print what was measured.\n\n"
    "Without --url a server is started and stopped again. Exit codes: 0 passed, 1 a figure missed its aim, 2 it could not be run.",
    no_args_is_help=True,
)

Out = Annotated[Path, typer.Option(help="Folder for reports, recordings and pictures; each scenario has its own below it.")]
Url = Annotated[str | None, typer.Option(help="A server that runs already; without it one is started.", envvar="ANTIPHON_URL")]
Config = Annotated[Path | None, typer.Option(help="The configuration file of the server that is started.", exists=True, dir_okay=False)]
Key = Annotated[str | None, typer.Option(help="The API key, if the server wants one.", envvar="ANTIPHON_API_KEY")]
Model = Annotated[str, typer.Option(help="The model to ask for.")]


@app.command("demo")
def demo(out: Out = Path("out"), url: Url = None, config: Config = None, api_key: Key = None, model: Model = MODEL) -> None:
    """A short call (six turns, two interruptions, one hum), then a picture and a clip; two minutes."""
    setting = Setting(out / "demo", _console(), url, config, api_key, model)
    _run(setting, demo_scenario.run(setting))


@app.command("voice_turns")
def voice_turns(out: Out = Path("out"), url: Url = None, config: Config = None, api_key: Key = None, model: Model = MODEL) -> None:
    """The acceptance test of a call: over 20 turns in several voices, 8 interruptions, hums and noises; some five minutes."""
    setting = Setting(out / "voice_turns", _console(), url, config, api_key, model)
    _run(setting, turns_scenario.run(setting))


@app.command("load_voice")
def load_voice(
    out: Out = Path("out"),
    url: Url = None,
    config: Config = None,
    api_key: Key = None,
    pid: Annotated[int | None, typer.Option(help="With --url: the server's process, to measure its CPU time and memory.")] = None,
    minutes: Annotated[
        float, typer.Option(help="Also hold a steady load for so long, and see that memory stays flat.", min=0, max=120)
    ] = 0.0,
    sessions: Annotated[int, typer.Option(help="Sessions of the steady load; 0: half of what was reached.", min=0, max=2000)] = 0,
    start: Annotated[int, typer.Option(help="Sessions of the first step.", min=1, max=2000)] = 20,
    step: Annotated[int, typer.Option(help="Sessions more at each step.", min=1, max=500)] = 20,
    most: Annotated[int, typer.Option(help="No step goes beyond this.", min=1, max=2000)] = 400,
    seconds: Annotated[float, typer.Option(help="How long a step is measured.", min=3, max=120)] = 12.0,
    frame_ms: Annotated[int, typer.Option(help="Milliseconds of audio in each event sent.", min=10, max=200)] = 20,
) -> None:
    """Concurrent sessions on the tone pipeline at real time, more at each step, until deadlines slip."""
    setting = Setting(out / "load_voice", _console(), url, config, api_key, "antiphon-tone")
    plan = load_scenario.Plan(
        pid=pid, minutes=minutes, sessions=sessions, start=start, step=step, most=most, seconds=seconds, frame_ms=frame_ms
    )
    _run(setting, load_scenario.run(setting, plan))


@app.command("job_storm")
def job_storm(
    out: Out = Path("out"),
    url: Url = None,
    config: Config = None,
    api_key: Key = None,
    model: Model = MODEL,
    clips: Annotated[int, typer.Option(help="Clips of a wave.", min=0, max=100)] = 40,
    pictures: Annotated[int, typer.Option(help="Pictures of a wave.", min=0, max=80)] = 40,
    sessions: Annotated[int, typer.Option(help="Calls at once.", min=1, max=32)] = 4,
    turns: Annotated[int, typer.Option(help="What each caller says.", min=1, max=50)] = 5,
    seconds: Annotated[str | None, typer.Option(help="How long the clips are; as long as the model likes, if not given.")] = None,
    media: Annotated[str, typer.Option(help="The model that makes them.")] = ENGINE,
    gate_off: Annotated[bool, typer.Option(help="Also measure without the realtime gate (not with --url or --config).")] = True,
    robots: Annotated[int, typer.Option(help="Simulated robots that are driven all the while.", min=0, max=16)] = 0,
) -> None:
    """Calls on real models while clips and pictures are made: on a quiet server, in the storm, in the storm without the gate."""
    setting = Setting(out / "job_storm", _console(), url, config, api_key, model)
    plan = storm_scenario.Plan(
        clips=clips, pictures=pictures, sessions=sessions, turns=turns, seconds=seconds, media=media, gate_off=gate_off, robots=robots
    )
    _run(setting, storm_scenario.run(setting, plan))


@app.command("diffusion_batching")
def diffusion_batching(
    out: Out = Path("out"),
    model: Annotated[str, typer.Option(help="A folder in the diffusers layout. Default: the model that ships.")] = "",
    requests: Annotated[int, typer.Option(help="Requests of each point.", min=8, max=1000)] = 48,
    pictures: Annotated[int, typer.Option(help="Pictures for the cache's error; 0: leave the cache out.", min=0, max=1000)] = 64,
) -> None:
    """Step-level batching against static batches and one request at a time, and the residual cache; a minute of one core."""
    setting = Setting(out / "diffusion_batching", _console())
    _run(setting, batching_scenario.run(setting, batching_scenario.Plan(requests=requests, pictures=pictures, model=model)))


def _console() -> Console:
    """Wide enough for the tables where the output is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 118)


@app.command("impairment")
def impairment(out: Out = Path("out"), url: Url = None, config: Config = None, api_key: Key = None) -> None:
    """Calls over bad networks, callers who vanish, offers that nobody means well with; some two minutes."""
    with _needs_webrtc():
        from . import impairment as scenario
    setting = Setting(out / "impairment", Console(), url, config, api_key, scenario.MODEL)
    _run(setting, scenario.run(setting))


@app.command("load_webrtc")
def load_webrtc(
    out: Out = Path("out"),
    calls: Annotated[int, typer.Option(help="Calls at once.", min=1, max=500)] = 24,
    seconds: Annotated[float, typer.Option(help="How long each server is measured.", min=3, max=600)] = 15.0,
    stock: Annotated[bool, typer.Option(help="Also measure a server made with aiortc alone.")] = True,
) -> None:
    """What a call costs in CPU and memory, beside a server made with aiortc alone; a minute."""
    with _needs_webrtc():
        from . import load_webrtc as scenario
    setting = Setting(out / "load_webrtc", Console(), model=scenario.MODEL)
    _run(setting, scenario.run(setting, scenario.Plan(calls=calls, seconds=seconds, stock=stock)))


@app.command("robot_fleet")
def robot_fleet(
    out: Out = Path("out"),
    policy: Annotated[str, typer.Option(help="The policy: one that ships and needs no pictures.")] = "tabletop",
    seconds: Annotated[float, typer.Option(help="How long a block is.", min=0.5, max=60)] = 1.5,
    rounds: Annotated[int, typer.Option(help="Blocks of each kind, the servers in turn.", min=1, max=20)] = 3,
    hertz: Annotated[float, typer.Option(help="How often a robot asks.", min=1, max=200)] = 20.0,
    also: Annotated[str, typer.Option(help="Measure ours once more with the policy there: in_process or subprocess.")] = "",
) -> None:
    """1, 4 and 16 robots against this server and against openpi's own, on the same weights; a minute and a half."""
    try:
        from .robots import fleet as scenario
    except ImportError as error:
        Console().print(Text(f"This scenario needs the extras 'robot' and 'sim': pip install 'antiphon[robot,sim]' ({error})", style="red"))
        raise typer.Exit(2) from error
    setting = Setting(out / "robot_fleet", _console())
    plan = scenario.Plan(policy=policy, seconds=seconds, rounds=rounds, hertz=hertz, also=also)
    _run(setting, scenario.run(setting, plan))


@app.command("robot_policies")
def robot_policies(
    out: Out = Path("out"),
    url: Url = None,
    config: Config = None,
    api_key: Key = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="tabletop, tabletop-eyes or metaworld; may be given several times. Default: all.", show_default=False),
    ] = None,
    trials: Annotated[
        str, typer.Option(help="What is tried: some of own, paraphrase, wrong (another task's words), delays.")
    ] = "own,paraphrase,wrong,delays",
    episodes: Annotated[int, typer.Option(help="Episodes of each task in each trial; documented figures have 50.", min=1)] = 5,
    late_episodes: Annotated[
        int | None, typer.Option(help="The same for the trials with delays; default: as many.", min=1, show_default=False)
    ] = None,
    robots: Annotated[int, typer.Option(help="Robots at once; half as many where they see.", min=1, max=64)] = 8,
    delay: Annotated[
        list[int] | None,
        typer.Option(help="Milliseconds more for each round trip; default: 0, 100 and 200.", min=0, max=1000, show_default=False),
    ] = None,
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Try temporal ensembling beside wait, switch and rtc.")] = False,
    execute: Annotated[
        int | None, typer.Option(help="Actions of a chunk that are played; default: half of its horizon.", min=1, show_default=False)
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Also measure the policies in process, for the table.")] = False,
) -> None:
    """Robots in closed loop through the server, in real time: other words, late chunks, hand-overs. It says how long it will take."""
    with _needs_simulation():
        from .robots import closed_loop as scenario
        from .robots.trials import GROUPS
    groups = tuple(group for group in GROUPS if group in trials.split(","))
    if not groups or set(trials.split(",")) - set(groups):
        raise typer.BadParameter(f"some of {','.join(GROUPS)}, separated by commas", param_hint="--trials")
    policies = tuple(policy or scenario.POLICIES)
    if unknown := set(policies) - set(scenario.POLICIES):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: not one of {', '.join(scenario.POLICIES)}", param_hint="--policy")
    setting = Setting(out / "robot_policies", Console(width=None if sys.stdout.isatty() else 190), url, config, api_key)
    plan = scenario.Plan(
        policies=policies,
        groups=groups,
        episodes=episodes,
        late_episodes=late_episodes,
        robots=robots,
        delays_ms=tuple(sorted(set(delay or (0, 100, 200)))),
        handovers=(*scenario.HANDOVERS, "ensemble") if ensemble else scenario.HANDOVERS,
        execute=execute,
        compare=compare,
    )
    _run(setting, scenario.run(setting, plan))


@contextlib.contextmanager
def _needs_simulation() -> Iterator[None]:
    """Say what to install when robots cannot be simulated."""
    try:
        yield
    except ImportError as error:
        Console().print(Text(f"This scenario needs the extras 'robot' and 'sim': pip install 'antiphon[robot,sim]' ({error})", style="red"))
        raise typer.Exit(2) from error


@contextlib.contextmanager
def _needs_webrtc() -> Iterator[None]:
    """Say what to install when aiortc is not there."""
    try:
        yield
    except ImportError as error:
        Console().print(Text(f"This scenario needs the extra 'webrtc': pip install 'antiphon[webrtc]' ({error})", style="red"))
        raise typer.Exit(2) from error


def _run(setting: Setting, scenario: Coroutine[Any, Any, bool]) -> None:
    try:
        with ended_by_sigterm():
            passed = asyncio.run(scenario)
    except (CallFailed, CallersFailed, ServerFailed) as error:
        setting.console.print(Text(str(error), style="red"))
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(0 if passed else 1)
