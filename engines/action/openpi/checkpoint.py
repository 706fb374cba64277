"""What an openpi checkpoint takes and gives, read without torch: from the head of its weights and from the JSON files beside them.

openpi keeps in its training configuration, and not in the checkpoint, how a robot's arrays are called and how many of the model's 32
dimensions it uses. Whoever serves a checkpoint says so: by the name of a preset, or in full.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...errors import EngineError, WeightsError
from ...interface import ActionCapabilities, ArraySpec

T = TypeVar("T")
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
STATISTICS = "norm_stats.json"
CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
"""The model's cameras, in the order in which it sees them."""

MAX_HEAD = 64 << 20
EYES = "paligemma_with_expert.paligemma.model.vision_tower.vision_model."
READER = "paligemma_with_expert.paligemma.model.language_model."
ACTOR = "paligemma_with_expert.gemma_expert.model."


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """How a robot names things. `state`: the arrays that are joined into the state, in this order, with their lengths. `cameras`: the
    robot's key by the model's camera; cameras that are left out count as not there. `action_dim`: how many dimensions of an action are
    the robot's. `delta`: which of these are given relative to the state (openpi's DeltaActions)."""

    state: Mapping[str, int]
    cameras: Mapping[str, str]
    action_dim: int
    delta: tuple[bool, ...] = ()


PRESETS = {
    "libero": Wiring(
        state={"observation/state": 8},
        cameras={"base_0_rgb": "observation/image", "left_wrist_0_rgb": "observation/wrist_image"},
        action_dim=7,
    ),
    "droid": Wiring(
        state={"observation/joint_position": 7, "observation/gripper_position": 1},
        cameras={"base_0_rgb": "observation/exterior_image_1_left", "left_wrist_0_rgb": "observation/wrist_image_left"},
        action_dim=8,
    ),
}
"""As openpi's own transforms of these names have it."""


class Statistics(msgspec.Struct, frozen=True):
    """Of one array of the training data; quantiles where they were computed."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    q01: tuple[float, ...] | None = None
    q99: tuple[float, ...] | None = None


class NormStats(msgspec.Struct, frozen=True):
    """Of what is normalised. openpi writes more; only these two are used."""

    state: Statistics
    actions: Statistics


class StatisticsFile(msgspec.Struct, frozen=True):
    """`norm_stats.json`."""

    norm_stats: NormStats


class ConfigFile(msgspec.Struct, frozen=True):
    """`config.json`, where the checkpoint was converted from JAX; checkpoints of openpi's PyTorch training have none."""

    action_horizon: int | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """The network's sizes, read from its weights. `side` of a picture in pixels; `action_dim` is the model's (32), not the robot's.
    Attention has one head of keys and values, as every Gemma of openpi has."""

    pi05: bool
    patch: int
    side: int
    eyes_width: int
    eyes_inner: int
    eyes_depth: int
    vocabulary: int
    width: int
    inner: int
    actor_width: int
    actor_inner: int
    depth: int
    heads: int
    head_size: int
    action_dim: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """See the module's docstring."""

    folder: Path
    shape: Shape
    statistics: NormStats
    wiring: Wiring
    horizon: int
    quantiles: bool

    @classmethod
    def read(cls, folder: Path, wiring: Wiring, *, horizon: int = 0, asset: str = "", quantiles: bool | None = None) -> Checkpoint:
        """Raises `WeightsError` when a file is missing or cut short, `EngineError` when things do not fit each other."""
        shapes = _shapes(folder / WEIGHTS)
        try:
            shape = _shape(shapes)
        except (KeyError, ValueError, IndexError) as error:
            raise WeightsError(f"{folder / WEIGHTS} does not hold the weights of openpi's pi0 or pi0.5 for PyTorch: {error}") from None
        config = folder / CONFIG
        horizon = horizon or (_decoded(config, ConfigFile).action_horizon or 0 if config.exists() else 0)
        if horizon < 1:
            raise _wrong(f"{folder} does not say how many actions a chunk has: give option horizon (action_horizon of its training)")
        statistics = _decoded(_statistics_file(folder, asset), StatisticsFile).norm_stats
        found = cls(folder, shape, statistics, wiring, horizon, shape.pi05 if quantiles is None else quantiles)
        found._check()
        return found

    def _check(self) -> None:
        wiring, shape = self.wiring, self.shape
        unknown = sorted(set(wiring.cameras) - set(CAMERAS))
        if unknown or not wiring.cameras:
            raise _wrong(f"cameras must name some of {', '.join(CAMERAS)}, not {unknown[0] if unknown else 'none'!r}")
        state = sum(wiring.state.values())
        if not wiring.state or min(wiring.state.values()) < 1 or state > shape.action_dim:
            raise _wrong(f"state must name arrays with 1 to {shape.action_dim} numbers in all")
        if not 1 <= wiring.action_dim <= shape.action_dim:
            raise _wrong(f"action_dim must lie between 1 and {shape.action_dim}")
        if len(wiring.delta) > min(state, wiring.action_dim):
            raise _wrong(f"delta has {len(wiring.delta)} values for {state} numbers of state and {wiring.action_dim} of action")
        for name, known, wanted in (("state", self.statistics.state, state), ("actions", self.statistics.actions, wiring.action_dim)):
            pairs = (known.q01, known.q99) if self.quantiles else (known.mean, known.std)
            if any(values is None for values in pairs):
                raise _wrong(f"{STATISTICS} has no quantiles of {name}: set option quantiles to false, or compute them")
            if any(len(values) < wanted for values in pairs if values is not None):
                raise _wrong(f"{STATISTICS} has statistics for fewer than the {wanted} numbers of {name}")

    def capabilities(self, policy: str, rate: float, steps: int, max_steps: int) -> ActionCapabilities:
        """What robots are told."""
        side = self.shape.side
        state = [ArraySpec(key=key, dtype="float32", shape=(length,)) for key, length in self.wiring.state.items()]
        pictures = [
            ArraySpec(key=self.wiring.cameras[camera], dtype="uint8", shape=(side, side, 3), layout="HWC")
            for camera in CAMERAS
            if camera in self.wiring.cameras
        ]
        return ActionCapabilities(
            policy=policy,
            horizon=self.horizon,
            action_dim=self.wiring.action_dim,
            rate=rate,
            observation=(*state, *pictures),
            prompt=True,
            steps=steps,
            max_steps=max_steps,
            extras={"policy_type": "pi05" if self.shape.pi05 else "pi0"},
        )


