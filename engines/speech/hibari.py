"""Hibari: 24 kHz speech from an 8 MB model, a hundred times faster than real time on one core, with true word times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...codecs.pcm import FloatArray
from ..cpu import onnx_session
from .graph import with_output
from .loading import load_weights
from .phonemes import Phonemizer, Utterance, phonemizer
from .synthesis import SpeechEngine

MODEL_NAME = "hibari"
DEFAULT_VOICE = "heart"
_DURATIONS = "/Round_output_0"
"""The model's tensor `[len(ids)]` of how many steps of 25 ms each id lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HibariOptions:
    """The voice "heart" comes inside the hibari-tts package; `voices_folder` may hold the files of others, named as Hibari
    publishes them (`bf_emma.int8.onnx` for "emma")."""

    voices_folder: Path | None = None
    default_voice: str = DEFAULT_VOICE
    threads: int = 1
    waiting_limit: int = 256


class HibariModel:
    """One network per voice."""

    def __init__(self, voices: dict[str, Path], threads: int) -> None:
        from hibari.voices import VOICES

        self._british = {name: bool(VOICES.get(name, {}).get("british")) for name in voices}
        self._networks = {name: load_weights(f"{MODEL_NAME} voice {name}", _session, path, threads) for name, path in voices.items()}

    def phonemizer(self, voice: str) -> Phonemizer:
        return phonemizer(self._british[voice])

    def synthesise(self, utterance: Utterance, voice: str, speed: float) -> tuple[FloatArray, npt.NDArray[np.float32]]:
        from hibari import dsp

        inputs = {"ids": np.asarray([utterance.ids], np.int64), "speed": np.asarray([speed], np.float32)}
        *spectrum, durations = self._networks[voice].run(None, inputs)
        noise = np.random.default_rng(0)  # the same text sounds the same each time
        audio: FloatArray = dsp.synth(*(part[0] for part in spectrum), noise)
        return audio, durations


def _session(path: Path, threads: int) -> Any:
    return onnx_session(with_output(path.read_bytes(), _DURATIONS), threads)


class HibariSpeech(SpeechEngine):
    """See `SpeechEngine`."""

    def __init__(self, options: HibariOptions) -> None:
        self._options = options
        self._voices = voices_in(options.voices_folder)
        default = options.default_voice if options.default_voice in self._voices else DEFAULT_VOICE
        super().__init__(MODEL_NAME, tuple(self._voices), default, options.waiting_limit)

    async def open(self) -> None:
        """Load the voices and the reading rules, warm up. Raises `WeightsError`."""
        await self.open_with(lambda: HibariModel(self._voices, self._options.threads))


def voices_in(folder: Path | None) -> dict[str, Path]:
    """The voices there are by name, the package's own first."""
    from hibari.voices import VOICES, voice_path

    voices = {DEFAULT_VOICE: Path(voice_path(DEFAULT_VOICE))}
    if folder is not None:
        voices |= {name: folder / voice["file"] for name, voice in VOICES.items() if (folder / voice["file"]).exists()}
    return voices
