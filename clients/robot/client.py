"""A robot under a policy's control: fixed rate, chunks asked for in the background, hold and stop when there are none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ...codecs import msgpack_numpy
from .clock import Clock, MonotonicClock
from .connection import PolicyConnection, open_connection
from .controller import Ask, Controller, Verdict
from .episode_log import EpisodeLog
from .errors import NoReply, PolicyChanged, PolicyUnreachable, RobotError
from .link import Backoff, Link, Outgoing
from .plan import Action
from .policy import PolicyInfo
from .replies import EchoGuard, read_reply
from .settings import ControlSettings
from .statistics import Statistics, Tally
from .watchdog import Mode

Observation: TypeAlias = Mapping[str, Any]
Fallback: TypeAlias = npt.ArrayLike | Callable[[Observation], npt.ArrayLike]
"""An action `[A]`, or what makes one from the latest observation (empty: there is none yet)."""

Outcome: TypeAlias = Literal["success", "failure"]
"""How an episode went, for the server's books."""
OUTCOMES: tuple[Outcome, ...] = ("success", "failure")

MAX_DEADLINE_MS = 600_000.0
"""What a server of ours takes at most."""
LAST_WORD_S = 1.0
"""How long the word of an episode's outcome may take to leave, at the end of a run."""


class Robot(Protocol):
    """What the control loop drives. Both methods return at once: they run in the loop."""

    def observe(self) -> Observation:
        """The latest observation, as the policy takes it, its prompt included."""

    def act(self, action: Action) -> None:
        """Execute an action `[A]` float32 for one control step."""


