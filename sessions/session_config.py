"""The session object: its defaults, its ranges, how a `session.update` is laid over it and how it is echoed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, ValidationError

from .errors import ClientEventError
from .merge import merged
from .schema import (
    MAX_PARAM,
    AudioFormat,
    FunctionTool,
    JsonObject,
    MaxOutputTokens,
    Modalities,
    PlainJson,
    PromptRef,
    Reasoning,
    Strict,
    Tool,
    ToolChoice,
    Voice,
    WholeNumber,
    first_error,
    shown,
    tagger,
    text_or_object,
    voice_name,
)
from .turn_end import silence_timeout_ms

DEFAULT_VOICE = "alloy"
SessionType: TypeAlias = Literal["realtime", "transcription"]
Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]

# ---- audio in -------------------------------------------------------------------------------------------------------


class ServerVad(Strict):
    """Turns end after a stretch of silence. Times in ms; `idle_timeout_ms` None: never speak up unasked."""

    type: Literal["server_vad"] = "server_vad"
    threshold: Fraction = 0.5
    prefix_padding_ms: Annotated[WholeNumber, Field(le=10_000)] = 300
    silence_duration_ms: Annotated[WholeNumber, Field(le=10_000)] = 500
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: Annotated[WholeNumber, Field(ge=5_000, le=30_000)] | None = None


class SemanticVad(Strict):
    """Turns end when a model judges that the user has finished, at the latest after the time-out of `eagerness`."""

    type: Literal["semantic_vad"] = "semantic_vad"
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True

    @property
    def timeout_ms(self) -> int:
        """Silence after which the turn ends whatever the model thinks."""
        return silence_timeout_ms(self.eagerness)


TurnDetection: TypeAlias = Annotated[
    Annotated[ServerVad, Tag("<server_vad>")] | Annotated[SemanticVad, Tag("<semantic_vad>")],
    Discriminator(tagger()),
]
DEFAULT_TURN_DETECTION = ServerVad()


class Transcription(Strict):
    """Write down what the user says. `model` names are mapped by the server; the rest guides it where it can be guided."""

    model: Annotated[str, Field(max_length=256)] | None = None
    language: Annotated[str, Field(max_length=35)] | None = None
    languages: list[str] | None = None
    keywords: list[str] | None = None
    prompt: str | None = None
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None


class NoiseReduction(Strict):
    """Where the microphone stands."""

    type: Literal["near_field", "far_field"]
    strength: PlainJson = None


class InputAudio(Strict):
    """How the user is heard."""

    format: AudioFormat = AudioFormat()
    transcription: Transcription | None = None
    noise_reduction: NoiseReduction | None = None
    turn_detection: TurnDetection | None = DEFAULT_TURN_DETECTION


class OutputAudio(Strict):
    """How the answer sounds."""

    format: AudioFormat = AudioFormat()
    voice: Voice = DEFAULT_VOICE
    speed: Annotated[float, Field(ge=0.25, le=1.5)] = 1.0

    @property
    def voice_name(self) -> str:
        """The voice's name or id."""
        return voice_name(self.voice)


class Audio(Strict):
    """Both directions."""

    input: InputAudio = InputAudio()
    output: OutputAudio = OutputAudio()


# ---- the session ----------------------------------------------------------------------------------------------------


class TokenLimits(Strict):
    """Limits of a truncation."""

    post_instructions: WholeNumber | None = None


class RetentionRatio(Strict):
    """Keep this part of a full context."""

    type: Literal["retention_ratio"]
    retention_ratio: Fraction
    token_limits: TokenLimits | None = None


class Tracing(Strict):
    """Accepted and echoed."""

    workflow_name: str | None = None
    group_id: str | None = None
    metadata: JsonObject | None = None


Truncation: TypeAlias = Annotated[
    Annotated[Literal["auto", "disabled"], Tag("<text>")] | Annotated[RetentionRatio, Tag("<object>")],
    Discriminator(text_or_object),
]
TracingChoice: TypeAlias = Annotated[
    Annotated[Literal["auto"], Tag("<text>")] | Annotated[Tracing, Tag("<object>")],
    Discriminator(text_or_object),
]


def _spoken() -> list[Literal["audio", "text"]]:
    return ["audio"]


