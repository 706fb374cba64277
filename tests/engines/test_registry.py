"""Engines by the words of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from antiphon.engines.ar.echo import EchoChat
from antiphon.engines.errors import EngineError
from antiphon.engines.interface import Engine, Role
from antiphon.engines.registry import build_engine, kinds


def test_every_kind_has_a_role() -> None:
    assert kinds()["llama"] is Role.CHAT
    assert set(kinds().values()) == set(Role)


@pytest.mark.parametrize("kind", ["echo-chat", "tone-speech", "energy-vad", "echo-asr"])
def test_engines_without_weights(kind: str) -> None:
    engine = build_engine(kind, "mine", {"slots": 3})
    assert isinstance(engine, Engine)
    assert engine.capabilities.role is kinds()[kind]
    assert engine.capabilities.slots == 3


def test_options_reach_the_engine() -> None:
    engine = build_engine("echo-chat", "mine", {"text": "hello", "tokens_per_second": 5})
    assert isinstance(engine, EchoChat)
    assert (engine.options.text, engine.options.tokens_per_second) == ("hello", 5.0)


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("parrot", {}, "engine 'mine': there is no kind 'parrot'; there are: silero"),
        ("tone-speech", {"volume": 3}, "engine 'mine': unknown option 'volume'; there are: characters_per_second"),
        ("tone-speech", {"hertz": "high"}, r"engine 'mine': Expected `int`, got `str` - at `\$.hertz`"),
        ("llama", {"model": "/nowhere/x.gguf"}, "neither a path that exists nor a model of the catalogue"),
        ("openai-chat", {"url": "http://x"}, "engine 'mine': it needs option 'model'"),
        ("openai-chat", {"url": "x", "model": "y"}, "begins with http"),
    ],
)
def test_what_is_wrong_is_said(kind: str, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(EngineError, match=sentence):
        build_engine(kind, "mine", options)


def test_a_model_may_be_a_path(tmp_path: Path) -> None:
    (tmp_path / "small.gguf").touch()
    assert build_engine("llama", "mine", {"model": str(tmp_path / "small.gguf")}).capabilities.models == ("small",)
