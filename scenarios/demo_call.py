"""The demo's first act: a short call with two interruptions and a hum, printed as it goes."""

from __future__ import annotations

from .acts import Act
from .report import missed
from .script import Action, Backchannel, Interrupt, Say
from .voice import Setting, details, draw, figures, play

SCRIPT: list[Action] = [
    Say(text="Hello! What can you do for me today?", caller=0),
    Say(text="Please tell me a story about a fox who wanted to fly.", caller=0),
    Backchannel(text="Mm-hmm.", caller=0, after_ms=1500),
    Interrupt(text="Wait a moment. How old was the fox?", caller=0, after_ms=4000),
    Say(text="Can you explain how a refrigerator keeps food cold?", caller=1),
    Interrupt(text="Hold on. I would rather know about bees and honey.", caller=1, after_ms=2500),
    Say(text="Why is the sky blue?", caller=0),
]
SPARE = [Say(text="Tell me a long story about a brave little mouse.", caller=0), Say(text="Tell me all about elephants.", caller=1)]

REQUIRED = ("missed interruptions", "false interruptions", "stale audio after a fence")


async def run(setting: Setting) -> Act:
    """Play it. Raises `CallFailed`, `CallersFailed`, `ServerFailed`."""
    played = await play(setting, SCRIPT, SPARE)
    rows = figures(played.summary)
    failures = missed(rows, REQUIRED)
    if played.summary.answered < played.summary.turns:
        failures.append(f"{played.summary.turns - played.summary.answered} of {played.summary.turns} turns were not answered.")
    draw(setting, played, "Antiphon, a call")
    return Act(rows, failures, details(played))