def _shapes(file: Path) -> dict[str, list[int]]:
    """The shapes of the tensors of a safetensors file."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > MAX_HEAD:
                raise ValueError("its head is too long")
            head: dict[str, Any] = json.loads(stream.read(length))
        head.pop("__metadata__", None)
        end = max((entry["data_offsets"][1] for entry in head.values()), default=0)
        if file.stat().st_size != 8 + length + end:
            raise ValueError("it is cut short")
        return {name: entry["shape"] for name, entry in head.items()}
    except OSError as error:
        raise WeightsError(f"there is no openpi checkpoint in {file.parent}: {file.name} cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise WeightsError(f"the weights {file} cannot be read: {error}") from None


def _shape(shapes: Mapping[str, list[int]]) -> Shape:
    table = shapes.get(READER + "embed_tokens.weight") or shapes["paligemma_with_expert.paligemma.lm_head.weight"]
    actor_width, action_dim = shapes["action_in_proj.weight"]
    patches = shapes[EYES + "embeddings.patch_embedding.weight"]
    seen = shapes[EYES + "embeddings.position_embedding.weight"][0]
    head_size = shapes[ACTOR + "layers.0.self_attn.k_proj.weight"][0]
    return Shape(
        pi05="time_mlp_in.weight" in shapes,
        patch=patches[2],
        side=patches[2] * round(seen**0.5),
        eyes_width=patches[0],
        eyes_inner=shapes[EYES + "encoder.layers.0.mlp.fc1.weight"][0],
        eyes_depth=_depth(shapes, EYES + "encoder.layers."),
        vocabulary=table[0],
        width=table[1],
        inner=shapes[READER + "layers.0.mlp.up_proj.weight"][0],
        actor_width=actor_width,
        actor_inner=shapes[ACTOR + "layers.0.mlp.up_proj.weight"][0],
        depth=_depth(shapes, ACTOR + "layers."),
        heads=shapes[ACTOR + "layers.0.self_attn.q_proj.weight"][0] // head_size,
        head_size=head_size,
        action_dim=action_dim,
    )


def _depth(shapes: Mapping[str, list[int]], prefix: str) -> int:
    return 1 + max(int(name[len(prefix) :].split(".")[0]) for name in shapes if name.startswith(prefix))


def _statistics_file(folder: Path, asset: str) -> Path:
    if asset:
        return folder / "assets" / asset / STATISTICS
    found = sorted((folder / "assets").rglob(STATISTICS))
    if not found:
        raise WeightsError(f"the openpi checkpoint {folder} has no assets/*/{STATISTICS}: its actions could not be scaled")
    if len(found) > 1:
        names = ", ".join(str(file.parent.relative_to(folder / "assets")) for file in found)
        raise _wrong(f"{folder} has statistics of several data sets: choose one by option asset ({names})")
    return found[0]


def _decoded(file: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except OSError as error:
        raise WeightsError(f"the openpi checkpoint has no {file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise _wrong(f"{file} cannot be understood: {error}") from None


def _wrong(problem: str) -> EngineError:
    return EngineError(f"openpi checkpoint: {problem}", code="invalid_configuration")