class SessionConfig(Strict):
    """A session's configuration. Immutable: `merge` makes a new one."""

    type: SessionType = "realtime"
    model: str
    output_modalities: Modalities = Field(default_factory=_spoken)
    instructions: str = ""
    prompt: PromptRef | None = None
    include: list[Literal["item.input_audio_transcription.logprobs"]] | None = None
    tracing: TracingChoice | None = None
    max_output_tokens: MaxOutputTokens = "inf"
    parallel_tool_calls: bool = True
    reasoning: Reasoning | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    truncation: Truncation = "auto"
    tools: list[Tool] = Field(default_factory=list)
    tool_choice: ToolChoice = "auto"
    audio: Audio = Audio()

    @property
    def speaks(self) -> bool:
        """Answers are spoken, not only written."""
        return self.output_modalities == ["audio"]

    def merge(self, patch: Mapping[str, Any], *, voice_locked: bool = False) -> SessionConfig:
        """This configuration with the `session` of a `session.update` laid over it.

        Only keys that are present change something; null, "" and [] clear. A `turn_detection` without a type keeps the
        type, one of another type replaces the object. Another `model` is accepted and ignored, as is a change of `tracing`
        once it is on (stock clients send both). Raises `ClientEventError` and changes nothing: unknown_parameter,
        invalid_value, missing_required_parameter, or cannot_update_voice when `voice_locked` (audio has been sent).
        """
        self._check_patch(patch)
        data = merged(self.model_dump(), patch)
        try:
            config = SessionConfig.model_validate(data)
        except ValidationError as error:
            raise first_error(error, prefix="session") from None
        if voice_locked and config.audio.output.voice_name != self.audio.output.voice_name:
            raise ClientEventError(
                "cannot_update_voice",
                f"Cannot update the voice from '{self.audio.output.voice_name}' to '{config.audio.output.voice_name}': the session has "
                "already spoken. Open a new session for another voice.",
                "session.audio.output.voice",
            )
        return config

    def _check_patch(self, patch: Mapping[str, Any]) -> None:
        """What can be said about a patch only before it is merged."""
        kind = patch.get("type")
        if kind is not None and kind != self.type:
            message = f"Invalid value: {shown(kind)}. This is a '{self.type}' session and its type cannot change."
            raise ClientEventError("invalid_value", message, "session.type")
        model = patch.get("model")
        if model is not None and not isinstance(model, str):
            raise ClientEventError(
                "invalid_value", f"Invalid type for 'session.model': expected a string, but got {shown(model)}.", "session.model"
            )
        if self.type == "transcription":
            for key in patch:
                if key not in ("type", "model", "audio", "include"):
                    raise _unknown(f"session.{key}")
            audio = patch.get("audio")
            if isinstance(audio, Mapping) and "output" in audio:
                raise _unknown("session.audio.output")

    def wire(self, session_id: str, expires_at: int) -> dict[str, Any]:
        """The session as clients see it in `session.created` and `session.updated`. `expires_at`: Unix seconds."""
        audio_in = self.audio.input
        heard = {
            "format": audio_in.format.wire(),
            "transcription": None if audio_in.transcription is None else _compact(audio_in.transcription),
            "noise_reduction": None if audio_in.noise_reduction is None else _compact(audio_in.noise_reduction),
            "turn_detection": None if audio_in.turn_detection is None else audio_in.turn_detection.model_dump(),
        }
        if self.type == "transcription":
            return {
                "type": self.type,
                "object": "realtime.transcription_session",
                "id": session_id,
                "expires_at": expires_at,
                "include": self.include,
                "audio": {"input": heard},
            }
        output = self.audio.output
        session: dict[str, Any] = {
            "type": self.type,
            "object": "realtime.session",
            "id": session_id,
            "model": self.model,
            "expires_at": expires_at,
            "output_modalities": list(self.output_modalities),
            "instructions": self.instructions,
            "prompt": None if self.prompt is None else self.prompt.model_dump(),
            "include": self.include,
            "tracing": _compact(self.tracing) if isinstance(self.tracing, Tracing) else self.tracing,
            "max_output_tokens": self.max_output_tokens,
            "parallel_tool_calls": self.parallel_tool_calls,
            "reasoning": None if self.reasoning is None else _compact(self.reasoning),
            "truncation": self.truncation if isinstance(self.truncation, str) else _compact(self.truncation),
            "tools": [tool.wire() for tool in self.tools],
            "tool_choice": self.tool_choice if isinstance(self.tool_choice, str) else self.tool_choice.model_dump(),
            "audio": {
                "input": heard,
                "output": {
                    "format": output.format.wire(),
                    "voice": output.voice if isinstance(output.voice, str) else output.voice.model_dump(),
                    "speed": output.speed,
                },
            },
        }
        if self.temperature is not None:
            session["temperature"] = self.temperature
        return session


def _compact(model: Strict) -> dict[str, Any]:
    return model.model_dump(exclude_none=True)


def _unknown(param: str) -> ClientEventError:
    return ClientEventError("unknown_parameter", f"Unknown parameter: {shown(param)}.", param[:MAX_PARAM])


def default_config(
    model: str,
    type: SessionType = "realtime",
    *,
    instructions: str = "",
    voice: str = DEFAULT_VOICE,
    turn_detection: ServerVad | SemanticVad | None = DEFAULT_TURN_DETECTION,
) -> SessionConfig:
    """A session's configuration before its first update. A transcription session writes down with `model`."""
    transcription = Transcription(model=model) if type == "transcription" else None
    return SessionConfig(
        type=type,
        model=model,
        instructions=instructions,
        audio=Audio(input=InputAudio(transcription=transcription, turn_detection=turn_detection), output=OutputAudio(voice=voice)),
    )


__all__ = [
    "Audio",
    "AudioFormat",
    "DEFAULT_TURN_DETECTION",
    "FunctionTool",
    "InputAudio",
    "NoiseReduction",
    "OutputAudio",
    "SemanticVad",
    "ServerVad",
    "SessionConfig",
    "Transcription",
    "TurnDetection",
    "default_config",
]
