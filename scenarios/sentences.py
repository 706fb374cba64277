"""What callers say, from `sentences.txt`."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).with_name("sentences.txt")


def sentences(kind: str) -> list[str]:
    """All utterances of a kind: questions, interruptions, backchannels or spare. Raises KeyError."""
    found: dict[str, list[str]] = {}
    section: list[str] = []
    for line in FILE.read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            section.append(line)
    return found[kind]
