"""What can be wrong with a call."""

from __future__ import annotations


class BadOffer(ValueError):
    """The offer cannot be answered. The message is a sentence for the caller; `code` is stable."""

    def __init__(self, message: str, code: str = "invalid_offer") -> None:
        super().__init__(message)
        self.code = code


class PeerFailed(Exception):
    """The connection to a caller could not be made or was lost. `reason`: timeout, ice, dtls, closed."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
