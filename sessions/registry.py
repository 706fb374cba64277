"""Who may stay: admission up to a capacity, a short waiting room, eviction of the least recently active, idle time and lifetime.

Pure: every method takes `now` in seconds on one clock and returns decisions; whoever calls carries them out and tells the
sessions. A session is named in one admission (Admitted, AdmittedEvicting, Queued and then one of these two, Refused), and who
leaves without having asked for it in exactly one end (as a victim, Expired, WaitExpired). A busy session (speaking, or being
spoken to) is never evicted and never idle; only its lifetime can end it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .errors import DuplicateSession

Reason: TypeAlias = Literal["idle", "lifetime"]

MAX_RETRY_AFTER_S = 60


@dataclass(frozen=True, slots=True)
class Admitted:
    """The session may start: at once, or after it had been queued."""

    session_id: str


@dataclass(frozen=True, slots=True)
class AdmittedEvicting:
    """The session may start in the place of `victim_id`, which must be told and closed."""

    session_id: str
    victim_id: str


@dataclass(frozen=True, slots=True)
class Queued:
    """Every place is taken; the session waits as number `position` (1 is next)."""

    session_id: str
    position: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Every place and every chair in the waiting room is taken; try again after `retry_after_s` seconds."""

    session_id: str
    retry_after_s: int


@dataclass(frozen=True, slots=True)
class Warning:
    """The session will expire in `seconds_left` unless something happens (`idle`) or whatever happens (`lifetime`)."""

    session_id: str
    reason: Reason
    seconds_left: float


@dataclass(frozen=True, slots=True)
class Expired:
    """The session's time is over; it must be told and closed."""

    session_id: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class WaitExpired:
    """The session waited in vain."""

    session_id: str
    retry_after_s: int


Admission: TypeAlias = Admitted | AdmittedEvicting | Queued | Refused
Decision: TypeAlias = Admission | Warning | Expired | WaitExpired


@dataclass(frozen=True, slots=True)
class Counts:
    """For the metrics: sessions by state now, and how many were ever admitted, refused, evicted, expired."""

    active: int
    busy: int
    waiting: int
    admitted_total: int
    refused_total: int
    evicted_total: int
    expired_total: int
    wait_expired_total: int


@dataclass(slots=True)
class Entry:
    """An admitted session."""

    session_id: str
    admitted_at: float
    last_activity: float
    busy: bool = False
    warned_idle: bool = False
    warned_lifetime: bool = False


