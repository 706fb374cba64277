"""What goes into engines and what comes out: typed, serialisable with msgspec, so that an engine may live in another process.

All audio here is mono signed 16-bit little-endian PCM at 24 kHz, as `bytes`; all pictures are 8-bit sRGB, row by row.
"""

from __future__ import annotations

from typing import Any, Self, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt


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


class Raster(msgspec.Struct, frozen=True, kw_only=True):
    """Pictures of one size: `rgb` is `[frames, height, width, 3]` uint8, C order."""

    width: int
    height: int
    rgb: bytes
    frames: int = 1


class GenerateBody(msgspec.Struct, frozen=True, tag="generate", kw_only=True):
    """Make a picture (`frames` 1) or a clip. None anywhere takes the model's own value.

    The same body gives the same bytes whatever else the engine does. `guidance` is the classifier-free guidance scale (1: none).
    `cache` is the residual cache's threshold (0: off). `previews` asks for so many previews, spread over the steps. `image` is the picture
    to start from; `strength` in (0, 1] says how much of it may change; where `mask` (`[height, width]`, 0 or 255) is 0 it stays.
    """

    prompt: str
    negative_prompt: str = ""
    width: int | None = None
    height: int | None = None
    frames: int = 1
    fps: float | None = None
    steps: int | None = None
    guidance: float | None = None
    seed: int = 0
    cache: float | None = None
    previews: int = 0
    image: Raster | None = None
    mask: bytes | None = None
    strength: float = 0.6


class Array(msgspec.Struct, frozen=True, kw_only=True):
    """A numeric array: `data` in C order, `dtype` as numpy's `dtype.str` ("<f4", "|u1"). In this process nothing is copied on the way."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> Self:
        """A view of `array` (a copy only where that is not in C order)."""
        flat = np.ascontiguousarray(array)
        return cls(dtype=flat.dtype.str, shape=array.shape, data=flat.reshape(-1).view(np.uint8).data)

    def numpy(self) -> npt.NDArray[Any]:
        """The array: a view that must not be written to."""
        view: npt.NDArray[Any] = np.ndarray(self.shape, np.dtype(self.dtype), buffer=self.data)
        view.flags.writeable = False
        return view


class ActBody(msgspec.Struct, frozen=True, tag="act", kw_only=True):
    """Make the next action chunk from an observation that has been checked against the engine's `ActionCapabilities`.

    `prefix` `[d, A]` float32, in the robot's units: the actions that will be executed while this is computed; the chunk begins with them
    and goes on from there (only for policies with `max_prefix` > 0). `seed` draws the noise; None: another one each time. `steps` is
    the number of integration steps; None: the policy's own.
    """

    observation: dict[str, Array]
    prompt: str = ""
    prefix: Array | None = None
    seed: int | None = None
    steps: int | None = None


RequestBody: TypeAlias = ListenBody | TurnEndBody | TranscribeBody | ChatBody | SpeakBody | GenerateBody | ActBody

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


class DiffusionStep(msgspec.Struct, frozen=True, tag="diffusion_step", kw_only=True):
    """`step` of `steps` denoising steps are done (1 is the first). `preview` shows what the picture would be now."""

    step: int
    steps: int
    preview: Raster | None = None


class RasterChunk(msgspec.Struct, frozen=True, tag="raster", kw_only=True):
    """Finished frames, in order; `first` is the index of the first of them. Large clips come in several chunks (at most a few MB each)."""

    first: int
    raster: Raster


class Generated(msgspec.Struct, frozen=True, tag="generated", kw_only=True):
    """The last chunk of a generation: what was made. `revised_prompt` is what the model really drew (what the prompt left open filled in);
    `ignored` the words of the prompt that lie outside the model's world; `rows` how many network rows were computed."""

    seed: int
    steps: int
    frames: int
    fps: float
    revised_prompt: str = ""
    ignored: tuple[str, ...] = ()
    rows: int = 0


class ActionChunk(msgspec.Struct, frozen=True, tag="action", kw_only=True):
    """An action chunk: `actions` `[H, A]` float32, in the robot's units, finite, the request's prefix first.

    `wait_ms` from the request's arrival to its first integration step, `infer_ms` from there to the end; `batch` is the mean number of
    robots that shared its steps. The same body with the same `seed` gives the same actions.
    """

    actions: Array
    seed: int
    steps: int
    prefix: int = 0
    wait_ms: float = 0.0
    infer_ms: float = 0.0
    batch: float = 1.0


EngineChunk: TypeAlias = (
    SpeechProbabilities
    | TurnEndProbability
    | Transcript
    | TextChunk
    | ToolCallChunk
    | AudioChunk
    | StageMark
    | Finished
    | DiffusionStep
    | RasterChunk
    | Generated
    | ActionChunk
)