class RobotClient:
    """Drives a robot by a policy behind openpi's protocol.

    `hold` is executed while there is no action, `stop` after `hold_limit_s` of that (until `new_episode`) and at the end of `run`, however
    it ends, once there was a connection. `url`: see `connection.policy_url`. `session_id`, `anew`: a session with a name, on a server that
    has them. The client may run again, with a new episode. All on one event loop.
    """

    def __init__(
        self,
        url: str,
        robot: Robot,
        *,
        hold: Fallback,
        stop: Fallback,
        settings: ControlSettings | None = None,
        api_key: str | None = None,
        session_id: str | None = None,
        anew: bool = False,
        log: EpisodeLog | None = None,
        backoff: Backoff | None = None,
        clock: Clock | None = None,
        random_: random.Random | None = None,
    ) -> None:
        self.url = url
        self.settings = settings or ControlSettings()
        self.controller: Controller | None = None
        """None until the policy is known."""
        self.policy: PolicyInfo | None = None
        self._robot = robot
        self._fallbacks = {Mode.HOLD: hold, Mode.STOP: stop}
        self._api_key = api_key
        self._session_id = session_id
        self._anew = anew
        self._log = log
        self._clock = clock or MonotonicClock()
        self._random = random_ or random.Random()
        self._backoff = backoff or Backoff()
        self._tally = Tally(self.settings.jump_dims)
        self._guard = EchoGuard()
        self._link: Link | None = None
        self._opened = asyncio.Event()
        self._fresh = True
        self._observation: Observation = {}
        self._asked_at = 0.0
        self._run_name = f"{self._random.getrandbits(32):08x}"
        self._episodes = 0
        self._outcome: Outcome | None = None
        self._asked = False
        self.episode: str | int = ""

    # ---- what the owner uses ----------------------------------------------------------------------------------------

    @property
    def mode(self) -> Mode:
        """What the last control step executed."""
        return Mode.HOLD if self.controller is None else self.controller.mode

    def statistics(self) -> Statistics:
        """The figures so far."""
        return self._tally.snapshot()

    def new_episode(self, episode: str | int | None = None, *, outcome: Outcome | None = None) -> None:
        """Begin anew: no chunk from before is executed any more, a stop is over. Without a name the episode gets one of its own.

        `outcome`: how the episode went that ends here. A server that takes it is told with the new one's first request; if none of the
        ended one's requests came through to it, or the connection goes in between, it may not be. Raises `ValueError`.
        """
        self._end_with(outcome)
        self._episodes += 1
        self.episode = f"{self._run_name}-{self._episodes}" if episode is None else episode
        self._tally.episode()
        if self.controller is None:
            return
        now = self._clock.now()
        self.controller.begin(now)
        self._note("begin", now, episode=self.episode, outcome=outcome)
        if self._link is None:
            return
        if self._known_policy().marks:
            self._link.abandon()
        elif self._link.renew():
            self._offline(now)

    def ended(self, outcome: Outcome) -> None:
        """How the last episode of a run went: a server that takes it is told when the run ends, with a reset. Raises `ValueError`."""
        self._end_with(outcome)

    async def run(self, *, steps: int | None = None, until: Callable[[], bool] | None = None) -> Statistics:
        """Connect and control, for so many steps, or until `until()` (asked after each step) says so, or until cancelled.

        Raises `PolicyUnreachable` if there is no first connection, `Refused` or `PolicyChanged` when trying again is no remedy,
        `ValueError` for what the owner gave that cannot be used, and what the robot's own methods raise.
        """
        if self._link is not None:
            raise RuntimeError("the client runs already")
        self._link = Link(self._open, self, self._backoff, self._random)
        self._opened.clear()
        task = asyncio.create_task(self._link.run(), name="robot link")
        try:
            await self._first_connection(task)
            self.new_episode()
            await self._control(task, steps, until)
        finally:
            try:
                self._last_stop()
                await self._last_word(self._link)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                self._link = None
        return self.statistics()

    # ---- the loop ---------------------------------------------------------------------------------------------------

    async def _first_connection(self, link: asyncio.Task[None]) -> None:
        opened = asyncio.create_task(self._opened.wait(), name="robot: first connection")
        try:
            await asyncio.wait({opened, link}, timeout=self.settings.connect_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if link.done():
            link.result()
        if not self._opened.is_set():
            waited = f"The server at {self.url} did not answer within {self.settings.connect_timeout_s:g} s."
            raise PolicyUnreachable(self._tally.last_error or waited)

    async def _control(self, link: asyncio.Task[None], steps: int | None, until: Callable[[], bool] | None) -> None:
        """A step each period, on absolute times. One that is late by whole periods leaves those out, counted and noted: nothing is made up
        for in a hurry."""
        controller = self._known()
        period = 1 / controller.rate
        due = self._clock.now()
        taken = 0
        while steps is None or taken < steps:
            await self._clock.sleep_until(due)
            if link.done():
                link.result()
            now = self._clock.now()
            lateness = max(0.0, now - due)
            missed = int(lateness / period)
            if missed:
                due += missed * period
                self._tally.counts["missed"] += missed
                self._note("missed", now, steps=missed)
            self._step(controller, now, lateness)
            taken += 1
            due += period
            if until is not None and until():
                return

    def _step(self, controller: Controller, now: float, lateness: float) -> None:
        """Observe, act, and only then what may take longer: ask."""
        observation = self._robot.observe()
        if not isinstance(observation, Mapping):
            raise ValueError(f"observe() must return a mapping of keys to values, not a {type(observation).__name__}.")
        self._observation = observation
        ask = controller.ask(now)
        if ask is not None:
            kept = {"observation": dict(self._observation)} if self._log is not None and self._log.observations else {}
            self._note("ask", now, sequence=ask.ticket.sequence, prefix=ask.ticket.prefix, **kept)
        choice = controller.step(now)
        action = self._fallback(choice.mode) if choice.action is None else choice.action
        self._note("step", now, mode=choice.mode.value, action=action, sequence=choice.sequence)
        self._robot.act(action)
        if ask is not None and ask.ticket.epoch == controller.epoch:  # else the robot has begun another episode in between
            self._send(ask, now)
        self._tally.step(choice, action, lateness, self._clock.now() - now)

    def _send(self, ask: Ask, now: float) -> None:
        ticket = ask.ticket
        timeout = self.settings.first_timeout_s if self._fresh else self.settings.reply_timeout_s
        message = dict(self._observation)
        if self._known_policy().marks:
            message |= {
                "sequence": ticket.sequence,
                "observed_at": now,
                "deadline_ms": min(timeout * 1000, MAX_DEADLINE_MS),
                "episode": self.episode,
            }
            if ask.prefix is not None:
                message["prefix"] = ask.prefix
            if self._outcome is not None:
                message["outcome"], self._outcome = self._outcome, None
        try:
            frame = msgpack_numpy.pack(message)
        except (TypeError, ValueError) as error:
            raise ValueError(f"The robot's observation cannot be sent: {error}.") from error
        self._asked = True
        self._asked_at = now
        self._tally.counts["requests"] += 1
        if self._link is not None:
            self._link.send(Outgoing(sequence=ticket.sequence, frame=frame, timeout_s=timeout))

    def _fallback(self, mode: Mode) -> Action:
        """The owner's action to hold or to stop. Raises `ValueError`."""
        given = self._fallbacks[mode]
        action = np.array(given(self._observation) if callable(given) else given, np.float32)
        dim = self._known_policy().action_dim
        if action.ndim != 1 or (dim is not None and len(action) != dim) or not np.isfinite(action).all():
            wanted = f"{dim} finite numbers" if dim is not None else "a row of finite numbers"
            raise ValueError(f"The action to {mode.value} must be {wanted}, not {action.tolist()}.")
        return action

    def _last_stop(self) -> None:
        """However the run ends, the robot is left stopped."""
        if self.controller is None:
            return
        action = self._fallback(Mode.STOP)
        self._note("end", self._clock.now(), action=action, outcome=self._outcome)
        self._robot.act(action)

    async def _last_word(self, link: Link) -> None:
        """Tell the outcome of the run's last episode."""
        outcome, self._outcome = self._outcome, None
        if outcome is not None and self.policy is not None and self.policy.marks:
            await link.last_word(msgpack_numpy.pack({"endpoint": "reset", "outcome": outcome}), LAST_WORD_S)
        self._asked = False

    # ---- what the link says (see `link.Listener`) -------------------------------------------------------------------

    async def _open(self) -> PolicyConnection:
        timeout = self.settings.connect_timeout_s
        return await open_connection(self.url, api_key=self._api_key, session_id=self._session_id, anew=self._anew, timeout=timeout)

    def opened(self, policy: PolicyInfo) -> None:
        """There is a connection. Raises `PolicyChanged`, `ValueError`."""
        policy = self._with_dimension(policy)
        if self.policy is not None and policy != self.policy:
            raise PolicyChanged(f"The server at {self.url} has another policy now: {policy}; it was {self.policy}.")
        if self.controller is None:
            self.policy = policy
            for mode, fallback in self._fallbacks.items():
                if not callable(fallback):
                    self._fallback(mode)  # better found out now than in need
            for name in ("low", "high"):
                bounds = getattr(self.settings, name)
                if bounds is not None and policy.action_dim not in (None, len(bounds)):
                    raise ValueError(f"ControlSettings.{name} must have the action's {policy.action_dim} numbers, not {len(bounds)}.")
            self.controller = Controller(self.settings, policy)
            if self._log is not None:
                self._log.begin(self.settings, policy)
        now = self._clock.now()
        self._anew, self._fresh, self._guard = False, True, EchoGuard()
        if self._session_id is None:  # its session went with the last connection, and what was asked in it
            self._outcome, self._asked = None, False
        self._tally.counts["connections"] += 1
        self.controller.online(now)
        self._note("online", now)
        self._opened.set()

    def replied(self, sequence: int, frame: bytes) -> bool:
        """A reply came; is it a chunk that can be executed?"""
        now = self._clock.now()
        controller = self._known()
        reply = read_reply(frame)
        fits = self._guard.check(reply, sequence, self.episode)
        self._fresh = False
        if fits and reply.actions is not None:
            verdict = controller.take(sequence, reply.actions, now)
            self._note("take", now, sequence=sequence, actions=reply.actions, reason=verdict.reason)
        else:
            verdict = Verdict((reply.status or "no_actions") if fits else "stale")
            controller.fail(sequence, now, verdict.reason)
            self._tally.last_error = reply.message or self._tally.last_error
            self._note("fail", now, sequence=sequence, reason=verdict.reason, message=reply.message)
        self._tally.reply(verdict, now - self._asked_at)
        return not verdict.reason

    def lost(self, error: PolicyUnreachable | None) -> None:
        """There is no connection."""
        if error is not None:
            self._tally.last_error = str(error)
            self._tally.counts["timeouts"] += isinstance(error, NoReply)
        if self.controller is not None and self.controller.connected:
            self._offline(self._clock.now(), str(error or ""))

    def _offline(self, now: float, why: str = "") -> None:
        self._known().offline(now)
        self._note("offline", now, why=why)

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _end_with(self, outcome: Outcome | None) -> None:
        if outcome is not None and outcome not in OUTCOMES:
            raise ValueError(f"an episode's outcome is {' or '.join(map(repr, OUTCOMES))}, not {outcome!r}")
        # Of an episode in which nothing was asked a server knows nothing: its outcome would be taken for the one's before it.
        if self._asked:
            self._outcome = outcome
        self._asked = False

    def _with_dimension(self, policy: PolicyInfo) -> PolicyInfo:
        """Where the server does not say how many numbers an action has, the owner's own actions do."""
        said = [np.shape(fallback) for fallback in self._fallbacks.values() if not callable(fallback)]
        if policy.action_dim is not None or not said or len(said[0]) != 1:
            return policy
        return replace(policy, action_dim=said[0][0])

    def _known(self) -> Controller:
        if self.controller is None:
            raise RobotError("The policy is not known yet: there was no connection.")
        return self.controller

    def _known_policy(self) -> PolicyInfo:
        if self.policy is None:
            raise RobotError("The policy is not known yet: there was no connection.")
        return self.policy

    def _note(self, kind: str, now: float, **more: Any) -> None:
        if self._log is not None:
            self._log.write({"kind": kind, "now": now, **more})