class Registry:
    """See the module's docstring. Times are seconds; `math.inf` switches a limit off.

    `capacity` sessions run at once and `waiting` more wait, each at most `wait_timeout`. A full registry evicts the session
    that has been inactive for longest, if it is not busy and has been inactive for `evict_after`. Sessions end after
    `idle_timeout` without activity or `max_lifetime` in all, warned `warn_before` their end (not at all if that is longer
    than the limit itself).
    """

    def __init__(
        self,
        capacity: int,
        waiting: int,
        wait_timeout: float,
        idle_timeout: float = math.inf,
        max_lifetime: float = math.inf,
        warn_before: float = 0.0,
        evict_after: float = 30.0,
    ) -> None:
        if capacity < 1 or waiting < 0:
            raise ValueError(f"a registry needs a capacity of at least 1 and a waiting room of at least 0, not {capacity} and {waiting}")
        self.capacity = capacity
        self.waiting = waiting
        self.wait_timeout = wait_timeout
        self.idle_timeout = idle_timeout
        self.max_lifetime = max_lifetime
        self.warn_before = warn_before
        self.evict_after = evict_after
        self._entries: dict[str, Entry] = {}
        self._queue: OrderedDict[str, float] = OrderedDict()  # id -> deadline; bounded by `waiting`, the newest is refused
        self._admitted = self._refused = self._evicted = self._expired = self._wait_expired = 0

    # ---- what sessions do ---------------------------------------------------------------------------------------------

    def admit(self, session_id: str, now: float) -> Admission:
        """A session asks to start. Raises `DuplicateSession` when its id is known."""
        if session_id in self._entries or session_id in self._queue:
            raise DuplicateSession(f"session '{session_id}' is already registered")
        # Whoever waits comes first, even if a place has become free and `due` has not been asked yet.
        admission = None if self._queue else self._place(session_id, now)
        if admission is not None:
            return admission
        if len(self._queue) < self.waiting:
            self._queue[session_id] = now + self.wait_timeout
            return Queued(session_id, len(self._queue))
        self._refused += 1
        return Refused(session_id, self._retry_after(now))

    def touch(self, session_id: str, now: float) -> None:
        """Something happened in the session. Unknown ids (just evicted) are ignored."""
        entry = self._entries.get(session_id)
        if entry is not None:
            entry.last_activity = max(entry.last_activity, now)
            entry.warned_idle = False

    def set_busy(self, session_id: str, busy: bool, now: float) -> None:
        """The session began or ceased to speak or to be spoken to; that is activity, too."""
        entry = self._entries.get(session_id)
        if entry is not None and entry.busy != busy:
            entry.busy = busy
            self.touch(session_id, now)

    def remove(self, session_id: str, now: float) -> list[Decision]:
        """The session is over (or gave up waiting): who of the waiting is admitted now? Unknown ids change nothing."""
        self._entries.pop(session_id, None)
        self._queue.pop(session_id, None)
        return self._settle(now)

    # ---- what time does -----------------------------------------------------------------------------------------------

    def due(self, now: float) -> list[Decision]:
        """What has become due until `now`: warnings, ends, and whoever gets in for it."""
        decisions: list[Decision] = []
        for entry in list(self._entries.values()):
            reason = self._over(entry, now)
            if reason is not None:
                del self._entries[entry.session_id]
                self._expired += 1
                decisions.append(Expired(entry.session_id, reason))
            else:
                decisions.extend(self._warnings(entry, now))
        return decisions + self._settle(now)

    def next_deadline(self) -> float | None:
        """When `due` should be asked next; None: nothing will become due by itself. Looks at every session: O(n)."""
        times = [time for entry in self._entries.values() for time in self._deadlines(entry)]
        if self._queue:
            times.append(next(iter(self._queue.values())))
        soonest = min(times, default=math.inf)
        return None if soonest == math.inf else soonest

    def counts(self) -> Counts:
        """A snapshot for the metrics."""
        return Counts(
            active=len(self._entries),
            busy=sum(entry.busy for entry in self._entries.values()),
            waiting=len(self._queue),
            admitted_total=self._admitted,
            refused_total=self._refused,
            evicted_total=self._evicted,
            expired_total=self._expired,
            wait_expired_total=self._wait_expired,
        )

    def entry(self, session_id: str) -> Entry | None:
        """What is known of an admitted session."""
        return self._entries.get(session_id)

    # ---- rules --------------------------------------------------------------------------------------------------------

    def _place(self, session_id: str, now: float) -> Admitted | AdmittedEvicting | None:
        """A free place, or that of the least recently active session that may be evicted."""
        admission: Admitted | AdmittedEvicting
        if len(self._entries) < self.capacity:
            admission = Admitted(session_id)
        else:
            idle = [entry for entry in self._entries.values() if not entry.busy]
            victim = min(idle, key=lambda entry: entry.last_activity, default=None)
            if victim is None or now < victim.last_activity + self.evict_after:
                return None
            del self._entries[victim.session_id]
            self._evicted += 1
            admission = AdmittedEvicting(session_id, victim.session_id)
        self._entries[session_id] = Entry(session_id, now, now)
        self._admitted += 1
        return admission

    def _settle(self, now: float) -> list[Decision]:
        """End the waits that are over and let in who can be let in, in order of arrival."""
        decisions: list[Decision] = []
        while self._queue:
            session_id, deadline = next(iter(self._queue.items()))
            if deadline <= now:
                self._wait_expired += 1
                decisions.append(WaitExpired(session_id, self._retry_after(now)))
            elif (admission := self._place(session_id, now)) is not None:
                decisions.append(admission)
            else:
                break
            del self._queue[session_id]
        return decisions

    def _idle_end(self, entry: Entry) -> float:
        return math.inf if entry.busy else entry.last_activity + self.idle_timeout

    def _lifetime_end(self, entry: Entry) -> float:
        return entry.admitted_at + self.max_lifetime

    def _over(self, entry: Entry, now: float) -> Reason | None:
        if self._lifetime_end(entry) <= now:
            return "lifetime"
        return "idle" if self._idle_end(entry) <= now else None

    def _warnings(self, entry: Entry, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        if self._lifetime_warning(entry) <= now:
            entry.warned_lifetime = True
            decisions.append(Warning(entry.session_id, "lifetime", self._lifetime_end(entry) - now))
        if self._idle_warning(entry) <= now:
            entry.warned_idle = True
            decisions.append(Warning(entry.session_id, "idle", self._idle_end(entry) - now))
        return decisions

    def _lifetime_warning(self, entry: Entry) -> float:
        silent = entry.warned_lifetime or not 0 < self.warn_before < self.max_lifetime
        return math.inf if silent else self._lifetime_end(entry) - self.warn_before

    def _idle_warning(self, entry: Entry) -> float:
        silent = entry.warned_idle or not 0 < self.warn_before < self.idle_timeout
        return math.inf if silent else self._idle_end(entry) - self.warn_before

    def _deadlines(self, entry: Entry) -> tuple[float, ...]:
        evictable = entry.last_activity + self.evict_after if self._queue and not entry.busy else math.inf
        return (
            self._lifetime_end(entry),
            self._idle_end(entry),
            self._lifetime_warning(entry),
            self._idle_warning(entry),
            evictable,
        )

    def _retry_after(self, now: float) -> int:
        """Whole seconds until a place may become free by these rules, between 1 and a minute."""
        frees = [
            min(self._lifetime_end(entry), self._idle_end(entry), math.inf if entry.busy else entry.last_activity + self.evict_after)
            for entry in self._entries.values()
        ]
        return max(1, min(MAX_RETRY_AFTER_S, math.ceil(min(min(frees, default=now) - now, MAX_RETRY_AFTER_S))))
