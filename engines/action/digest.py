"""Weights held against the digest that a configuration gives for them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..errors import WeightsError


def check_digest(file: Path, sha256: str) -> None:
    """Raise `WeightsError` unless the file's SHA-256 is this one (in hexadecimal; "": any will do)."""
    if not sha256:
        return
    try:
        with file.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise WeightsError(f"the weights {file} cannot be read: {error.strerror}") from None
    if found != sha256.lower():
        raise WeightsError(f"the weights {file} are not those that the configuration names (SHA-256 differs)")
