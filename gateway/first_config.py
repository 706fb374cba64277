"""The configuration that a session starts with, whatever transport it comes by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..sessions.errors import ClientEventError
from ..sessions.session_config import SessionConfig, default_config
from .errors import ApiError
from .service import Gateway


def first_config(gateway: Gateway, model: str, pipeline: str, kind: str = "realtime") -> SessionConfig:
    """What `[session]` and the pipeline make of a new session. `kind`: realtime or transcription. Raises a 400 `ApiError`."""
    if kind == "transcription":
        return default_config(model or pipeline, "transcription")
    if kind != "realtime":
        raise ApiError(
            400, "invalid_value", f"Unknown session type '{kind}': there are 'realtime' and 'transcription'.", param="session.type"
        )
    defaults = gateway.settings.session
    engines = gateway.settings.pipelines[pipeline]
    voices = gateway.voices(pipeline)
    voice = defaults.voice or (voices[0] if voices else "")
    options: dict[str, Any] = {"voice": voice} if voice else {}
    detection = defaults.first_turn_detection() if engines.vad is not None else None
    config = default_config(model or pipeline, instructions=defaults.instructions, turn_detection=detection, **options)
    if defaults.transcription and engines.asr is not None:
        return config.merge({"audio": {"input": {"transcription": {"model": engines.asr}}}})
    return config


def with_session(config: SessionConfig, *patches: Mapping[str, Any] | None) -> SessionConfig:
    """`config` with the `session` objects of a client laid over it, in order. Raises a 400 `ApiError` that names what is wrong."""
    try:
        for patch in patches:
            if patch:
                config = config.merge(patch)
    except ClientEventError as error:
        raise ApiError(400, error.code, error.message, param=error.param) from error
    return config
