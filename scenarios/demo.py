"""The demo: a call, a picture and a clip, robots at work, printed as they go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rich.rule import Rule
from rich.text import Text

from ..clients.errors import CallFailed
from . import demo_call, demo_media, demo_robots
from .acts import Act
from .callers import CallersFailed
from .report import Report
from .server import ServerFailed
from .voice import Setting, finish

ACTS: dict[str, Callable[[Setting], Awaitable[Act]]] = {
    "a call": demo_call.run,
    "a picture and a clip": demo_media.run,
    "robots at work": demo_robots.run,
}


async def run(setting: Setting) -> bool:
    """Play every act; whether all went as they should. An act that could not be played is told with the others' figures."""
    whole = Act()
    for title, play in ACTS.items():
        setting.console.print(Rule(title, align="left", style="dim"))
        try:
            act = await play(setting)
        except (CallFailed, CallersFailed, ServerFailed) as error:
            setting.console.print(Text(str(error), style="red"))
            act = Act(failures=[f"{title} could not be had: {error}"])
        whole.figures += act.figures
        whole.failures += act.failures
        whole.details |= act.details
    return finish(setting, Report("demo", whole.figures, whole.failures, whole.details))
