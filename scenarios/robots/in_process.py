"""The same policy in closed loop without a server, by `antiphon train policy --evaluate`, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..server import ServerFailed
from .loop_outcome import Outcome

LIMIT_S = 3600.0


async def compare(folder: Path, policy: str, outcomes: Sequence[Outcome], episodes: int) -> None:
    """Measure, and note in each outcome what the evaluation has for it, with the delay in control steps that the robots met. Raises
    `ServerFailed`."""
    delays = sorted({outcome.delay for outcome in outcomes if outcome.trial.group == "delays"})
    command = [sys.executable, "-m", "antiphon", "train", "policy", "--task", policy, "--evaluate", "--episodes", str(episodes)]
    command += ["--out", str(folder), *(part for delay in delays for part in ("--delay", str(delay)))]
    await _evaluate(command)
    found = _read(folder / "report" / "report.json")
    for outcome in outcomes:
        outcome.in_process = found.get(_name(outcome))


async def _evaluate(command: Sequence[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            said, _ = await process.communicate()
    except TimeoutError as error:
        raise ServerFailed(f"The evaluation in process did not end within {LIMIT_S:g} s.") from error
    finally:
        with suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
                await process.wait()
    if process.returncode:
        raise ServerFailed("\n".join(["The evaluation in process failed.", *said.decode(errors="replace").splitlines()[-12:]]))


def _read(report: Path) -> dict[str, float]:
    """The success of each trial, by its name."""
    return {trial["name"]: trial["succeeded"] / max(1, trial["episodes"]) for trial in json.loads(report.read_text())["trials"]}


def _name(outcome: Outcome) -> str:
    """As the evaluation calls it."""
    trial = outcome.trial
    return f"delay of {outcome.delay} steps: {trial.handover}" if trial.group == "delays" else trial.name
