"""What may be wrong with a run, for the person who started it."""

from __future__ import annotations


class CheckpointError(RuntimeError):
    """A run cannot be gone on with; the message says why."""
