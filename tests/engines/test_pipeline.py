"""Declared pipelines: what fits together, and what is said when it does not."""

from __future__ import annotations

import pytest
from antiphon.engines.errors import EngineError
from antiphon.engines.interface import Role
from antiphon.engines.orchestrator import Orchestrator
from antiphon.engines.pipeline import Pipeline, Stage
from antiphon.engines.pool import EnginePool

from .fakes import chat, speech


def test_the_usual_voice_pipeline() -> None:
    pipeline = Pipeline.voice("voice", vad="silero", turn_end="smart-turn", asr="whisper", chat="llama", speech="hibari")
    assert [(stage.role, stage.source) for stage in pipeline.stages] == [
        (Role.VAD, "request"),
        (Role.TURN_END, "request"),
        (Role.ASR, "request"),
        (Role.CHAT, "asr"),
        (Role.SPEECH, "chat"),
    ]
    assert pipeline.stage(Role.SPEECH).connector == "clauses"


def test_a_role_that_is_not_there() -> None:
    pipeline = Pipeline.voice("text", chat="llama")
    assert not pipeline.has(Role.SPEECH)
    with pytest.raises(EngineError) as caught:
        pipeline.stage(Role.SPEECH)
    assert caught.value.code == "no_speech"


@pytest.mark.parametrize(
    ("stages", "sentence"),
    [
        ((Stage(name="a", role=Role.CHAT, engine="x"), Stage(name="a", role=Role.ASR, engine="x")), "two stages"),
        ((Stage(name="a", role=Role.CHAT, engine="x"), Stage(name="b", role=Role.CHAT, engine="x")), "two stages"),
        ((Stage(name="a", role=Role.CHAT, engine="x", source="b"),), "no stage of the pipeline"),
        ((Stage(name="a", role=Role.SPEECH, engine="x", source="a"),), "cannot be fed by a speech stage"),
        ((Stage(name="a", role=Role.CHAT, engine="x", connector="wire"),), "no connector 'wire'"),
    ],
)
def test_what_does_not_fit_is_refused(stages: tuple[Stage, ...], sentence: str) -> None:
    with pytest.raises(EngineError, match=sentence):
        Pipeline("p", stages)


def test_engines_must_have_the_role_of_their_stage() -> None:
    pool = EnginePool()
    pool.add("c", chat("x"))
    pool.add("s", speech())
    with pytest.raises(EngineError, match="is a speech engine, not chat"):
        Orchestrator(pool, [Pipeline.voice("p", chat="s")])
    with pytest.raises(EngineError, match="no engine named 'nobody'"):
        Orchestrator(pool, [Pipeline.voice("p", chat="nobody")])
