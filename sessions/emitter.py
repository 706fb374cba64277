"""Collects what a session says while it handles one event."""

from __future__ import annotations

from typing import Any

from .commands import Measure, Outbound, Send
from .errors import ClientEventError
from .ids import Ids
from .server_events import ErrorBody, ErrorEvent


class Emitter:
    """Wire events and commands in the order in which they must take effect."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self._out: list[Outbound] = []

    def send(self, event: Any, /, *, fence: int | None = None, owner: str | None = None, samples: int = 0, **fields: Any) -> None:
        """Send an event of the class `event`; `fence` is the epoch whose end withholds it, `owner` its response."""
        self._out.append(Send(event(event_id=self.ids.make("event"), **fields), fence, owner, samples))

    def command(self, command: Outbound) -> None:
        self._out.append(command)

    def measure(self, name: str, value: float = 1.0, **labels: str) -> None:
        self._out.append(Measure(name=name, value=value, labels=labels))

    def error(self, error: ClientEventError) -> None:
        """Tell the client about its mistake."""
        self.fault(error.code, error.message, param=error.param, client_event=error.event_id, kind=error.type)

    def fault(
        self, code: str, message: str, *, param: str | None = None, client_event: str | None = None, kind: str = "server_error"
    ) -> None:
        """An `error` event."""
        body = ErrorBody(type=kind, code=code, message=message, param=param, event_id=client_event)
        self.send(ErrorEvent, error=body)

    def drain(self) -> list[Outbound]:
        """Everything said since the last call."""
        out, self._out = self._out, []
        return out
