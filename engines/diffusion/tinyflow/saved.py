"""diffusers' base classes, typed as far as they are used here (its own types are not complete).

`ModelMixin` bears diffusers' name because `from_pretrained` of a pipeline looks for that name in the module of each part.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from torch import nn

if TYPE_CHECKING:
    F = TypeVar("F", bound=Callable[..., Any])

    def register_to_config(init: F) -> F:
        """Keep a constructor's arguments in `config`."""

    class ModelMixin(nn.Module):
        """A module that diffusers saves and loads."""

        config: Any

        @classmethod
        def from_pretrained(cls, folder: Path, **options: Any) -> Self: ...

        @classmethod
        def from_config(cls, config: Any) -> Self: ...

        def save_pretrained(self, folder: Path) -> None: ...

        def __call__(self, *inputs: Any) -> Any: ...

    class Pipeline:
        """A pipeline that diffusers saves and loads."""

        tokenizer: Any
        text_encoder: Any
        transformer: Any
        vae: Any
        scheduler: Any

        def register_modules(self, **parts: Any) -> None: ...

        def progress_bar(self, total: int) -> Any: ...

        def maybe_free_model_hooks(self) -> None: ...

        @classmethod
        def from_pretrained(cls, folder: Path, **options: Any) -> Self: ...

        def save_pretrained(self, folder: Path) -> None: ...

    class Output:
        """A dataclass that can be indexed."""

else:
    from diffusers import DiffusionPipeline as Pipeline  # noqa: F401
    from diffusers import ModelMixin as _ModelMixin
    from diffusers.configuration_utils import ConfigMixin, register_to_config  # noqa: F401
    from diffusers.utils import BaseOutput as Output  # noqa: F401

    class ModelMixin(_ModelMixin, ConfigMixin):
        """A module that diffusers saves and loads."""


def zero(layer: nn.Linear | nn.Conv2d) -> None:
    """Start a layer from nothing."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
