"""Engine kinds by name: a plain table from the word in the configuration to the function that builds the engine.

Modules are imported when a kind is first used, so that an installation without one engine's library runs the others.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from . import weights
from .catalogue import MODELS
from .errors import EngineError
from .interface import Engine, Role

T = TypeVar("T")
Options = Mapping[str, Any]


def build_engine(kind: str, name: str, options: Options) -> Engine:
    """Build (not open) an engine of `kind`, for the configuration's engine called `name`.

    `options` are the fields of the engine's options class. `model` is a name of the catalogue (the weights are then looked for in the
    cache) or a path. Raises `EngineError` for an unknown kind or option or a value of the wrong type, `WeightsError` when the
    weights are not there.
    """
    builder = _BUILDERS.get(kind)
    if builder is None:
        raise EngineError(f"engine {name!r}: there is no kind {kind!r}; there are: {', '.join(_BUILDERS)}", code="invalid_configuration")
    try:
        return builder[1](name, options)
    except ModuleNotFoundError as error:
        raise EngineError(f"engine {name!r} of kind {kind!r} needs the Python package {error.name!r}", code="missing_package") from error


def kinds() -> dict[str, Role]:
    """Every engine kind and its role."""
    return {kind: role for kind, (role, _) in _BUILDERS.items()}


# ---- builders -------------------------------------------------------------------------------------------------------


def _silero(name: str, options: Options) -> Engine:
    module = importlib.import_module(".speech.silero", __package__)
    return _made(module.SileroVad, module.SileroOptions, name, options, model=_weights("silero-vad"))


def _smart_turn(name: str, options: Options) -> Engine:
    module = importlib.import_module(".speech.smart_turn", __package__)
    return _made(module.SmartTurn, module.SmartTurnOptions, name, options, model=_weights("smart-turn-v3.2"))


def _whisper(name: str, options: Options) -> Engine:
    module = importlib.import_module(".speech.whisper", __package__)
    return _made(module.Whisper, module.WhisperOptions, name, options, model=_weights("whisper-tiny.en"))


def _hibari(name: str, options: Options) -> Engine:
    module = importlib.import_module(".speech.hibari", __package__)
    return _made(module.HibariSpeech, module.HibariOptions, name, options)


def _kokoro(name: str, options: Options) -> Engine:
    module = importlib.import_module(".speech.kokoro", __package__)
    finders = {"model": _weights("kokoro-82m-int8"), "voices_folder": _weights_folder("kokoro-voices")}
    return _made(module.KokoroSpeech, module.KokoroOptions, name, options, **finders)


def _llama(name: str, options: Options) -> Engine:
    module = importlib.import_module(".ar.llama", __package__)
    return _made(module.LlamaChat, module.LlamaOptions, name, options, model=_weights("smollm2-135m-instruct"))


def _openai_chat(name: str, options: Options) -> Engine:
    module = importlib.import_module(".ar.openai_chat", __package__)
    return _made(module.OpenAIChat, module.OpenAIChatOptions, name, options)


def _echo_chat(name: str, options: Options) -> Engine:
    module = importlib.import_module(".ar.echo", __package__)
    return _made(module.EchoChat, module.EchoChatOptions, name, options)


def _tone_speech(name: str, options: Options) -> Engine:
    module = importlib.import_module(".speech.tone", __package__)
    return _made(module.ToneSpeech, module.ToneOptions, name, options)


def _energy_vad(name: str, options: Options) -> Engine:
    module = importlib.import_module(".speech.energy", __package__)
    return _made(module.EnergyVad, module.EnergyOptions, name, options)


def _echo_asr(name: str, options: Options) -> Engine:
    module = importlib.import_module(".speech.echo_asr", __package__)
    return _made(module.EchoAsr, module.EchoAsrOptions, name, options)


def _flow_policy(name: str, options: Options) -> Engine:
    module = importlib.import_module(".action.flow_policy", __package__)
    return _made(module.FlowPolicy, module.FlowPolicyOptions, name, options, model=_policy_folder)


def _lerobot_policy(name: str, options: Options) -> Engine:
    module = importlib.import_module(".action.lerobot.engine", __package__)
    return _made(module.LerobotPolicy, module.LerobotPolicyOptions, name, options)


def _openpi_policy(name: str, options: Options) -> Engine:
    module = importlib.import_module(".action.openpi.engine", __package__)
    return _made(module.OpenpiPolicy, module.OpenpiPolicyOptions, name, options)


def _diffusion(name: str, options: Options) -> Engine:
    module = importlib.import_module(".diffusion.engine", __package__)
    return _made(module.StepDiffusion, module.DiffusionOptions, name, options, model=_media_folder)


def _diffusers(name: str, options: Options) -> Engine:
    module = importlib.import_module(".diffusion.diffusers_engine", __package__)
    options_module = importlib.import_module(".diffusion.pipelines.options", __package__)
    return _made(module.DiffusersEngine, options_module.DiffusersOptions, name, options)


_BUILDERS: dict[str, tuple[Role, Callable[[str, Options], Engine]]] = {
    "silero": (Role.VAD, _silero),
    "energy-vad": (Role.VAD, _energy_vad),
    "smart-turn": (Role.TURN_END, _smart_turn),
    "whisper": (Role.ASR, _whisper),
    "echo-asr": (Role.ASR, _echo_asr),
    "llama": (Role.CHAT, _llama),
    "openai-chat": (Role.CHAT, _openai_chat),
    "echo-chat": (Role.CHAT, _echo_chat),
    "hibari": (Role.SPEECH, _hibari),
    "kokoro": (Role.SPEECH, _kokoro),
    "tone-speech": (Role.SPEECH, _tone_speech),
    "diffusers": (Role.DIFFUSION, _diffusers),
    "flow-policy": (Role.ACTION, _flow_policy),
    "lerobot-policy": (Role.ACTION, _lerobot_policy),
    "openpi-policy": (Role.ACTION, _openpi_policy),
    "diffusion": (Role.DIFFUSION, _diffusion),
}

_NEEDS: dict[str, tuple[str, ...]] = {
    "flow-policy": ("torch", "safetensors"),
    "diffusion": ("torch", "diffusers", "transformers", "accelerate", "safetensors"),
    "diffusers": ("torch", "diffusers", "transformers", "accelerate", "safetensors"),
    "lerobot-policy": ("torch", "safetensors", "lerobot"),
    "openpi-policy": ("torch", "safetensors"),
}
"""Packages of optional installs, by the engine kind that imports them when it is opened."""


def missing_packages(kind: str) -> tuple[str, ...]:
    """The packages that engines of this kind need and this interpreter does not have."""
    return tuple(package for package in _NEEDS.get(kind, ()) if importlib.util.find_spec(package) is None)


# ---- options --------------------------------------------------------------------------------------------------------

Finder = Callable[[Any], Path]


def _weights(default: str) -> Finder:
    """Finds the weights for an option's value: None (the default model), a name of the catalogue, or a path."""

    def find(value: Any) -> Path:
        wanted = default if value is None else str(value)
        if any(model.name == wanted for model in MODELS):
            return weights.locate(wanted)["model"]
        path = Path(wanted).expanduser()
        if not path.exists():
            names = ", ".join(model.name for model in MODELS)
            raise EngineError(f"{wanted!r} is neither a path that exists nor a model of the catalogue ({names})", code="weights_missing")
        return path

    return find


