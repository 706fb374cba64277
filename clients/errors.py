"""What can go wrong for a client, as sentences for the person who reads them."""

from __future__ import annotations


class CallFailed(Exception):
    """The call cannot go on; the message says why."""


class CouldNotConnect(CallFailed):
    """The server could not be reached, or refused the connection. `status` is the HTTP status of the refusal, if there was one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class NoAnswer(CallFailed):
    """Something that was waited for did not come in time."""


class NoSoundCard(CallFailed):
    """Microphone and loudspeaker cannot be used on this machine as it is."""
