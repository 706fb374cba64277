"""Speech over the assistant: is it an interruption? A pure decision over numbers and words."""

from __future__ import annotations

import enum
import math
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
    """What is known of the speech over the assistant. `words` is None until the ASR engine has answered, `logprob` is how
    sure it is of them; `words_of_ms` is how
    much of the speech it had heard then; `asking` says that it is being asked now, `words_lost` that it failed;
    `since_confirm_ms` counts from the moment the speech had lasted the confirm window, or had ended."""

    span_ms: int
    silence_ms: int
    words: str | None = None
    logprob: float = 0.0
    words_of_ms: int = 0
    asking: bool = False
    words_lost: bool = False
    since_confirm_ms: int = 0


ASK_AHEAD_MS = 128
ASK_AGAIN_MS = 320
SHORTEST_OPENER_MS = 160


def decide(overlap: Overlap, policy: TurnTakingPolicy) -> Verdict:
    """Interrupt, ignore, or wait (and ask for the words).

    The rule: speech that opens like an interruption ("stop", "what about") is one after `opener_ms`, or when it ends; other
    speech is one once it has lasted the confirm window, unless its words are a backchannel; what lasts longer than
    `backchannel_ms` is one whatever its words.
    """
    if policy.confirm_ms <= 0 or overlap.span_ms >= policy.backchannel_ms:
        return Verdict.INTERRUPT
    ended = overlap.silence_ms >= policy.overlap_end_ms
    if not policy.overlap_words or overlap.words_lost:
        return _by_length(overlap, policy, ended)
    sure = math.exp(overlap.logprob) >= policy.opener_certainty
    if overlap.words is not None and sure and opens(overlap.words, policy) and (ended or overlap.span_ms >= policy.opener_ms):
        return Verdict.INTERRUPT
    if ended:
        return _ended(overlap, policy)
    return _going_on(overlap, policy)


def _by_length(overlap: Overlap, policy: TurnTakingPolicy, ended: bool) -> Verdict:
    """No words can be had."""
    if overlap.span_ms >= policy.confirm_ms:
        return Verdict.INTERRUPT
    return Verdict.IGNORE if ended else Verdict.WAIT


def _going_on(overlap: Overlap, policy: TurnTakingPolicy) -> Verdict:
    """The caller still speaks."""
    confirmed = overlap.span_ms >= policy.confirm_ms
    late = overlap.since_confirm_ms > policy.overlap_words_wait_ms
    # Words of a beginning decide only its opening: a hum is taken for a word until enough of it was heard.
    heard = overlap.words is not None and overlap.words_of_ms >= policy.confirm_ms - ASK_AHEAD_MS
    if confirmed and heard and overlap.words is not None and says_something(overlap.words, policy):
        return Verdict.INTERRUPT
    if confirmed and not heard and late:
        return Verdict.INTERRUPT
    if overlap.asking or overlap.span_ms < min(policy.opener_ms, policy.confirm_ms - ASK_AHEAD_MS):
        return Verdict.WAIT
    if overlap.words is None or (not heard and overlap.span_ms >= policy.confirm_ms - ASK_AHEAD_MS):
        return Verdict.ASK
    return Verdict.ASK if overlap.span_ms - overlap.words_of_ms >= ASK_AGAIN_MS else Verdict.WAIT


def _ended(overlap: Overlap, policy: TurnTakingPolicy) -> Verdict:
    """The speech is over, was shorter than `backchannel_ms` and, as far as it is known, did not open like an interruption."""
    if overlap.span_ms < SHORTEST_OPENER_MS:
        return Verdict.IGNORE
    confirmed = overlap.span_ms >= policy.confirm_ms
    if overlap.words is not None and overlap.words_of_ms >= overlap.span_ms:
        return Verdict.INTERRUPT if confirmed and says_something(overlap.words, policy) else Verdict.IGNORE
    if overlap.since_confirm_ms > policy.overlap_words_wait_ms + policy.overlap_end_ms:
        silent = overlap.words is not None and not says_something(overlap.words, policy)
        return Verdict.INTERRUPT if confirmed and not silent else Verdict.IGNORE
    return Verdict.WAIT if overlap.asking else Verdict.ASK


def normalise(text: str) -> list[str]:
    """Lower-case words, apostrophes and inner hyphens kept."""
    return re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text.lower())


def says_something(text: str, policy: TurnTakingPolicy) -> bool:
    """Whether the words are more than a backchannel."""
    known = set(policy.backchannels.split())
    return any(word not in known and not _is_hum(word) for word in normalise(text))


def opens(text: str, policy: TurnTakingPolicy) -> bool:
    """Whether the words begin like an interruption."""
    words = normalise(text)
    return bool(words) and words[0].replace("’", "'") in set(policy.openers.split())


def _is_hum(word: str) -> bool:
    """mm, hmm, uh-huh, mhm in any spelling."""
    return re.fullmatch(r"(?:m+|h+m+|m+h+m*|u+h*|a+h+|o+h+|h+u+h+|e+r*m*|u+m+)(?:-(?:m+|h+m+|u+h+|h+u+h+|h+))*", word) is not None
