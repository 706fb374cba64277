"""Loading weights from explicit paths, with errors a person can act on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..errors import EngineUnavailableError, WeightsError

T = TypeVar("T")


class Loaded(Generic[T]):
    """What an engine has loaded, or has not yet: `get` raises `EngineUnavailableError` until `set`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._value: T | None = None

    @property
    def ready(self) -> bool:
        return self._value is not None

    def set(self, value: T) -> None:
        self._value = value

    def clear(self) -> None:
        self._value = None

    def get(self) -> T:
        if self._value is None:
            raise EngineUnavailableError(f"{self._name} is not open")
        return self._value


def load_weights(name: str, loader: Callable[..., T], path: Path, *args: Any) -> T:
    """`loader(path, *args)`; a missing file or one that the loader rejects becomes a `WeightsError` that says what to do."""
    if not Path(path).exists():
        raise WeightsError(f"{name} finds no weights at {path}; bring them with: antiphon models pull {name}")
    try:
        return loader(path, *args)
    except (OSError, RuntimeError, ValueError) as error:
        raise WeightsError(f"{name} cannot load {path}: {error}; bring its weights again with: antiphon models pull {name}") from error
