"""Identifiers of everything on the wire, from a seeded generator so that a recorded session replays byte for byte."""

from __future__ import annotations

import random
import string

_ALPHABET = string.ascii_letters + string.digits


class Ids:
    """Makes identifiers such as `item_Cx3…` (21 random characters, about 125 bits)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random.Random(seed)

    def make(self, prefix: str) -> str:
        """An identifier `<prefix>_<21 characters>`. The prefixes: event, conv, item, resp, call, req."""
        return f"{prefix}_{''.join(self._random.choices(_ALPHABET, k=21))}"
