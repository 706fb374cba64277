"""What a lerobot checkpoint takes and gives, read from its JSON files, without lerobot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ...errors import EngineError, WeightsError
from ...interface import ActionCapabilities, ArraySpec

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
PREPROCESSOR = "policy_preprocessor.json"
POSTPROCESSOR = "policy_postprocessor.json"
ACTION = "action"
RENAMES = "rename_observations_processor"
TOKENIZER = "tokenizer_processor"
MAX_FLOW_STEPS = 100
STAND_INS = "observation.images.empty_camera_"
"""Cameras that a checkpoint names but nobody has: its policy makes up their pictures."""

T = TypeVar("T")
Layout = Literal["HWC", "CHW"]
History = Literal["sent", "repeated"]


class Feature(msgspec.Struct, frozen=True):
    """One array: `type` is STATE, ENV, VISUAL (shape `[c, h, w]`) or ACTION."""

    type: str
    shape: tuple[int, ...]


class Config(msgspec.Struct, frozen=True):
    """The fields of `config.json` that matter to those who serve it. Each policy type has its own word for a chunk's length."""

    type: str
    input_features: dict[str, Feature]
    output_features: dict[str, Feature]
    n_obs_steps: int = 1
    n_action_steps: int | None = None
    chunk_size: int | None = None
    action_chunk_size: int | None = None
    num_train_timesteps: int | None = None
    num_inference_steps: int | None = None
    num_steps: int | None = None
    use_cache: bool = False
    use_peft: bool = False


class Step(msgspec.Struct, frozen=True):
    """A step of a processor."""

    registry_name: str = ""
    config: dict[str, Any] = {}
    state_file: str | None = None


class Processor(msgspec.Struct, frozen=True):
    """What is done to observations before the policy sees them, or to actions afterwards."""

    steps: tuple[Step, ...]

    def find(self, registry_name: str) -> Step | None:
        return next((step for step in self.steps if step.registry_name == registry_name), None)


class Wired(msgspec.Struct, frozen=True):
    """An array as robots send it (`spec`), and the key and shape that lerobot knows it by."""

    spec: ArraySpec
    key: str
    shape: tuple[int, ...]
    picture: bool


class Checkpoint(msgspec.Struct, frozen=True):
    """See the module's docstring."""

    folder: Path
    config: Config
    preprocessor: Processor
    postprocessor: Processor

    @classmethod
    def read(cls, folder: Path) -> Checkpoint:
        """Raises `WeightsError` when a file is missing, `EngineError` when one cannot be understood or served."""
        config = _decoded(folder / CONFIG, Config)
        if not (folder / PREPROCESSOR).exists() and (folder / WEIGHTS).exists():
            raise WeightsError(
                f"the lerobot checkpoint {folder} has no {PREPROCESSOR}: it was made before lerobot 0.4. Convert it with "
                f"python -m lerobot.processor.migrate_policy_normalization --pretrained-path {folder}"
            )
        found = cls(folder, config, _decoded(folder / PREPROCESSOR, Processor), _decoded(folder / POSTPROCESSOR, Processor))
        states = [step.state_file for part in (found.preprocessor, found.postprocessor) for step in part.steps if step.state_file]
        for name in (WEIGHTS, *states):
            if not (folder / name).is_file():
                raise WeightsError(f"the lerobot checkpoint {folder} is incomplete: it has no {name}")
        action = config.output_features.get(ACTION)
        if action is None or len(action.shape) != 1:
            raise EngineError(f"the lerobot checkpoint {folder} makes no actions of shape [A]", code="invalid_configuration")
        if config.use_peft:
            raise EngineError(
                f"the lerobot checkpoint {folder} is an adapter (PEFT): merge it into its policy and save that",
                code="invalid_configuration",
            )
        return found

    @property
    def action_dim(self) -> int:
        return self.config.output_features[ACTION].shape[0]

    @property
    def horizon(self) -> int:
        """How many actions a chunk holds: all that `predict_action_chunk` returns."""
        config = self.config
        if config.type == "diffusion":
            return config.n_action_steps or 1
        return config.chunk_size or config.action_chunk_size or config.n_action_steps or 1

    @property
    def steps(self) -> tuple[int, int]:
        """The usual and the most integration steps; (1, 1) where the policy is asked for a whole chunk at once."""
        config = self.config
        if config.type == "diffusion":
            most = config.num_train_timesteps or 1
            return config.num_inference_steps or most, most
        return (config.num_steps or 10, MAX_FLOW_STEPS) if self.flows else (1, 1)

    @property
    def flows(self) -> bool:
        """Whether it is a SmolVLA that keeps what it has read for its steps."""
        return self.config.type == "smolvla" and self.config.use_cache

    @property
    def prompt(self) -> bool:
        """Whether the policy is told in words what to do."""
        return self.preprocessor.find(TOKENIZER) is not None

    def wired(self, keys: Mapping[str, str], layout: Layout, history: History) -> tuple[Wired, ...]:
        """The arrays that robots send. `keys`: lerobot's names by the robots' own, where these differ. Raises `EngineError`."""
        renames = self.preprocessor.find(RENAMES)
        names = {new: old for old, new in (renames.config.get("rename_map") or {}).items()} if renames else {}
        features = {names.get(key, key): feature for key, feature in self.config.input_features.items() if not key.startswith(STAND_INS)}
        unknown = sorted(set(keys.values()) - set(features))
        if unknown or len(set(keys.values())) != len(keys):
            raise EngineError(
                f"option keys must name each array of the checkpoint once at most; it has {', '.join(sorted(features))}"
                + (f", not {unknown[0]!r}" if unknown else ""),
                code="invalid_configuration",
            )
        own = {key: wire for wire, key in keys.items()}
        moments = (self.config.n_obs_steps,) if self.config.n_obs_steps > 1 and history == "sent" else ()
        return tuple(_wired(own.get(key, key), key, feature, layout, moments) for key, feature in features.items())

    def capabilities(self, policy: str, rate: float, wired: tuple[Wired, ...], steps: int, max_steps: int) -> ActionCapabilities:
        """What robots are told."""
        return ActionCapabilities(
            policy=policy,
            horizon=self.horizon,
            action_dim=self.action_dim,
            rate=rate,
            observation=tuple(each.spec for each in wired),
            prompt=self.prompt,
            steps=steps,
            max_steps=max_steps,
            extras={"policy_type": self.config.type, "n_action_steps": min(self.config.n_action_steps or self.horizon, self.horizon)},
        )


def _wired(wire: str, key: str, feature: Feature, layout: Layout, moments: tuple[int, ...]) -> Wired:
    if feature.type != "VISUAL":
        return Wired(ArraySpec(key=wire, dtype="float32", shape=(*moments, *feature.shape)), key, feature.shape, False)
    if len(feature.shape) != 3 or math.prod(feature.shape) <= 0:
        raise EngineError(
            f"the picture {key!r} of the checkpoint has the shape {list(feature.shape)}, not [c, h, w]", code="invalid_configuration"
        )
    channels, height, width = feature.shape
    shape = (height, width, channels) if layout == "HWC" else feature.shape
    return Wired(ArraySpec(key=wire, dtype="uint8", shape=(*moments, *shape), layout=layout), key, feature.shape, True)


def _decoded(file: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except OSError as error:
        raise WeightsError(f"there is no lerobot checkpoint in {file.parent}: {file.name} cannot be read ({error.strerror})") from None
    except msgspec.DecodeError as error:
        raise EngineError(f"{file} of a lerobot checkpoint cannot be understood: {error}", code="invalid_configuration") from None
