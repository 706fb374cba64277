"""openpi's messages: what a robot asks, read; replies and metadata, written. Pure: dictionaries in, dictionaries out.

A request is an observation and, beside its arrays, any of these optional fields (a stock client sends none of them):

    endpoint      "infer" (default) or "reset"
    session_id    the session that the request belongs to
    sequence      a number that grows with each observation; then whatever goes wrong is answered by a reply, not by an error
    observed_at   when the observation was made, on the robot's own clock; echoed
    deadline_ms   so long after its arrival here a chunk is of no use any more
    episode       text or number; another one than before begins a new episode
    outcome       "success" or "failure": how the episode went that ends here; with a reset, or what begins another episode
    prefix        [d, A]: the actions that will be executed meanwhile; the chunk continues them
    seed, steps   of the policy's noise, and of its integration
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engines.interface import ActionCapabilities
from .errors import BadRequest

PROTOCOL = "openpi"
ENDPOINTS = ("infer", "reset")
OUTCOMES = ("success", "failure")
"""How an episode went, as its robot tells it."""
MAX_DEADLINE_MS = 600_000.0
MAX_SEED = 2**63 - 1
MAX_NAME = 128
RESET_DONE = "reset successful"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The optional fields of a request that say which observation this is, and until when it matters."""

    sequence: int | None = None
    observed_at: float | None = None
    deadline_ms: float | None = None
    episode: str | int | None = None
    outcome: str | None = None
    """One of `OUTCOMES`: of the episode that ends with this request, not of `episode`."""

    def echo(self) -> dict[str, Any]:
        """Those that were given."""
        fields = {
            "sequence": self.sequence,
            "observed_at": self.observed_at,
            "deadline_ms": self.deadline_ms,
            "episode": self.episode,
            "outcome": self.outcome,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, taken apart: its marks, its other optional fields, and the rest, which is the observation."""

    marks: Marks
    endpoint: str = "infer"
    session_id: str | None = None
    prefix: npt.NDArray[Any] | None = None
    seed: int | None = None
    steps: int | None = None
    fields: dict[Any, Any]


def marks_of(message: Any) -> Marks:
    """The marks of a message as far as they can be read, so that even a bad request can be answered by its number."""
    sequence = _plain(message.get("sequence")) if isinstance(message, dict) else None
    return Marks(sequence=sequence) if isinstance(sequence, int) and not isinstance(sequence, bool) else Marks()


def read_request(message: Any) -> Asked:
    """Take a request apart. Raises `BadRequest` that names the field."""
    if not isinstance(message, dict):
        raise BadRequest("invalid_request", f"A request must be a map (a dict), not a {_kind(message)}.")
    fields = dict(message)
    endpoint = _plain(fields.pop("endpoint", None))
    endpoint = ENDPOINTS[0] if endpoint is None else endpoint
    if not (isinstance(endpoint, str) and endpoint in ENDPOINTS):
        raise BadRequest("unknown_endpoint", f"There is no endpoint {str(endpoint)[:40]!r}; there are: {', '.join(ENDPOINTS)}.")
    session_id = fields.pop("session_id", None)
    if session_id is not None:
        check_session_id(session_id)
    episode = _plain(fields.pop("episode", None))
    if episode is not None and (isinstance(episode, bool) or not isinstance(episode, str | int) or len(str(episode)) > MAX_NAME):
        raise BadRequest("invalid_episode", f"episode must be a number or a text of at most {MAX_NAME} characters.")
    outcome = _plain(fields.pop("outcome", None))
    if outcome is not None and not (isinstance(outcome, str) and outcome in OUTCOMES):
        raise BadRequest("invalid_outcome", f"outcome must be {' or '.join(map(repr, OUTCOMES))}, not {str(outcome)[:40]!r}.")
    prefix = fields.pop("prefix", None)
    if prefix is not None and not (isinstance(prefix, np.ndarray) and prefix.ndim == 2 and prefix.dtype.kind == "f"):
        raise BadRequest("invalid_prefix", "prefix must be an array of floats with the shape [d, action_dim].")
    marks = Marks(
        sequence=_integer(fields, "sequence", 0, MAX_SEED),
        observed_at=_number(fields, "observed_at", -math.inf, math.inf),
        deadline_ms=_number(fields, "deadline_ms", 0.0, MAX_DEADLINE_MS),
        episode=episode,
        outcome=outcome,
    )
    return Asked(
        marks=marks,
        endpoint=endpoint,
        session_id=session_id,
        prefix=prefix if prefix is not None and len(prefix) else None,
        seed=_integer(fields, "seed", 0, MAX_SEED),
        steps=_integer(fields, "steps", 1, 1 << 16),
        fields=fields,
    )


def check_session_id(session_id: Any) -> None:
    """Raise `BadRequest` unless it can name a session."""
    if isinstance(session_id, str) and 0 < len(session_id) <= MAX_NAME and session_id.isascii() and session_id.isprintable():
        return
    raise BadRequest("invalid_session_id", f"session_id must be a text of 1 to {MAX_NAME} printable ASCII characters.")


def metadata(capabilities: ActionCapabilities, session: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    """What a robot is told first: the policy, what it takes and gives, the session, and the server's limits."""
    arrays = {
        spec.key: {
            "dtype": spec.dtype,
            "shape": list(spec.shape),
            **{name: value for name, value in (("layout", spec.layout), ("low", spec.low), ("high", spec.high)) if value not in ("", None)},
        }
        for spec in capabilities.observation
    }
    return {
        **capabilities.extras,
        "policy": capabilities.policy,
        "action_horizon": capabilities.horizon,
        "action_dim": capabilities.action_dim,
        "action_keys": ["actions"],
        "action_low": list(capabilities.low),
        "action_high": list(capabilities.high),
        "control_hz": capabilities.rate,
        "observation": arrays,
        "image_keys": [spec.key for spec in capabilities.observation if spec.layout],
        "state_keys": [spec.key for spec in capabilities.observation if not spec.layout],
        "needs_prompt": capabilities.prompt,
        "needs_session_id": False,
        "max_prefix": capabilities.max_prefix,
        "steps": capabilities.steps,
        "session": session,
        "limits": limits,
    }


def _plain(value: Any) -> Any:
    """numpy's scalars as Python's."""
    return value.item() if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0) else value


def _kind(value: Any) -> str:
    return "numpy array" if isinstance(value, np.ndarray) else type(value).__name__


def _number(fields: dict[Any, Any], name: str, low: float, high: float) -> float | None:
    value = _plain(fields.pop(name, None))
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not low <= value <= high:
        bounds = f" between {low:g} and {high:g}" if math.isfinite(high) else ""
        raise BadRequest(f"invalid_{name}", f"{name} must be a finite number{bounds}, not {str(value)[:40]}.")
    return float(value)


def _integer(fields: dict[Any, Any], name: str, low: int, high: int) -> int | None:
    value = _plain(fields.pop(name, None))
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadRequest(f"invalid_{name}", f"{name} must be a whole number between {low} and {high}, not {str(value)[:40]}.")
    return value
