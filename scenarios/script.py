"""What happens in a scripted call: the caller's actions, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Wait until the assistant is silent, then say something and wait for the answer to begin. `snr_db`: in pink noise."""

    text: str
    caller: int
    snr_db: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """Talk over the assistant once `after_ms` of its answer have been heard, and wait for the new answer to begin."""

    text: str
    caller: int
    after_ms: int = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class Backchannel:
    """Hum along once `after_ms` of the answer have been heard: the assistant should go on."""

    text: str
    caller: int
    after_ms: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Something sounds at the caller's end once `after_ms` of the answer have been heard: the assistant should go on.

    `kind`: click, cough or steady (3 s of pink noise).
    """

    kind: str
    after_ms: int = 800


Action: TypeAlias = Say | Interrupt | Backchannel | Noise


def utterances(script: Sequence[Action]) -> list[tuple[int, str]]:
    """Everything that callers say in a script, as (caller, text)."""
    return [(action.caller, action.text) for action in script if not isinstance(action, Noise)]
