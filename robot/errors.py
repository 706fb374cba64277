"""What may be wrong with a robot's request, or with what a policy made of it."""

from __future__ import annotations


class BadRequest(Exception):
    """A request that cannot be served. The message is a sentence for the robot's owner; `code` is stable and for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class BadActions(Exception):
    """A policy made actions that must not reach a robot; the message says what is wrong with them."""
