"""A policy's card: the JSON file beside its weights that says what goes in, what comes out, and how both are scaled."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..errors import EngineError, WeightsError
from ..interface import ActionCapabilities, ArraySpec

CARD_NAME = "card.json"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An array of the observation (see `interface.ArraySpec`)."""

    key: str
    dtype: str = "float32"
    shape: tuple[int, ...]
    layout: Literal["", "HWC", "CHW"] = ""
    low: float | None = None
    high: float | None = None


class NetworkShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The sizes of `network.FlowNetwork`, beside what the card says of observation and actions."""

    width: int = 256
    depth: int = 3
    condition: int = 192
    observation_width: int = 256
    prompt_width: int = 64
    prompt_buckets: int = 256
    prompt_encoding: Literal["bag", "words"] = "bag"
    frequencies: int = 32
    eyes: int = 0
    """Cameras, each with a `vision.Eye` of its own."""
    picture_size: int = 64
    keypoints: int = 32


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """See the module's docstring.

    `state` names the arrays of the observation that are joined, in this order, into the network's input `[S]`; they are scaled to
    `(state - state_mean) / state_std` and clipped to +-`state_clip`. `pictures` names those that are seen, one for each of the network's
    eyes: uint8 RGB, `[s, s, 3]` (HWC) or `[3, s, s]` (CHW). Actions come out as `x * action_std + action_mean`, clipped to
    `action_low`..`action_high`. `prompt`: the policy is told in words what to do. `max_prefix`: how many given actions a chunk may
    continue. `steps` is the usual number of integration steps. `weights` is a file beside the card, `sha256` its digest.
    """

    format: Literal["antiphon-flow-policy/1"]
    policy: str
    horizon: int
    action_dim: int
    rate: float
    observation: tuple[Entry, ...]
    state: tuple[str, ...]
    pictures: tuple[str, ...] = ()
    state_mean: tuple[float, ...]
    state_std: tuple[float, ...]
    state_clip: float = 10.0
    action_mean: tuple[float, ...]
    action_std: tuple[float, ...]
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    prompt: bool = False
    max_prefix: int = 0
    steps: int = 6
    max_steps: int = 32
    network: NetworkShape = NetworkShape()
    weights: str = "weights.safetensors"
    sha256: str
    extras: dict[str, Any] = {}

    @property
    def state_size(self) -> int:
        """S, the length of the joined state."""
        shapes = {entry.key: entry.shape for entry in self.observation}
        return sum(math.prod(shapes[key]) for key in self.state)

    def capabilities(self) -> ActionCapabilities:
        """What robots are told."""
        return ActionCapabilities(
            policy=self.policy,
            horizon=self.horizon,
            action_dim=self.action_dim,
            rate=self.rate,
            observation=tuple(ArraySpec(**msgspec.structs.asdict(entry)) for entry in self.observation),
            low=self.action_low,
            high=self.action_high,
            prompt=self.prompt,
            max_prefix=self.max_prefix,
            steps=self.steps,
            max_steps=self.max_steps,
            extras=self.extras,
        )


def load_card(folder: Path) -> Card:
    """The card of the policy in `folder`. Raises `WeightsError` when there is none, `EngineError` when it is wrong."""
    file = folder / CARD_NAME
    try:
        card = msgspec.json.decode(file.read_bytes(), type=Card)
    except OSError as error:
        raise WeightsError(f"there is no policy in {folder}: {file.name} cannot be read ({error.strerror})") from None
    except msgspec.DecodeError as error:
        raise EngineError(f"the policy's card {file} is wrong: {error}", code="invalid_configuration") from None
    problem = _problem(card)
    if problem:
        raise EngineError(f"the policy's card {file} is wrong: {problem}", code="invalid_configuration")
    return card


def checked_weights(folder: Path, card: Card) -> bytes:
    """The bytes of the weights. Raises `WeightsError` when the file is missing or is not the one that the card was written for."""
    file = folder / card.weights
    try:
        data = file.read_bytes()
    except OSError as error:
        raise WeightsError(f"the weights {file} of policy {card.policy!r} cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != card.sha256:
        raise WeightsError(f"the weights {file} are not those that the card of policy {card.policy!r} was written for (SHA-256 differs)")
    return data


def _problem(card: Card) -> str:
    keys = [entry.key for entry in card.observation]
    unknown = [key for key in card.state if key not in keys]
    if unknown:
        return f"state names {unknown[0]!r}, which is not in observation"
    if problem := _problem_of_pictures(card):
        return problem
    if card.horizon < 1 or card.action_dim < 1 or not 0 < card.rate < 10_000 or not 1 <= card.steps <= card.max_steps:
        return "horizon, action_dim and steps must be at least 1, rate above 0, steps not above max_steps"
    if not 0 <= card.max_prefix < card.horizon:
        return f"max_prefix must lie between 0 and horizon - 1, not be {card.max_prefix}"
    if "/" in card.weights or "\\" in card.weights:
        return "weights must be the name of a file beside the card"
    sizes = {
        "state_mean": (card.state_mean, card.state_size),
        "state_std": (card.state_std, card.state_size),
        "action_mean": (card.action_mean, card.action_dim),
        "action_std": (card.action_std, card.action_dim),
    }
    for bound in ("action_low", "action_high"):
        if values := getattr(card, bound):
            sizes[bound] = (values, card.action_dim)
    for name, (values, size) in sizes.items():
        if len(values) != size or not all(map(math.isfinite, values)):
            return f"{name} must hold {size} finite numbers"
    if any(value <= 0 for value in (*card.state_std, *card.action_std)):
        return "state_std and action_std must be above 0"
    return ""


def _problem_of_pictures(card: Card) -> str:
    if len(card.pictures) != card.network.eyes:
        return f"pictures names {len(card.pictures)} arrays for a network with {card.network.eyes} eyes"
    size = card.network.picture_size
    entries = {entry.key: entry for entry in card.observation}
    for key in card.pictures:
        entry = entries.get(key)
        if entry is None:
            return f"pictures names {key!r}, which is not in observation"
        expected = {"HWC": (size, size, 3), "CHW": (3, size, size)}.get(entry.layout)
        if entry.dtype != "uint8" or entry.shape != expected:
            return f"picture {key!r} must be uint8 [{size}, {size}, 3] (HWC) or [3, {size}, {size}] (CHW)"
    return ""
