"""Instructions as tokens of PaliGemma, in the two forms that openpi trains with."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import EngineError, WeightsError

BOS = 2
MAX_TOKENS = {False: 48, True: 200}
"""By whether the state is told in words too (pi0.5); what is longer is cut."""

BINS = 256


class Tokenizer:
    """From a file: `paligemma_tokenizer.model` of sentencepiece, or a `tokenizer.json` of the same vocabulary."""

    def __init__(self, file: Path) -> None:
        self._encode: Callable[[str], list[int]] = _sentencepiece(file) if file.suffix == ".model" else _tokenizers(file)

    def tokens(self, prompt: str, state: npt.NDArray[np.float32] | None) -> list[int]:
        """`state`, normalised: it is told in words (pi0.5); None: it is not (pi0)."""
        told = prompt.strip().replace("_", " ").replace("\n", " ")
        if state is None:
            return [BOS, *self._encode(told), *self._encode("\n")][: MAX_TOKENS[False]]
        places = np.digitize(state, np.linspace(-1, 1, BINS + 1)[:-1]) - 1
        words = f"Task: {told}, State: {' '.join(map(str, places.tolist()))};\nAction: "
        return [BOS, *self._encode(words)][: MAX_TOKENS[True]]


def _sentencepiece(file: Path) -> Callable[[str], list[int]]:
    try:
        module: Any = importlib.import_module("sentencepiece")
    except ModuleNotFoundError as error:
        raise EngineError(
            f"the tokenizer {file} needs the Python package 'sentencepiece': pip install sentencepiece", code="missing_package"
        ) from error
    try:
        processor = module.SentencePieceProcessor(model_proto=file.read_bytes())
    except (OSError, RuntimeError) as error:
        raise WeightsError(f"the tokenizer {file} cannot be read: {error}") from error

    def encode(text: str) -> list[int]:
        return list(processor.encode(text))

    return encode


def _tokenizers(file: Path) -> Callable[[str], list[int]]:
    module: Any = importlib.import_module("tokenizers")
    try:
        tokenizer = module.Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise WeightsError(f"the tokenizer {file} cannot be read: {error.strerror}") from error
    except Exception as error:  # what its Rust side raises is no more specific
        raise WeightsError(f"the tokenizer {file} cannot be read: {error}") from error

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    return encode
