"""What the voice scenarios share: callers, a server, one call played to its end, and everything that it leaves behind."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.text import Text

from ..clients.interface import ServerEvent
from ..clients.printer import Printer
from ..clients.realtime import connect
from . import ears, timeline
from .callers import Callers
from .conversation import SESSION, CallLog, Conversation
from .figures import Interruption, Summary, interruptions, percentile, summarise, turns
from .report import Figure, Report, at_most, none_of, plain
from .script import Action, Say, utterances
from .server import Server

MODEL = "antiphon-voice"
CONFIRM_WINDOW_MS = 768
"""The server's default confirm window: the interruption's aim counts from its end."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a scenario runs. `url`: a server that runs already, else one is started (with `config`, if given)."""

    out: Path
    console: Console
    url: str | None = None
    config: Path | None = None
    api_key: str | None = None
    model: str = MODEL

    def server(self) -> Server:
        """The server to run against."""
        if self.url is not None:
            return Server.at(self.url)
        options = ("--config", str(self.config)) if self.config is not None else ()
        return Server(log=self.out / "server.log", options=options)


@dataclass(slots=True)
class Played:
    """A call that was played, and what was made of it."""

    log: CallLog
    ears: dict[str, str]
    summary: Summary
    metrics: str


async def play(setting: Setting, script: Sequence[Action], spare: Sequence[Say], *, seed: int = 7) -> Played:
    """Play a script from nothing: callers' voices, server, call, recording and picture under `setting.out`."""
    console = setting.console
    setting.out.mkdir(parents=True, exist_ok=True)
    callers = Callers(setting.out.parent / "callers", tell=lambda line: console.print(Text(line, style="dim")))
    await callers.prepare([*utterances(script), *utterances(spare)])
    async with setting.server() as server:
        console.print(Text(f"Calling {server.url}", style="dim"))
        client = await connect(server.url, model=setting.model, api_key=setting.api_key)
        with Printer(console, names=("caller", "antiphon")) as printer:
            narrator = _Narrator(printer)
            conversation = Conversation(
                client,
                callers,
                seed=seed,
                spare=spare,
                on_event=narrator.take,
                inspect=lambda session_id: _inspect(server, session_id),
            )
            narrator.watch(conversation)
            log = await conversation.play(script, SESSION)
        cut = {stop.item_id: log.heard_audio(stop.item_id) for _, stop in log.cuts}
        heard = await ears.listen(server.url, cut) if cut else {}
        metrics = str(await server.get("/metrics"))
    summary = summarise(log, heard)
    log.save(setting.out / "call.wav")
    return Played(log, heard, summary, metrics)


def draw(setting: Setting, played: Played, title: str) -> None:
    """The picture of the call, where matplotlib is installed."""
    try:
        timeline.draw(played.log, setting.out / "timeline.png", title)
    except timeline.NoPlots as error:
        setting.console.print(Text(str(error), style="yellow"))


def figures(summary: Summary) -> list[Figure]:
    """The rows of a voice scenario's table."""
    share = summary.server.get("gateway_share", [])
    withheld_limit = 250 + CONFIRM_WINDOW_MS
    errors = [abs(error) for error in summary.history_errors]
    rows = [
        plain("turns", summary.turns, note=f"{summary.answered} answered, {summary.premature} answers begun too early and withdrawn"),
        at_most("WER", summary.wer * 100, 5, "%", digits=1),
        at_most("TTFP p50", percentile(summary.ttfp, 0.5), 700, "ms", note="last audible sample to first audio received"),
        plain("TTFP p95", percentile(summary.ttfp, 0.95), "ms"),
        none_of("missed interruptions", summary.missed, summary.interruptions),
        none_of("false interruptions", summary.false_interruptions, summary.hums_and_noises),
        plain("onset-to-withheld p50", percentile(summary.withheld, 0.5), "ms"),
        at_most("onset-to-withheld p95", percentile(summary.withheld, 0.95), withheld_limit, "ms", note="confirm window included"),
        none_of("stale audio after a fence", summary.stale_bytes, note="bytes"),
        at_most("history less heard, worst", max(errors, default=None), 1, "words", note=f"{len(errors)} cut answers, by ear"),
        at_most("gateway share p95", percentile(share, 0.95), 10, "ms", digits=1, note="of a turn: everything that is not a model"),
    ]
    if summary.wer_noisy is not None:
        rows.insert(2, plain("WER in noise", summary.wer_noisy * 100, "%", digits=1, note="pink noise, 10 dB"))
    for name in ("ttft", "tpot", "e2el", "ttfp"):
        values = summary.server.get(name, [])
        digits = 1 if name == "tpot" else 0
        rows.append(plain(f"{name.upper()} p50, server", percentile(values, 0.5), "ms", digits=digits))
    rows.append(plain("RTF p50, server", percentile(summary.server.get("rtf", []), 0.5), digits=3))
    rows.append(
        plain(
            "underruns of the player",
            summary.underruns,
            note=f"{summary.underrun_ms:.0f} ms of silence in {summary.spoken_minutes:.1f} min",
        )
    )
    return rows


def details(played: Played) -> dict[str, Any]:
    """Everything measured, turn by turn, for the JSON file."""
    base = played.log.started_at
    return {
        "turns": [
            {
                "at": round(turn.happening.onset - base, 3),
                "kind": turn.happening.kind,
                "voice": turn.happening.voice,
                "said": turn.happening.text,
                "written": turn.written,
                "snr_db": turn.happening.snr_db,
                "ttfp_ms": round(turn.ttfp * 1000) if turn.ttfp is not None else None,
                "answer": turn.answer.transcript if turn.answer is not None else None,
                "status": turn.answer.status if turn.answer is not None else None,
            }
            for turn in turns(played.log)
        ],
        "interruptions": [_interruption(row, base) for row in interruptions(played.log, played.ears)],
        "happenings": [
            {"at": round(item.onset - base, 3), "kind": item.kind, "text": item.text, "over": item.over} for item in played.log.happenings
        ],
        "server": dict(played.log.server_report),
    }


def _interruption(row: Interruption, base: float) -> dict[str, Any]:
    return {
        "at": round(row.happening.onset - base, 3),
        "cut": row.cut,
        "withheld_ms": round(row.withheld * 1000) if row.withheld is not None else None,
        "stale_bytes": row.stale_bytes,
        "heard_ms": round(row.heard_ms),
        "said": row.said,
        "kept": row.kept,
        "ear": row.ear,
        "history_error": row.history_error,
    }


def finish(setting: Setting, report: Report) -> bool:
    """Show and save a report; whether it passed."""
    report.show(setting.console)
    report.save(setting.out)
    setting.console.print(Text(f"Report, recording and timeline are in {setting.out}", style="dim"))
    return report.passed


class _Narrator:
    """Prints the conversation, and what the caller does besides speaking."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._conversation: Conversation | None = None
        self._told = 0

    def watch(self, conversation: Conversation) -> None:
        """Tell of this conversation's happenings."""
        self._conversation = conversation

    def take(self, event: ServerEvent) -> None:
        """Take an event of the call."""
        if self._conversation is not None:
            for happening in self._conversation.happenings[self._told :]:
                self._told += 1
                if happening.kind not in ("say", "interrupt"):
                    self._printer.console.print(Text(f"{'':>10}  [{happening.text or happening.kind}]", style="magenta"))
        self._printer.take(event)


async def _inspect(server: Server, session_id: str) -> dict[str, Any]:
    try:
        return dict(await server.get(f"/v1/realtime/sessions/{session_id}"))
    except httpx.HTTPStatusError as error:
        return {"error": str(error), "at": time.time()}
