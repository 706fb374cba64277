"""Everything that decided what was executed, in a file that replays: the controller's inputs, and each step's action.

A file is a row of frames: 4 bytes of length (big endian), then MessagePack with numpy arrays. The first frame is the header; a last
frame that is cut off (the power went) is not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ...codecs import msgpack_numpy
from ...codecs.msgpack_numpy import BadMessage
from .controller import Choice, Controller
from .errors import BadLog
from .plan import Action
from .policy import PolicyInfo
from .settings import ControlSettings
from .watchdog import Mode

FORMAT = "antiphon-episode-log/1"
DEFAULT_BYTES = 256 << 20
_LENGTH = struct.Struct(">I")


class EpisodeLog:
    """Writes a log. At most `max_bytes`; policy: when it is full, nothing more is written, `left_out` counts, and what is there still
    replays. `observations`: keep them as well (they do not matter for the replay)."""

    def __init__(self, path: Path, *, max_bytes: int = DEFAULT_BYTES, observations: bool = False) -> None:
        self.path = path
        self.observations = observations
        self.left_out = 0
        self._left = max_bytes
        self._begun = False
        self._file = path.open("wb")

    def begin(self, settings: ControlSettings, policy: PolicyInfo) -> None:
        """Write the header, once."""
        if not self._begun:
            self._begun = True
            self.write({"format": FORMAT, "settings": settings.record(), "policy": policy.record()})

    def write(self, record: dict[str, Any]) -> None:
        """Append a record."""
        frame = msgpack_numpy.pack(record)
        if self.left_out or len(frame) + _LENGTH.size > self._left:
            self.left_out += 1
            return
        self._left -= len(frame) + _LENGTH.size
        self._file.write(_LENGTH.pack(len(frame)) + frame)
        if record.get("kind") == "begin":
            self._file.flush()

    def close(self) -> None:
        """The end."""
        self._file.close()

    def __enter__(self) -> EpisodeLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@dataclass(slots=True, kw_only=True)
class Replay:
    """What a log gives when its inputs are put through the controller once more: each step's mode and action, and the steps (by index) at
    which the log says otherwise."""

    modes: list[Mode] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    differences: list[int] = field(default_factory=list)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log, the header first. Raises `BadLog`."""
    data = path.read_bytes()
    records: list[dict[str, Any]] = []
    at = 0
    while at + _LENGTH.size <= len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + size > len(data):
            break
        try:
            record = msgpack_numpy.unpack(data[at : at + size])
        except BadMessage as error:
            raise BadLog(f"{path} is no episode log: {error}") from error
        if not isinstance(record, dict):
            raise BadLog(f"{path} is no episode log: a record is a {type(record).__name__}.")
        records.append(record)
        at += size
    if not records or records[0].get("format") != FORMAT:
        raise BadLog(f"{path} is no episode log of the format {FORMAT!r}.")
    return records


def replay(records: Iterable[dict[str, Any]]) -> Replay:
    """Put a log's inputs through a controller. Actions of the policy are made anew from the chunks; those of holding and stopping are the
    owner's, and taken from the log. Raises `BadLog`."""
    found = Replay()
    controller: Controller | None = None
    try:
        for record in records:
            if controller is None:
                controller = Controller(ControlSettings.of(record["settings"]), PolicyInfo.of_record(record["policy"]))
            elif (choice := _apply(controller, record)) is not None:
                logged = np.asarray(record["action"], np.float32)
                action = logged if choice.action is None else choice.action
                if choice.mode != record["mode"] or not np.array_equal(action, logged):
                    found.differences.append(len(found.actions))
                found.modes.append(choice.mode)
                found.actions.append(action)
    except (KeyError, TypeError, ValueError) as error:
        raise BadLog(f"A record of the log is not as it should be: {error!r}") from error
    return found


def _apply(controller: Controller, record: dict[str, Any]) -> Choice | None:
    now = record["now"]
    match record["kind"]:
        case "begin":
            controller.begin(now)
        case "online":
            controller.online(now)
        case "offline":
            controller.offline(now)
        case "ask":
            controller.ask(now)
        case "take":
            controller.take(record["sequence"], record["actions"], now)
        case "fail":
            controller.fail(record["sequence"], now, record["reason"])
        case "step":
            return controller.step(now)
        case "missed" | "end":
            pass  # for the reader: steps that were never begun; the last stop
        case kind:
            raise ValueError(f"there is no record of the kind {kind!r}")
    return None