def _weights_folder(default: str) -> Finder:
    """Finds the folder of a model's files for an option's value: None (the default model), a name of the catalogue, or a path."""

    def find(value: Any) -> Path:
        wanted = default if value is None else str(value)
        if any(model.name == wanted for model in MODELS):
            return next(iter(weights.locate(wanted).values())).parent
        return Path(wanted).expanduser()

    return find


def _media_folder(value: Any) -> Path:
    """Finds a model's folder in the diffusers layout: None (the model that comes with the package), a name of the catalogue, or a path."""
    if value is None:
        return Path(__file__).parent / "diffusion" / "weights" / "tinyflow"
    if any(model.name == value for model in MODELS):
        return _weights_folder(str(value))(value)
    folder = Path(str(value)).expanduser()
    if not (folder / "model_index.json").is_file():
        names = ", ".join(model.name for model in MODELS)
        raise EngineError(
            f"{str(value)!r} is neither a folder with a model_index.json nor a model of the catalogue ({names})", code="weights_missing"
        )
    return folder


def _policy_folder(value: Any) -> Path:
    """Finds a policy's folder: a path, or the name of a policy that comes with the package."""
    shipped = Path(__file__).parent.parent / "robot" / "weights"
    names = sorted(folder.name for folder in shipped.iterdir() if folder.is_dir()) if shipped.is_dir() else []
    if value is None:
        raise EngineError(
            f"option 'model' is missing: name a policy's folder, or one that ships ({', '.join(names)})", code="invalid_configuration"
        )
    return shipped / str(value) if value in names else Path(str(value)).expanduser()


def _made(engine: Callable[[Any], Engine], options_type: type[T], name: str, options: Options, **finders: Finder) -> Engine:
    """The engine, with its options class filled from `options`; `finders` turn the options that name files into paths."""
    values = dict(options)
    fields = {field.name for field in dataclasses.fields(options_type)}  # type: ignore[arg-type]
    unknown = sorted(set(values) - fields)
    if unknown:
        raise EngineError(
            f"engine {name!r}: unknown option {', '.join(map(repr, unknown))}; there are: {', '.join(sorted(fields)) or 'none'}",
            code="invalid_configuration",
        )
    for option, find in finders.items():
        values[option] = str(find(values.get(option)))
    required = (field.name for field in dataclasses.fields(options_type) if _is_required(field))  # type: ignore[arg-type]
    missing = [repr(name) for name in required if name not in values]
    if missing:
        raise EngineError(f"engine {name!r}: it needs option {' and '.join(missing)}", code="invalid_configuration")
    try:
        return engine(msgspec.convert(values, options_type, dec_hook=_decode))
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise EngineError(f"engine {name!r}: {error}", code="invalid_configuration") from error


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _decode(kind: type[Any], value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    raise TypeError(f"expected {kind.__name__}, not {type(value).__name__}")
