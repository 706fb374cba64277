"""Shows a conversation as it goes: finished lines stay, on a terminal what is being said now moves below them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from .interface import ServerEvent
from .transcript import Line, Transcript


class Printer:
    """Feed it a call's events with `take`. Used as a context it also shows what is being said now (on a terminal only).

    An answer is printed once it is known how much of it was heard: when it was cut, or when the caller speaks next, or at the
    end. What was not heard is struck out.
    """

    def __init__(self, console: Console, names: tuple[str, str] = ("you", "antiphon")) -> None:
        self.console = console
        self.transcript = Transcript()
        self._names = {"caller": names[0], "assistant": names[1]}
        self._printed: set[str] = set()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._print(self._waiting())
        if self._live is not None:
            self._live.stop()

    def take(self, event: ServerEvent) -> None:
        """Take an event of the call."""
        if event.type == "error":
            self.console.print(Text(f"server: {event.data['error'].get('message')}", style="red"))
        line = self.transcript.take(event)
        if line is None:
            return
        if line.speaker == "caller" and line.complete:
            self._print([*(waiting for waiting in self._waiting() if waiting.complete), line])
        elif line.kept is not None:
            self._print([line])
        if self._live is not None:
            self._live.update(Group(*map(self.as_text, self._waiting())), refresh=True)

    def as_text(self, line: Line) -> Text:
        """A line of the conversation as it is shown."""
        style = "bold cyan" if line.speaker == "caller" else "bold green"
        text = Text().append(f"{self._names[line.speaker]:>10}  ", style=style).append(line.heard.strip())
        if line.unheard.strip():
            text.append(" ").append(line.unheard.strip(), style="dim strike")
        return text

    def _waiting(self) -> list[Line]:
        return [line for line in self.transcript.lines.values() if line.said and line.item_id not in self._printed]

    def _print(self, lines: list[Line]) -> None:
        for line in lines:
            if line.item_id not in self._printed and line.said.strip():
                self._printed.add(line.item_id)
                self.console.print(self.as_text(line))
