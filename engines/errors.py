"""What can go wrong in the engine room. `code` goes into metrics, logs and the `failed` response that a client sees."""

from __future__ import annotations


class EngineError(Exception):
    """An engine could not do its work. The message is a sentence for the person who will read it."""

    code = "engine_error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class EngineBusyError(EngineError):
    """No slot came free before the deadline."""

    code = "engine_busy"


class EngineTimeoutError(EngineError):
    """The engine did not answer in time."""

    code = "engine_timeout"


class EngineUnavailableError(EngineError):
    """The engine is not loaded, is closing, or its process died."""

    code = "engine_unavailable"


class InvalidRequestError(EngineError):
    """The request itself cannot be served: an unknown voice, an empty conversation, a malformed schema."""

    code = "invalid_request"


class WeightsError(EngineError):
    """Weights are missing or altered; the message names the command that mends it."""

    code = "weights_missing"
