"""A pipeline as it is declared: stages, what feeds each, and what carries the payload between them."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import EngineError
from .interface import Role

REQUEST = "request"
"""The source of a stage that is fed by the caller itself."""

CONNECTORS = ("clauses", "plain")
"""Connectors by name: text cut into clauses; items as they are."""

_SOURCES: dict[Role, tuple[Role, ...]] = {
    Role.VAD: (),
    Role.TURN_END: (),
    Role.ASR: (),
    Role.CHAT: (Role.ASR,),
    Role.SPEECH: (Role.CHAT,),
}
"""Which roles may feed which, besides the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One engine's part. `engine` is a name in the pool; `source` is "request" or the name of another stage."""

    name: str
    role: Role
    engine: str
    source: str = REQUEST
    connector: str | None = None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages by role, at most one of each. Raises `EngineError` when they do not fit together."""

    name: str
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        names = {stage.name: stage for stage in self.stages}
        if len(names) < len(self.stages) or len({stage.role for stage in self.stages}) < len(self.stages):
            raise EngineError(f"pipeline {self.name!r} has two stages of one name or role", code="invalid_configuration")
        for stage in self.stages:
            if stage.connector is not None and stage.connector not in CONNECTORS:
                raise self._wrong(stage, f"there is no connector {stage.connector!r}; there are: {', '.join(CONNECTORS)}")
            if stage.source == REQUEST:
                continue
            source = names.get(stage.source)
            if source is None:
                raise self._wrong(stage, f"its source {stage.source!r} is no stage of the pipeline")
            if source.role not in _SOURCES[stage.role]:
                raise self._wrong(stage, f"a {stage.role} stage cannot be fed by a {source.role} stage")

    def _wrong(self, stage: Stage, what: str) -> EngineError:
        return EngineError(f"pipeline {self.name!r}, stage {stage.name!r}: {what}", code="invalid_configuration")

    @classmethod
    def voice(
        cls,
        name: str,
        *,
        chat: str,
        speech: str | None = None,
        vad: str | None = None,
        turn_end: str | None = None,
        asr: str | None = None,
    ) -> Pipeline:
        """The usual one: the caller's audio to VAD, turn end and ASR; the transcript to chat; clauses of its answer to speech.
        The arguments are engine names; a role left out is not there."""
        stages = [
            Stage(name=str(role), role=role, engine=engine)
            for role, engine in ((Role.VAD, vad), (Role.TURN_END, turn_end), (Role.ASR, asr))
            if engine
        ]
        stages.append(Stage(name="chat", role=Role.CHAT, engine=chat, source="asr" if asr else REQUEST, connector="plain" if asr else None))
        if speech:
            stages.append(Stage(name="speech", role=Role.SPEECH, engine=speech, source="chat", connector="clauses"))
        return cls(name, tuple(stages))

    def has(self, role: Role) -> bool:
        return any(stage.role is role for stage in self.stages)

    def stage(self, role: Role) -> Stage:
        """The stage of that role. Raises `EngineError` with the code `no_<role>` when there is none."""
        for stage in self.stages:
            if stage.role is role:
                return stage
        raise EngineError(f"pipeline {self.name!r} has no {role} stage", code=f"no_{role}")
