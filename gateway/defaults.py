"""What the server runs when nothing is configured: a voice pipeline on real models, a tone pipeline for load tests, and the engines that
ship for pictures and robots."""

from __future__ import annotations

from typing import Any

INSTRUCTIONS = "You are a friendly voice assistant. Answer in one or two short spoken sentences."

PIPELINES: dict[str, dict[str, Any]] = {
    "voice": {"vad": "silero", "turn_end": "smart-turn", "asr": "whisper", "chat": "smollm2", "speech": "hibari"},
    "tone": {"vad": "energy", "asr": "echo-asr", "chat": "echo", "speech": "tone"},
}
"""Pipelines by name: the engine that plays each role."""

ENGINES: dict[str, dict[str, Any]] = {
    "silero": {"kind": "silero"},
    "smart-turn": {"kind": "smart-turn"},
    "whisper": {"kind": "whisper"},
    "smollm2": {"kind": "llama", "options": {"model": "smollm2-135m-instruct"}},
    "qwen": {"kind": "llama", "options": {"model": "qwen2.5-coder-0.5b-instruct"}},
    "hibari": {"kind": "hibari"},
    "kokoro": {"kind": "kokoro"},
    "energy": {"kind": "energy-vad"},
    "echo-asr": {"kind": "echo-asr"},
    "echo": {"kind": "echo-chat"},
    "tone": {"kind": "tone-speech"},
    "tinyflow": {"kind": "diffusion", "process": True, "nice": 10},
    "tabletop": {"kind": "flow-policy", "options": {"model": "tabletop"}},
    "tabletop-eyes": {"kind": "flow-policy", "options": {"model": "tabletop-eyes"}},
    "metaworld": {"kind": "flow-policy", "options": {"model": "metaworld"}},
}
"""Engines by name. Only those that a served pipeline, `server.media` or `robots.policies` names are loaded."""


ALIASES = {"antiphon-voice": "voice", "antiphon-tone": "tone"}
"""Model names and the pipelines that answer to them."""


def without_overridden_kinds(configured: dict[str, Any]) -> dict[str, Any]:
    """The default tables, less the options of engines whose kind the user changed (they belong to the other kind)."""
    engines: dict[str, Any] = {}
    chosen = configured.get("engines")
    for name, table in ENGINES.items():
        user = chosen.get(name) if isinstance(chosen, dict) else None
        changed = isinstance(user, dict) and user.get("kind", table["kind"]) != table["kind"]
        engines[name] = {} if changed else dict(table)
    pipelines = {name: dict(table) for name, table in PIPELINES.items()}
    return {"engines": engines, "pipelines": pipelines, "models": {"aliases": dict(ALIASES)}}
