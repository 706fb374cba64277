"""Kokoro 82M (int8): several voices, but about as slow as speech itself on one core. For callers in scenarios and rendering."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...codecs.pcm import FloatArray
from ..cpu import onnx_session
from ..errors import WeightsError
from .graph import with_output
from .loading import load_weights
from .phonemes import Phonemizer, Utterance, phonemizer
from .synthesis import SpeechEngine

MODEL_NAME = "kokoro-82m-int8"
_DURATIONS = "/encoder/Round_output_0"
_STYLE = 256
_LONGEST = 509
"""Rows of a voice: one style vector `[256]` for each number of phonemes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KokoroOptions:
    """`model` is the ONNX file; `voices_folder` holds a `.bin` file for each voice, or `.npz` archives of several (names that
    begin with "b" are British)."""

    model: Path
    voices_folder: Path
    default_voice: str = "af_bella"
    threads: int = 1
    waiting_limit: int = 64


class KokoroModel:
    """The network and its voices' styles `[510, 256] float32`."""

    def __init__(self, model: Path, voices: dict[str, Path], threads: int) -> None:
        self._network = load_weights(MODEL_NAME, lambda path: onnx_session(with_output(path.read_bytes(), _DURATIONS), threads), model)
        self._styles = {
            name: load_weights("kokoro-voices", lambda path, name=name: _style(path, name), path) for name, path in voices.items()
        }

    def phonemizer(self, voice: str) -> Phonemizer:
        return phonemizer(voice.startswith("b"))

    def synthesise(self, utterance: Utterance, voice: str, speed: float) -> tuple[FloatArray, npt.NDArray[np.float32]]:
        row = min(len(utterance.ids) - 2, _LONGEST)
        inputs = {
            "tokens": np.asarray([utterance.ids], np.int64),
            "style": self._styles[voice][row : row + 1],
            "speed": np.asarray([speed], np.float32),
        }
        audio, durations = self._network.run(None, inputs)
        return audio.reshape(-1), durations.reshape(-1)


def _style(path: Path, name: str) -> FloatArray:
    stored = np.load(path)[name] if path.suffix == ".npz" else np.fromfile(path, "<f4")
    return stored.astype(np.float32).reshape(-1, _STYLE)


def _voices(folder: Path) -> dict[str, Path]:
    """Every voice in a folder, and the file that holds it."""
    found = {path.stem: path for path in sorted(folder.glob("*.bin"))}
    for archive in sorted(folder.glob("*.npz")):
        with np.load(archive) as stored:
            found.update(dict.fromkeys(stored.files, archive))
    return found


class KokoroSpeech(SpeechEngine):
    """See `SpeechEngine`."""

    def __init__(self, options: KokoroOptions) -> None:
        self._options = options
        self._voices = _voices(options.voices_folder)
        if not self._voices:
            raise WeightsError(f"{options.voices_folder} holds no voices; bring them with: antiphon models pull kokoro-voices")
        default = options.default_voice if options.default_voice in self._voices else next(iter(self._voices))
        super().__init__(MODEL_NAME, tuple(self._voices), default, options.waiting_limit)

    async def open(self) -> None:
        """Load the network, the voices and the reading rules, warm up. Raises `WeightsError`."""
        await self.open_with(lambda: KokoroModel(self._options.model, self._voices, self._options.threads))
