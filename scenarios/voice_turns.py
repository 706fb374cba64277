"""The acceptance test of a voice call: some twenty turns in several voices, interruptions, hums, noises, and every figure."""

from __future__ import annotations

from collections import Counter

from .report import Report, missed
from .script import Action, Backchannel, Interrupt, Noise, Say
from .sentences import sentences
from .voice import Setting, details, draw, figures, finish, play

CALLERS = 6
NOISY_DB = 10.0
INTERRUPTED = (0, 2, 3, 5, 6, 8, 10, 12)
"""Questions whose answers are interrupted …"""
AFTER_MS = (1500, 900, 2500, 1200, 3200, 700, 2000, 1000)
"""… after so much of them was heard."""
HUMMED = (1, 4, 7, 9)
NOISES = {1: "click", 4: "cough", 7: "steady", 11: "cough"}
IN_NOISE = (2, 5, 9, 11)

REQUIRED = (
    "WER",
    "missed interruptions",
    "false interruptions",
    "stale audio after a fence",
    "history less heard, worst",
)
LEAST = {"turns": 20, "interrupt": 8, "backchannel": 4}


def script() -> list[Action]:
    """The call."""
    interruptions, hums = iter(sentences("interruptions")), iter(sentences("backchannels"))
    actions: list[Action] = []
    for number, question in enumerate(sentences("questions")):
        caller = number % CALLERS
        actions.append(Say(text=question, caller=caller, snr_db=NOISY_DB if number in IN_NOISE else None))
        if number in HUMMED:
            actions.append(Backchannel(text=next(hums), caller=caller, after_ms=1000))
        if number in NOISES:
            actions.append(Noise(kind=NOISES[number], after_ms=800 if number not in HUMMED else 2500))
        if number in INTERRUPTED:
            actions.append(Interrupt(text=next(interruptions), caller=caller, after_ms=AFTER_MS[INTERRUPTED.index(number)]))
    return actions


async def run(setting: Setting) -> bool:
    """Play the call; whether every required figure met its aim."""
    spare = [Say(text=text, caller=number % CALLERS) for number, text in enumerate(sentences("spare"))]
    played = await play(setting, script(), spare)
    rows = figures(played.summary)
    failures = missed(rows, REQUIRED)
    summary, kinds = played.summary, Counter(happening.kind for happening in played.log.happenings if happening.over is not None)
    if summary.answered < summary.turns:
        failures.append(f"{summary.turns - summary.answered} of {summary.turns} turns were not answered.")
    for name, count in (("turns", summary.turns), ("interrupt", kinds["interrupt"]), ("backchannel", kinds["backchannel"])):
        if count < LEAST[name]:
            failures.append(f"There were {count} of at least {LEAST[name]} ({name}): answers were too short.")
    draw(setting, played, f"Antiphon, voice_turns: {summary.turns} turns, {summary.interruptions} interruptions")
    return finish(setting, Report("voice_turns", rows, failures, details(played)))
