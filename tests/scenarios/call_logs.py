"""Synthetic call logs for the tests of figures and pictures."""

from __future__ import annotations

from typing import Any

from antiphon.clients.interface import ServerEvent
from antiphon.clients.player import SimulatedPlayer
from antiphon.scenarios.conversation import CallLog, Happening

TENTH = bytes(4_800)


class LogBuilder:
    """Writes a call event by event. Times in seconds."""

    def __init__(self) -> None:
        self.events: list[ServerEvent] = []
        self.player = SimulatedPlayer()
        self.happenings: list[Happening] = []
        self.cuts: list[Any] = []
        self.kept: dict[str, str] = {}

    def event(self, at: float, kind: str, **data: Any) -> None:
        self.events.append(ServerEvent(at, kind, data))

    def say(self, onset: float, end: float, text: str, written: str, *, kind: str = "say", over: str | None = None, **more: Any) -> None:
        self.happenings.append(Happening(kind, text, "af_bella", onset, end, over=over, **more))
        item = f"user_{len(self.happenings)}"
        self.event(end + 0.3, "input_audio_buffer.committed", item_id=item)
        self.event(end + 0.4, "conversation.item.input_audio_transcription.completed", item_id=item, transcript=written)

    def sound(self, kind: str, onset: float, end: float, over: str) -> None:
        self.happenings.append(Happening(kind, "Mm-hmm." if kind == "backchannel" else "", "", onset, end, over=over))

    def answer(self, name: str, created: float, first: float, seconds: float, text: str, *, lead: float = 0.5, until: float = 1e9) -> None:
        """An answer sent `lead` ahead of real time; nothing of it is sent after `until`."""
        self.event(created, "response.created", response={"id": name, "status": "in_progress"})
        self.event(first, "response.output_audio_transcript.delta", response_id=name, item_id=f"item_{name}", delta=text)
        at = first
        for number in range(round(seconds * 10)):
            at = max(first, first + number / 10 - lead)
            if at > until:
                break
            data = {"response_id": name, "item_id": f"item_{name}"}
            self.events.append(ServerEvent(at, "response.output_audio.delta", data, TENTH))
            self.player.play(f"item_{name}", 0, TENTH, at)
        self.player.finish(f"item_{name}")
        self.done(name, min(at, until) + 0.01, "completed" if until > 1e8 else "cancelled")

    def done(self, name: str, at: float, status: str) -> None:
        self.event(at, "response.done", response={"id": name, "status": status})

    def cut(self, at: float, kept: str) -> None:
        for stopped in self.player.stop(at):
            self.cuts.append((at, stopped))
            self.kept[stopped.item_id] = kept
        self.event(at, "input_audio_buffer.speech_started", item_id="user_next")

    def log(self) -> CallLog:
        self.events.sort(key=lambda event: event.at)
        return CallLog(
            events=self.events,
            happenings=self.happenings,
            cuts=self.cuts,
            kept=self.kept,
            heard=self.player.segments(),
            started_at=0.0,
            caller_audio=bytes(48_000 * 20),
            underruns=self.player.underruns,
        )


def a_call() -> LogBuilder:
    """A question, a hum over its answer, an interruption after 3 s of it, the second answer."""
    call = LogBuilder()
    call.say(1.0, 3.0, "Tell me a story about a fox.", "Tell me a story about a box.")
    call.answer("one", 3.4, 3.6, 8.0, "Once upon a time, there was a fox who wanted to fly.", until=7.2)
    call.sound("backchannel", 5.0, 5.4, "item_one")
    call.say(6.6, 8.0, "Wait, how old was he?", "Wait, how old was he?", kind="interrupt", over="item_one")
    call.cut(7.25, "Once upon a time, there was")
    call.answer("two", 8.4, 8.5, 2.0, "He was three years old.")
    return call
