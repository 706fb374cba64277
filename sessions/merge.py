"""How the `session` of a `session.update` is laid over a session's configuration, before it is validated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import ClientEventError

_MERGED = {"audio", "audio.input", "audio.output", "audio.input.transcription", "audio.input.noise_reduction", "reasoning"}
"""Objects whose keys change one by one. Everything else is replaced as a whole."""

_SWITCHED = {"audio.input.turn_detection", "audio.input.format", "audio.output.format"}
"""Objects whose keys change one by one while their `type` stays, and that another type replaces."""

_NULLABLE = {
    "prompt",
    "include",
    "tracing",
    "reasoning",
    "temperature",
    "audio.input.transcription",
    "audio.input.noise_reduction",
    "audio.input.turn_detection",
}
"""What null turns off."""

_KEPT = {"type", "audio", "audio.input", "audio.output", "audio.output.voice"}
"""What null leaves as it is: there is no other value that it could mean."""


def merged(current: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`current` with `patch` over it; neither is changed. Null clears: a nullable key becomes null, another its default."""
    return _merge_object(current, {key: value for key, value in patch.items() if not _ignored(key, current)}, "")


def _ignored(key: str, current: Mapping[str, Any]) -> bool:
    """Stock clients send their own model name whatever the URL says, and tracing is immutable once on."""
    return key == "model" or (key == "tracing" and current["tracing"] is not None)


def _merge_object(current: dict[str, Any], patch: Mapping[str, Any], path: str) -> dict[str, Any]:
    result = dict(current)
    for key, value in patch.items():
        where = f"{path}.{key}" if path else key
        if value is None:
            if where in _NULLABLE:
                result[key] = None
            elif where not in _KEPT and key in result:
                del result[key]  # validation puts the default back
            elif key not in result:
                result[key] = None  # unknown: validation says so
        elif isinstance(value, Mapping):
            result[key] = _merge_value(current.get(key), value, where)
        else:
            result[key] = value
    return result


def _merge_value(current: Any, value: Mapping[str, Any], where: str) -> Any:
    if where in _MERGED and isinstance(current, dict):
        return _merge_object(current, value, where)
    if where not in _SWITCHED:
        return value
    kind = value.get("type")
    if isinstance(current, dict) and kind in (None, current["type"]):
        return _merge_object(current, {key: item for key, item in value.items() if key != "type"}, where)
    if kind is None:
        message = f"Missing required parameter: 'session.{where}.type'. It is off, so say which type to turn on."
        raise ClientEventError("missing_required_parameter", message, f"session.{where}.type")
    return _without_nulls(value)


def _without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    """Null in a new object means the key's default."""
    return {key: item for key, item in value.items() if item is not None}
