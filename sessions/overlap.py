"""Speech over the assistant: is it an interruption? A pure decision over numbers and words."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from .policy import TurnTakingPolicy


class Verdict(enum.Enum):
    """What to do about the overlapping speech now."""

    WAIT = "wait"
    ASK = "ask"
    """Wait, and have the words so far recognised."""
    INTERRUPT = "interrupt"
    IGNORE = "ignore"
    """It was a backchannel, a cough or a noise: forget it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """What is known of the speech over the assistant. `words` is None until the ASR engine has answered; `words_of_ms` is how
    much of the speech it had heard then; `asking` says that it is being asked now, `words_lost` that it failed;
    `since_confirm_ms` counts from the moment the speech had lasted the confirm window, or had ended."""

    span_ms: int
    silence_ms: int
    words: str | None = None
    words_of_ms: int = 0
    asking: bool = False
    words_lost: bool = False
    since_confirm_ms: int = 0


ASK_AHEAD_MS = 128
ASK_AGAIN_MS = 320
SHORTEST_COMMAND_MS = 160


def decide(overlap: Overlap, policy: TurnTakingPolicy) -> Verdict:
    """Interrupt, ignore, or wait (and ask for the words).

    The rule: nothing shorter than the confirm window interrupts unless it is a known command ("stop", "wait"); what lasts
    longer interrupts unless its words are a backchannel; what lasts longer than `backchannel_ms` interrupts anyway.
    """
    if policy.confirm_ms <= 0 or overlap.span_ms >= policy.backchannel_ms:
        return Verdict.INTERRUPT
    ended = overlap.silence_ms >= policy.overlap_end_ms
    if not policy.overlap_words or overlap.words_lost:
        if overlap.span_ms >= policy.confirm_ms:
            return Verdict.INTERRUPT
        return Verdict.IGNORE if ended else Verdict.WAIT
    if ended:
        return _ended(overlap, policy)
    if overlap.span_ms < policy.confirm_ms - ASK_AHEAD_MS:
        return Verdict.WAIT
    if overlap.words is None:
        if overlap.span_ms >= policy.confirm_ms and overlap.since_confirm_ms > policy.overlap_words_wait_ms:
            return Verdict.INTERRUPT
        return Verdict.WAIT if overlap.asking else Verdict.ASK
    if overlap.span_ms >= policy.confirm_ms and says_something(overlap.words, policy):
        return Verdict.INTERRUPT
    if not overlap.asking and overlap.span_ms - overlap.words_of_ms >= ASK_AGAIN_MS:
        return Verdict.ASK
    return Verdict.WAIT


def _ended(overlap: Overlap, policy: TurnTakingPolicy) -> Verdict:
    """The speech is over and was shorter than `backchannel_ms`."""
    if overlap.span_ms < SHORTEST_COMMAND_MS:
        return Verdict.IGNORE
    if overlap.words is None or overlap.words_of_ms < overlap.span_ms:
        if overlap.since_confirm_ms > policy.overlap_words_wait_ms + policy.overlap_end_ms:
            heard_enough = overlap.words is not None and overlap.span_ms >= policy.confirm_ms and says_something(overlap.words, policy)
            return Verdict.INTERRUPT if heard_enough else Verdict.IGNORE
        return Verdict.WAIT if overlap.asking else Verdict.ASK
    if overlap.span_ms >= policy.confirm_ms:
        return Verdict.INTERRUPT if says_something(overlap.words, policy) else Verdict.IGNORE
    return Verdict.INTERRUPT if is_command(overlap.words, policy) else Verdict.IGNORE


def normalise(text: str) -> list[str]:
    """Lower-case words, apostrophes and inner hyphens kept."""
    return re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text.lower())


def says_something(text: str, policy: TurnTakingPolicy) -> bool:
    """Whether the words are more than a backchannel."""
    known = set(policy.backchannels.split())
    return any(word not in known and not _is_hum(word) for word in normalise(text))


def is_command(text: str, policy: TurnTakingPolicy) -> bool:
    """Whether a short utterance begins with a word that asks the assistant to stop."""
    words = normalise(text)
    return bool(words) and words[0] in set(policy.commands.split())


def _is_hum(word: str) -> bool:
    """mm, hmm, uh-huh, mhm in any spelling."""
    return re.fullmatch(r"(?:m+|h+m+|m+h+m*|u+h*|a+h+|o+h+|h+u+h+|e+r*m*|u+m+)(?:-(?:m+|h+m+|u+h+|h+u+h+|h+))*", word) is not None
