"""What goes into engines and what comes out: typed, serialisable with msgspec, so that an engine may live in another process.

All audio here is mono signed 16-bit little-endian PCM at 24 kHz, as `bytes`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class ToolCall(msgspec.Struct, frozen=True):
    """A function call made earlier by the chat model; `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message for a chat engine. `role`: system, user, assistant or tool (then with `call_id`)."""

    role: str
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the chat model may call; `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens counted by the chat engine."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


# ---- request bodies -------------------------------------------------------------------------------------------------


class ListenBody(msgspec.Struct, frozen=True, tag="listen"):
    """Score a live feed for speech. `feed` is an `engines.feed.AudioFeed` that the caller keeps writing to."""

    feed: Any


class TurnEndBody(msgspec.Struct, frozen=True, tag="turn_end"):
    """Is the speaker done? `pcm` holds up to the last 8 s of the turn, its trailing silence included."""

    pcm: bytes


class TranscribeBody(msgspec.Struct, frozen=True, tag="transcribe", kw_only=True):
    """Write down `pcm`. `final=False` asks for a quick pass over a growing utterance (partials, overlap words)."""

    pcm: bytes
    language: str | None = None
    prompt: str = ""
    final: bool = True


class ChatBody(msgspec.Struct, frozen=True, tag="chat", kw_only=True):
    """Answer a conversation. `tool_choice`: "auto", "none", "required" or the name of a function as "function:NAME"."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool = True
    max_tokens: int | None = None
    temperature: float | None = None


class SpeakBody(msgspec.Struct, frozen=True, tag="speak", kw_only=True):
    """Say `text`: written text without markup. The engine says numbers and abbreviations in words, and gives the text back in its
    chunks' transcripts as it was written."""

    text: str
    voice: str | None = None
    speed: float = 1.0


class ResponseBody(msgspec.Struct, frozen=True, tag="response", kw_only=True):
    """Ask a pipeline (not a single engine) for a whole answer: written (`audio=False`) or spoken."""

    chat: ChatBody
    audio: bool = True
    voice: str | None = None
    speed: float = 1.0


RequestBody: TypeAlias = ListenBody | TurnEndBody | TranscribeBody | ChatBody | SpeakBody

# ---- chunks ---------------------------------------------------------------------------------------------------------


class SpeechProbabilities(msgspec.Struct, frozen=True, tag="speech_probabilities"):
    """VAD scores of consecutive 32 ms frames (768 samples at 24 kHz); the first frame starts at `start_sample` of the feed."""

    start_sample: int
    probabilities: tuple[float, ...]


class TurnEndProbability(msgspec.Struct, frozen=True, tag="turn_end_probability"):
    """How likely it is that the speaker has finished, 0 to 1."""

    probability: float


class Transcript(msgspec.Struct, frozen=True, tag="transcript", kw_only=True):
    """The text of an utterance. `no_speech` is the model's own probability that nobody spoke; `logprob` the mean per token."""

    text: str
    final: bool = True
    no_speech: float = 0.0
    logprob: float = 0.0
    language: str = "en"


class TextChunk(msgspec.Struct, frozen=True, tag="text"):
    """A piece of the chat model's answer."""

    text: str


class ToolCallChunk(msgspec.Struct, frozen=True, tag="tool_call", kw_only=True):
    """A piece of a function call. The first chunk of a call carries `name`; `index` tells parallel calls apart."""

    index: int
    call_id: str
    name: str
    arguments: str


class Word(msgspec.Struct, frozen=True, array_like=True):
    """A spoken word: `text` as it stands in the transcript (with its leading space and punctuation), times in ms."""

    text: str
    start_ms: float
    end_ms: float


class AudioChunk(msgspec.Struct, frozen=True, tag="audio", kw_only=True):
    """A piece of speech.

    `transcript` is the text that begins to be spoken with this chunk (a clause; empty in the clause's later chunks), written
    so that the pieces joined give the whole transcript. `words` times that text; times count from this chunk's first
    sample and may run past its end, since the clause may go on in the next chunks. Words joined give `transcript`.
    """

    pcm: bytes
    transcript: str = ""
    words: tuple[Word, ...] = ()


class StageMark(msgspec.Struct, frozen=True, tag="stage_mark"):
    """When a stage of a pipeline did something: `what` is "start", "first" (first chunk) or "end"; `at` on time.monotonic."""

    stage: str
    what: str
    at: float


class Finished(msgspec.Struct, frozen=True, tag="finished", kw_only=True):
    """The last chunk of a chat engine or a response pipeline. `reason`: stop, length, tool_calls or content_filter."""

    reason: str = "stop"
    usage: Usage = Usage()


EngineChunk: TypeAlias = (
    SpeechProbabilities | TurnEndProbability | Transcript | TextChunk | ToolCallChunk | AudioChunk | StageMark | Finished
)
