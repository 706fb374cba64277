"""Has the caller finished? Pure decisions over the silence so far and the turn-end engine's opinion."""

from __future__ import annotations

_TIMEOUT_MS = {"low": 8_000, "medium": 4_000, "auto": 4_000, "high": 2_000}
_THRESHOLD = {"low": 0.7, "medium": 0.5, "auto": 0.5, "high": 0.35}
_FREE_MS = 192


def silence_timeout_ms(eagerness: str) -> int:
    """The silence that ends a turn whatever the engine thinks (the reference's low 8 s, medium and auto 4 s, high 2 s)."""
    return _TIMEOUT_MS[eagerness]


def has_ended(silence_ms: int, probability: float | None, eagerness: str) -> bool:
    """Whether a pause of `silence_ms` ends the turn, given the engine's `probability` that it does (None: unknown or failed).

    The bar starts at the eagerness's threshold and falls in a straight line to zero at the silence time-out: the longer the
    pause, the weaker the evidence that is needed.
    """
    timeout = silence_timeout_ms(eagerness)
    if silence_ms >= timeout:
        return True
    if probability is None:
        return False
    bar = _THRESHOLD[eagerness] * (1 - max(0, silence_ms - _FREE_MS) / timeout)
    return probability >= bar
